"""Text behind a title that opens and closes it: reasoning, and attached files."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Click
from textual.widgets import Static

from specchat.chat.conversation import Attachment
from specchat.chat.safe_text import harmless
from specchat.drafter_registry import TARGET
from specchat.tui.figures import in_bytes
from specchat.tui.widgets.prose import Prose
from specchat.tui.widgets.typesetter import Typesetter

MAX_SHOWN = 20_000
"""Characters shown of an opened file."""


class Fold(Vertical):
    """A title that opens and closes the text below it; hidden until it has a title."""

    def __init__(self, typesetter: Typesetter, *, is_open: bool) -> None:
        """Start open or closed."""
        super().__init__()
        self.prose = Prose(typesetter)
        self.prose.display = is_open
        self._title = Static(classes="title", markup=False)
        self._words = ""

    def compose(self) -> ComposeResult:
        """Put the title above the text."""
        yield self._title
        yield self.prose

    def say(self, title: str) -> None:
        """Set the title."""
        self._words = title
        self.display = True
        shown = f"{'▾' if self.prose.display else '▸'} {title}"
        if self._title.content != shown:  # an update lays out the whole screen
            self._title.update(shown)

    def toggle(self) -> None:
        """Open or close it."""
        self.prose.display = not self.prose.display
        self.say(self._words)

    def on_click(self, event: Click) -> None:
        """Open or close it with a click on the title."""
        if event.widget is self._title:
            self.toggle()


class TextFold(Fold):
    """A title that opens a text, closed at first."""

    def __init__(self, typesetter: Typesetter, title: str, content: str) -> None:
        """Store the title and the text."""
        super().__init__(typesetter, is_open=False)
        self._first_title, self._content = title, content
        self._is_filled = False

    def on_mount(self) -> None:
        """Show the title."""
        self.say(self._first_title)

    def toggle(self) -> None:
        """Open or close it; the contents are laid out when it is first opened."""
        if not self._is_filled:
            self._is_filled = True
            content = self._content
            rest = len(content) - MAX_SHOWN
            more = f"\n… and {rest} more characters" if rest > 0 else ""
            self.prose.append_tokens([(content[:MAX_SHOWN] + more, TARGET.name)])
        super().toggle()


def attached_view(typesetter: Typesetter, attachment: Attachment) -> TextFold:
    """Return a file's name and size, which open its contents."""
    size = in_bytes(len(attachment.content.encode()))
    return TextFold(typesetter, f"{harmless(attachment.name)} · {size}", attachment.content)
