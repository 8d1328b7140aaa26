"""The line that explains the token colours while they are on."""

from rich.text import Text
from textual.widgets import Static

from specchat.drafter_registry import origins
from specchat.tui.widgets.typesetter import Typesetter


class Legend(Static):
    """Every origin of tokens in its own colour."""

    DEFAULT_CSS = "Legend { height: auto; padding: 0 2; display: none; }"

    def __init__(self) -> None:
        """Start hidden."""
        super().__init__(id="legend", markup=False)

    def restyle(self, typesetter: Typesetter) -> None:
        """Follow the theme."""
        self.update(
            Text("  ").join(
                [
                    *(Text(each.label, typesetter.origin_style(each.name)) for each in origins()),
                    Text(" F4: Markdown", "dim"),
                ]
            )
        )
