"""One quiet line above the composer that offers something; a click takes it up."""

from __future__ import annotations

from textual.widgets import Static

__all__ = ["Hint"]


class Hint(Static):
    """Unseen until there is something to offer."""

    DEFAULT_CSS = """
    Hint { height: auto; color: $text-muted; padding: 0 2; display: none; }
    Hint:hover { color: $text-accent; }
    """

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(markup=False)

    def say(self, words: str) -> None:
        """Offer something."""
        self.update(words)
        self.display = True

    async def on_click(self) -> None:
        """Show the pairs."""
        await self.run_action("app.models")
