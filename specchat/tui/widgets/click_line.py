"""A line of text that runs a command of the chat when it is clicked."""

from specchat.tui.widgets.facts_line import FactsLine


class ClickLine(FactsLine):
    """A clickable line, empty until it is updated."""

    def __init__(self, command: str, name: str) -> None:
        super().__init__(id=name, markup=False)
        self.command = command

    async def on_click(self) -> None:
        """Run the command."""
        await self.run_action(f"app.{self.command}")
