"""The list of conversations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from time import localtime, strftime, time
from typing import ClassVar

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.chat.conversation import Conversation
from specchat.chat.safe_text import harmless

__all__ = ["Sidebar"]

DAY = 24 * 3600


class Sidebar(OptionList):
    """Conversations, the newest first."""

    DEFAULT_CSS = """
    Sidebar { width: 30; border: none; border-right: solid $surface-lighten-2; display: none; }
    Sidebar:focus { border: none; border-right: solid $accent; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete,d", "delete", "Delete"),
        Binding("escape", "leave", "Back", show=False),
    ]

    @dataclass
    class Chosen(Message):
        """The user wants to go on with a conversation."""

        conversation: int

    @dataclass
    class Deleting(Message):
        """The user wants a conversation deleted."""

        conversation: int

    class Left(Message):
        """The user goes back to the composer."""

    def fill(self, conversations: Sequence[Conversation], current: int | None) -> None:
        """Show conversations, marking the one that is open."""
        self.clear_options()
        place = None
        for number, each in enumerate(conversations):
            text = Text(harmless(each.title) or "(empty)")
            text.append(f"\n{_when(each.changed)}", "dim")
            self.add_option(Option(text, id=str(each.id)))
            place = number if each.id == current else place
        self.highlighted = place

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the one that is chosen."""
        event.stop()
        self.post_message(self.Chosen(int(event.option.id or 0)))

    def action_delete(self) -> None:
        """Delete the one that is marked."""
        if self.highlighted is not None:
            number = self.get_option_at_index(self.highlighted).id
            self.post_message(self.Deleting(int(number or 0)))

    def action_leave(self) -> None:
        """Go back."""
        self.post_message(self.Left())


def _when(moment: float) -> str:
    """Return a moment as people say it."""
    is_recent = time() - moment < DAY
    return strftime("%H:%M" if is_recent else "%d %b %Y", localtime(moment))
