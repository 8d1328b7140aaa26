"""The line at the top of the chat: a click on one of its parts runs a command."""

from textual.events import Click
from textual.widgets import Static

COMMAND = "command"
"""The key of the command in the style of a part; Textual's own links have a colour of their own."""


class HeaderLine(Static):
    """Text whose parts name a command in their style."""

    def __init__(self) -> None:
        super().__init__(id="header", markup=False)

    async def on_click(self, event: Click) -> None:
        """Run the command of the part."""
        if command := event.style.meta.get(COMMAND):
            await self.run_action(f"app.{command}")
