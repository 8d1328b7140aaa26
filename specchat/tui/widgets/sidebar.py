"""The list of conversations, grouped by age, with a filter."""

from collections import Counter
from collections.abc import Sequence
from datetime import date
from time import localtime, strftime
from typing import ClassVar, Self

from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from specchat.chat.conversation import Conversation
from specchat.safe_text import in_one_line
from specchat.tui.widgets.grouped_list import GroupedList, has_words

GROUPS = {0: "Today", 1: "Yesterday", 6: "This week"}
"""The groups by their largest age in days; older conversations are in `OLDER`."""
OLDER = "Older"


class Sidebar(Vertical):
    """Conversations, newest first; the filter and the list are made when it is first filled."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+c", "leave", "Back"),
        Binding("r", "app.conversation('rename')", "Rename"),
        Binding("delete,d", "app.conversation('delete')", "Delete"),
        Binding("/", "app.focus('filter')", "Filter"),
        Binding("down", "app.focus('conversations')", show=False),
    ]

    def __init__(self) -> None:
        super().__init__(id="sidebar")
        self._conversations: Sequence[Conversation] = ()
        self._current: int | None = None

    def focus(self, scroll_visible: bool = True) -> Self:
        """Focus the list."""
        self.query_one(OptionList).focus(scroll_visible)
        return self

    def fill(self, conversations: Sequence[Conversation], current: int | None) -> None:
        """Show conversations, and highlight the open one."""
        self._conversations, self._current = conversations, current
        if not self.children:
            self.mount(
                Static("Conversations", classes="heading", markup=False),
                Input(placeholder="/ filter", compact=True, id="filter"),
                GroupedList(markup=False, compact=True, id="conversations"),
            )
        self._show()

    def on_input_changed(self) -> None:
        """Narrow the list."""
        self._show()

    def on_input_submitted(self) -> None:
        """Move the focus from the filter to the list."""
        self.focus()

    @property
    def marked(self) -> int | None:
        """The number of the highlighted conversation."""
        option = self.query_one(OptionList).highlighted_option
        return int(str(option.id)) if option is not None else None

    async def on_option_list_option_selected(self, event: OptionList.OptionSelected) -> None:
        """Open the selected conversation."""
        event.stop()
        await self.run_action("app.conversation('open')")

    async def action_leave(self) -> None:
        """Clear the filter, or return to the composer."""
        field = self.query_one(Input)
        if field.value:
            field.value = ""
            self.focus()
        else:
            await self.run_action("app.leave")

    def on_resize(self) -> None:
        """Show the times where there is room for them."""
        if self.children:
            self._show()

    def _dates(self, titles: Counter[str], conversation: Conversation) -> bool:
        """Return True where a conversation's time is shown: if there is room, or it needs one."""
        return self.has_class("-over") or titles[conversation.title] > 1

    def _show(self) -> None:
        words = self.query_one(Input).value
        found = [
            conversation
            for conversation in self._conversations
            if has_words(conversation.title, words)
        ]
        titles = Counter(each.title for each in found)
        lines = [
            (_group(each.changed), Option(_line(each, self._dates(titles, each)), id=str(each.id)))
            for each in found
        ]
        self.query_one(GroupedList).fill(lines, str(self._current), words=words)


def _line(conversation: Conversation, is_dated: bool) -> str:
    """Return a conversation's title, with the time of the last change if wanted."""
    title = in_one_line(conversation.title) or "(empty)"
    return f"{when(conversation.changed)} {title}" if is_dated else title


def _group(moment: float) -> str:
    age = _days_since(moment)
    return next((name for days, name in GROUPS.items() if age <= days), OLDER)


def _days_since(moment: float) -> int:
    """Return the number of midnights since a moment."""
    return (date.today() - date.fromtimestamp(moment)).days  # noqa: DTZ011, DTZ012  # local time


def when(moment: float) -> str:
    """Return a moment as text: the time for today and yesterday, else the date."""
    form = {0: "%H:%M", 1: "yesterday %H:%M"}.get(_days_since(moment), "%d %b %Y")
    return strftime(form, localtime(moment))
