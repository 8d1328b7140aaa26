"""The strip above the composer: what speculation brings, in rows that do not move."""

from typing import ClassVar

from textual.content import Content
from textual.widgets import Static

from specchat.tui.commands import KeyOf
from specchat.tui.texts.figures import Figures
from specchat.tui.texts.strip_text import strip_rows, strip_rule


class Strip(Static):
    """Two rows of figures, with a rule above them where the screen is high enough."""

    FEW_ROWS: ClassVar = 24
    """On screens with fewer rows, the rule is left out."""

    def __init__(self, key_of: KeyOf) -> None:
        """Start empty; `key_of` returns the keys in effect."""
        super().__init__(id="strip", markup=False)
        self._key_of = key_of
        self._shown: tuple[Figures, str] | None = None

    def show(self, figures: Figures, advice: str = "") -> None:
        """Show the figures of an answer, and advice in the last row, unless the strip is hidden."""
        self._shown = figures, advice
        width = self.content_size.width
        if not self.display or width <= 0:  # `on_resize` shows them after the layout
            return
        rows = [*strip_rows(figures, width, advice)]
        if self.app.size.height >= self.FEW_ROWS:
            rows.insert(0, strip_rule(self.size.width, self._key_of))
        text = Content("\n").join(rows)
        if not isinstance(self.content, Content) or not text.is_same(self.content):
            self.update(text, layout=False)

    def on_resize(self) -> None:
        """Fit the new size."""
        if self._shown is not None:
            self.show(*self._shown)
