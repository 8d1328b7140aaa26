"""A quiet line above the composer that offers models; a click opens the models screen."""

from textual.widgets import Static


class HintLine(Static):
    """Hidden until it has something to offer."""

    DEFAULT_CSS = """
    HintLine { height: auto; color: $text-muted; padding: 0 2; display: none; }
    HintLine:hover { color: $text-accent; }
    """

    def __init__(self) -> None:
        """Start hidden."""
        super().__init__(markup=False)

    def say(self, words: str) -> None:
        """Show an offer."""
        self.update(words)
        self.display = True

    async def on_click(self) -> None:
        """Open the models screen."""
        await self.run_action("app.models")
