"""A line of text that runs a command of the chat when it is clicked."""

from textual.widgets import Static


class ClickLine(Static):
    """A clickable line, empty until it is updated."""

    def __init__(self, command: str, name: str) -> None:
        super().__init__(id=name, markup=False)
        self.command = command

    async def on_click(self) -> None:
        """Run the command."""
        await self.run_action(f"app.{self.command}")
