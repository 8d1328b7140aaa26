"""The sign of which of several versions a message is."""

from __future__ import annotations

from dataclasses import dataclass

from textual.events import Click
from textual.message import Message
from textual.widgets import Static

__all__ = ["Versions"]


class Versions(Static):
    """Unseen where there is one version; a click at either end asks for the one beside it."""

    DEFAULT_CSS = """
    Versions { color: $text-muted; width: auto; padding-right: 1; display: none; }
    Versions:hover { color: $text-accent; }
    """

    @dataclass
    class Turned(Message):
        """The reader wants the version before (-1), or the next (1)."""

        step: int

    def __init__(self) -> None:
        """Start unseen: most messages have one version."""
        super().__init__(markup=False)

    def say(self, number: int, total: int) -> None:
        """Tell which it is."""
        self.display = total > 1
        self.update(f"◂ {number}/{total} ▸")

    def on_click(self, event: Click) -> None:
        """Ask for another version."""
        self.post_message(self.Turned(1 if event.x >= self.content_size.width / 2 else -1))
