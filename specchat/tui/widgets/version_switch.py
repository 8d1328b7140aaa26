"""The switch between versions of a message."""

from dataclasses import dataclass

from textual.events import Click
from textual.message import Message
from textual.widgets import Static


class Versions(Static):
    """Which version of a message this is; hidden if there is only one."""

    DEFAULT_CSS = """
    Versions { color: $text-muted; width: auto; padding-right: 1; display: none; }
    Versions:hover { color: $text-accent; }
    """

    @dataclass
    class Turned(Message):
        """The user wants the previous version (-1) or the next (1)."""

        step: int

    def __init__(self) -> None:
        """Start hidden."""
        super().__init__(markup=False)

    def say(self, number: int, total: int) -> None:
        """Show which version this is."""
        self.display = total > 1
        self.update(f"◂ {number}/{total} ▸")

    def on_click(self, event: Click) -> None:
        """Turn to the previous or next version, by the half that was clicked."""
        self.post_message(self.Turned(1 if event.x >= self.content_size.width / 2 else -1))
