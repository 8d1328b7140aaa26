"""Files for the message being written: attached by a command, and removed by a click."""

import threading
from dataclasses import dataclass
from hashlib import sha256

from specchat.images.image import Image
from specchat.system.current_folder import current_folder
from specchat.tui.clipboard import image_in_clipboard
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.mentions import COPIED_NAME, mention_of, without_mention

USAGE = (
    "No copied picture came from wl-paste, xclip or osascript. Use /attach FILE, or write @ and its"
    " name."
)

WAITING = "waiting for the copied picture"


@dataclass(frozen=True, slots=True)
class Attaching:
    """Writes mentions of files into the message, and takes them out."""

    view: MainView
    state: ChatState

    def attach(self, name: str = "") -> None:
        """Mention a file, or without a name the picture that was copied.

        Raises InvalidOption if there is no such file.
        """
        if name:
            self._mention(mention_of(name, current_folder()))
        else:
            self.view.say(WAITING, "images")
            # its program may wait for another one's picture, and quitting for neither
            threading.Thread(target=self._read_copied, daemon=True).start()

    def _read_copied(self) -> None:
        """Read the clipboard, in a thread of its own."""
        self.view.app.call_later(self._attach_copied, image_in_clipboard())

    def _attach_copied(self, found: bytes) -> None:
        """Mention the picture that was in the clipboard; it is kept, as it has no file."""
        self.view.say("", "images")
        if not found:
            self.view.notify(USAGE, severity="warning")
            return
        self._mention(f"@{self._keep(found)}")

    def _keep(self, found: bytes) -> str:
        """Keep a picture for messages and return its name, which no other picture has."""
        name = COPIED_NAME.format(sha256(found).hexdigest()[:8])
        self.state.message_size.checks.copied[name] = Image(found, name)
        return name

    def _mention(self, mention: str) -> None:
        self.view.composer.insert(f"{mention} ")
        self.view.composer.focus()

    def detach(self, place: int) -> None:
        """Take an image, of those listed above the message, out of it."""
        listed, composer = self.state.message_size.images, self.view.composer
        if place < len(listed):
            composer.rewrite(without_mention(composer.text, listed[place].image.name))
