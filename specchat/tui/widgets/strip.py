"""The strip above the composer: what speculation brings, in one line."""

from textual.events import Click
from textual.widgets import Static

from specchat.tui.texts.figures import Figures
from specchat.tui.texts.strip_text import strip_line


class Strip(Static):
    """A line of figures, which opens the panel with all of them when it is clicked."""

    def __init__(self) -> None:
        super().__init__(id="strip", markup=False)
        self._shown: tuple[Figures, str] | None = None

    def show(self, figures: Figures, advice: str = "") -> None:
        """Show the figures of an answer, and advice, unless the strip is hidden."""
        self._shown = figures, advice
        width = self.content_size.width
        if not self.display or width <= 0:  # `on_resize` shows them after the layout
            return
        text = strip_line(figures, width, advice)
        if text != self.content:
            self.update(text, layout=False)

    def on_resize(self) -> None:
        """Fit the new size."""
        if self._shown is not None:
            self.show(*self._shown)

    async def on_click(self, event: Click) -> None:
        """Open the panel, unless the click was on a link."""
        if "@click" not in event.style.meta:
            await self.run_action("app.panel")
