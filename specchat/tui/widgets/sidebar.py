"""The list of conversations."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from time import localtime, strftime
from typing import ClassVar, Literal

from rich.text import Text
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.widgets import OptionList
from textual.widgets.option_list import Option

from specchat.chat.conversation import Conversation
from specchat.chat.safe_text import harmless


class Sidebar(OptionList):
    """Conversations, newest first."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("delete,d", "delete", "Delete"),
        Binding("escape", "app.leave", "Back", show=False),
    ]

    @dataclass
    class Asked(Message):
        """The user opens or deletes a conversation."""

        action: Literal["open", "delete"]
        conversation: int

    def fill(self, conversations: Sequence[Conversation], current: int | None) -> None:
        """Show conversations, and highlight the open one."""
        self.clear_options()
        for each in conversations:
            text = Text(harmless(each.title) or "(empty)")
            text.append(f"\n{when(each.changed)}", "dim")
            self.add_option(Option(text, id=str(each.id)))
        numbers = [each.id for each in conversations]
        first = 0 if numbers else None
        self.highlighted = numbers.index(current) if current in numbers else first

    def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the selected conversation."""
        event.stop()
        self.post_message(self.Asked("open", int(event.option.id or 0)))

    def action_delete(self) -> None:
        """Delete the highlighted conversation."""
        if self.highlighted_option is not None:
            self.post_message(self.Asked("delete", int(self.highlighted_option.id or 0)))


def when(moment: float) -> str:
    """Return the time of a moment today or yesterday, the date of an earlier one."""
    then, today = localtime(moment), date.today()  # noqa: DTZ011  # as on the user's clock
    day = date(then.tm_year, then.tm_mon, then.tm_mday)
    if day == today:
        return strftime("%H:%M", then)
    is_yesterday = (today - day).days == 1
    return strftime("yesterday %H:%M" if is_yesterday else "%d %b %Y", then)
