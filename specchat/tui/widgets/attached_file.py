"""A file that went with a question, as it is shown below it."""

from __future__ import annotations

from specchat.chat.attachments import Attachment
from specchat.chat.safe_text import harmless
from specchat.tui.figures import in_bytes
from specchat.tui.widgets.message_views import Fold
from specchat.tui.widgets.typesetter import Typesetter

__all__ = ["AttachedView"]

MOST_SHOWN = 20_000
"""Characters of a file that are shown when it is opened: nobody reads a book in a chat."""


class AttachedView(Fold):
    """A file's name and size, and behind them what is in it."""

    DEFAULT_CSS = """
    AttachedView { display: block; margin-bottom: 0; }
    """

    def __init__(self, typesetter: Typesetter, attachment: Attachment) -> None:
        """Start closed: the file is not looked at before it is opened."""
        super().__init__(typesetter, is_open=False)
        self._attachment = attachment
        self._is_read = False

    def on_mount(self) -> None:
        """Say what it is."""
        size = in_bytes(len(self._attachment.content.encode()))
        self.say(f"{harmless(self._attachment.name)} · {size}")

    def toggle(self) -> None:
        """Open or close it."""
        if not self._is_read:
            self._is_read = True
            content = self._attachment.content
            rest = len(content) - MOST_SHOWN
            more = f"\n… and {rest} characters more" if rest > 0 else ""
            self.prose.append_tokens([(content[:MOST_SHOWN] + more, "target")])
        super().toggle()
