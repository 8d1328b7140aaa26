"""Lines of facts, which are cut between two of them."""

from textual.app import RenderResult
from textual.content import Content
from textual.widgets import Static

from specchat.tui.texts.fitting import fitted


class FactsLine(Static):
    """Lines of facts, the most important first; those at the end that do not fit are left out.

    A style that wraps the lines shows all of them.
    """

    def render(self) -> RenderResult:
        """Return as much of each line as there is room for."""
        room = self.content_size.width
        if not room or self.styles.text_wrap == "wrap":
            return self.visual
        return Content("\n".join(fitted(line, room) for line in str(self.content).split("\n")))
