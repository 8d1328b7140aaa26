"""A file attached to a question, shown below it."""

from specchat.chat.attachments import Attachment
from specchat.chat.safe_text import harmless
from specchat.drafter_registry import TARGET
from specchat.tui.figures import in_bytes
from specchat.tui.widgets.fold import Fold
from specchat.tui.widgets.typesetter import Typesetter

MAX_SHOWN = 20_000
"""Characters shown of an opened file."""


class AttachedView(Fold):
    """A file's name and size, which open its contents."""

    DEFAULT_CSS = """
    AttachedView { display: block; margin-bottom: 0; }
    """

    def __init__(self, typesetter: Typesetter, attachment: Attachment) -> None:
        """Start closed."""
        super().__init__(typesetter, is_open=False)
        self._attachment = attachment
        self._is_filled = False

    def on_mount(self) -> None:
        """Show the name and the size."""
        size = in_bytes(len(self._attachment.content.encode()))
        self.say(f"{harmless(self._attachment.name)} · {size}")

    def toggle(self) -> None:
        """Open or close it; the contents are laid out when it is first opened."""
        if not self._is_filled:
            self._is_filled = True
            content = self._attachment.content
            rest = len(content) - MAX_SHOWN
            more = f"\n… and {rest} more characters" if rest > 0 else ""
            self.prose.append_tokens([(content[:MAX_SHOWN] + more, TARGET.name)])
        super().toggle()
