"""Files for the message being written: attached by a command, and removed by a click."""

from dataclasses import dataclass

from specchat.system.current_folder import current_folder
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.mentions import mention_of, without_mention

USAGE = "Use /attach FILE, or write @ and its name."


@dataclass(frozen=True, slots=True)
class Attaching:
    """Writes mentions of files into the message, and takes them out."""

    view: MainView
    state: ChatState

    def attach(self, name: str = "") -> None:
        """Mention a file. Raises InvalidOption if there is none."""
        if not name:
            self.view.notify(USAGE, severity="warning")
            return
        self.view.composer.insert(f"{mention_of(name, current_folder())} ")
        self.view.composer.focus()

    def detach(self, place: int) -> None:
        """Take an image, of those listed above the message, out of it."""
        listed, composer = self.state.message_size.images, self.view.composer
        if place < len(listed):
            composer.rewrite(without_mention(composer.text, listed[place].image.name))
