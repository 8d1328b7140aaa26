"""Text behind a title that opens and closes it: reasoning, and attached files."""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.events import Click
from textual.widgets import Static

from specchat.tui.widgets.prose import Prose
from specchat.tui.widgets.typesetter import Typesetter


class Fold(Vertical):
    """A title that opens and closes the text below it; hidden until it has a title."""

    DEFAULT_CSS = """
    Fold { height: auto; display: none; margin-bottom: 1; }
    Fold > .fold--title { color: $text-muted; text-style: italic; width: auto; }
    Fold > .fold--title:hover { color: $text-accent; }
    Fold > Prose { color: $text-muted; border-left: solid $surface-lighten-2; padding-left: 1; }
    """

    def __init__(self, typesetter: Typesetter, *, is_open: bool) -> None:
        """Start open or closed."""
        super().__init__()
        self.prose = Prose(typesetter)
        self.prose.display = is_open
        self._title = Static(classes="fold--title", markup=False)
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
