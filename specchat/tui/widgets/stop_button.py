"""The button that shows that an answer is being written; a click on it stops the answer."""

from textual.widgets import Static


class StopButton(Static):
    """Empty while there is nothing to stop; its place is kept so that nothing moves."""

    DEFAULT_CSS = """
    StopButton { width: 12; text-align: right; color: $text-warning; background: $surface; }
    StopButton:hover { color: $text-error; }
    """

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(markup=False)

    def show(self, *, is_writing: bool) -> None:
        """Show the button, or clear it."""
        self.update("■ stop Esc " if is_writing else "", layout=False)

    async def on_click(self) -> None:
        """Stop the answer."""
        await self.run_action("app.stop")
