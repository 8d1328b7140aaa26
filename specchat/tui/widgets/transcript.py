"""The conversation on the screen: its newest messages, and older ones as the reader asks."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Static

from specchat.tui.widgets.message_views import AnswerView, MessageView, Plain
from specchat.tui.widgets.typesetter import Typesetter

__all__ = ["Transcript"]

NUM_AT_ONCE = 30
"""Messages that are put on the screen together; more would only wait beyond its edges."""

MOST_AT_ONCE = 3 * NUM_AT_ONCE
"""With more than that, new messages take the oldest off the screen."""


class _Edge(Static):
    """Where a part of the conversation ends: says how many messages are beyond, and shows some."""

    DEFAULT_CSS = """
    _Edge { color: $text-muted; text-align: center; width: 1fr; display: none; }
    _Edge:hover { color: $text-accent; }
    """

    def __init__(self, show_more: Callable[[], Awaitable[None]]) -> None:
        """Take what shows more of them."""
        super().__init__("", markup=False)
        self._show_more = show_more

    async def on_click(self) -> None:
        """Show more messages."""
        await self._show_more()

    def say(self, num_waiting: int, words: str) -> None:
        """Tell how many messages wait; be unseen where none does."""
        self.display = num_waiting > 0
        self.update(words.format(num_waiting))


class Transcript(VerticalScroll, can_focus=False):
    """A column of messages that follows the newest unless the reader went up.

    Of a long conversation a part is on the screen. What is before and after it waits by its
    numbers, and is shown when the reader comes to that edge.
    """

    DEFAULT_CSS = """
    Transcript { height: 1fr; scrollbar-size-vertical: 1; overflow-y: scroll; }
    Transcript > .messages { height: auto; min-height: 100%; padding: 1 1 0 1; }
    """

    virtual_size = Reactive(Size(0, 0), layout=False)  # as in Prose; the scrollbar is always there

    def __init__(self, make: Callable[[int], MessageView]) -> None:
        """Start empty; `make` returns a view of the message of that number."""
        super().__init__()
        self._make = make
        self._older: list[int] = []
        self._newer: list[int] = []
        self._above, self._below = _Edge(self._show_older), _Edge(self._show_newer)
        self._messages = Plain(self._above, self._below, classes="messages")

    def compose(self) -> ComposeResult:
        """Put the messages into a column that fills the screen: a short one begins at the top."""
        yield self._messages

    def on_mount(self) -> None:
        """Follow the newest message."""
        self.anchor()

    @property
    def views(self) -> list[MessageView]:
        """The messages on the screen, oldest first."""
        return list(self.query(MessageView))

    async def show(self, numbers: Sequence[int]) -> None:
        """Show another conversation, at its end, given by the numbers of its messages."""
        await self._show_part(numbers, max(0, len(numbers) - NUM_AT_ONCE))
        self.anchor()
        self.scroll_end(animate=False)

    async def add(self, view: MessageView) -> None:
        """Add a message at the end."""
        await self.show_end()
        await self._messages.mount(view, before=self._below)
        await self._take_off_oldest()
        self.anchor()

    async def show_end(self) -> None:
        """Have the newest messages on the screen, if they are not."""
        if self._newer:
            await self.show(self._numbers)

    async def reveal(self, message: int) -> MessageView | None:
        """Scroll to a message, wherever it is; None where it is not there."""
        found = self._view(message)
        if found is None and message in (numbers := self._numbers):
            place = numbers.index(message)
            last_first = max(0, len(numbers) - NUM_AT_ONCE)
            await self._show_part(numbers, min(max(0, place - NUM_AT_ONCE // 2), last_first))
            found = self._view(message)
        if found is not None:
            self._stay()
            view = found
            self.call_after_refresh(lambda: self.scroll_to_widget(view, animate=False, top=True))
        return found

    @property
    def _numbers(self) -> list[int]:
        """All messages of the conversation, on the screen or not."""
        shown = [view.message_id for view in self.views if view.message_id is not None]
        return [*self._older, *shown, *self._newer]

    async def _show_part(self, numbers: Sequence[int], first: int) -> None:
        """Put the messages from a place on upon the screen, and no others."""
        last = first + NUM_AT_ONCE
        self._older, self._newer = list(numbers[:first]), list(numbers[last:])
        await self._messages.remove_children(MessageView)
        views = [self._make(number) for number in numbers[first:last]]
        await self._messages.mount(*views, before=self._below)
        self._say_more()

    def _stay(self) -> None:
        """Follow the newest message only where it is on the screen, and the reader goes there."""
        self.anchor(not self._newer)
        self.release_anchor()

    def _view(self, message: int) -> MessageView | None:
        return next((view for view in self.views if view.message_id == message), None)

    async def _take_off_oldest(self) -> None:
        """Hold no more and more of them: what is taken off waits above, as older ones do."""
        views = self.views
        if len(views) <= MOST_AT_ONCE:
            return
        taken = views[:-NUM_AT_ONCE]
        self._older += [view.message_id for view in taken if view.message_id is not None]
        await self._messages.remove_children(taken)
        self._say_more()

    def restyle(self, typesetter: Typesetter) -> None:
        """Show everything in other colours."""
        for view in self.views:
            view.restyle(typesetter)

    def show_origins(self, shows: bool) -> None:
        """Colour the tokens of all answers, or show their Markdown."""
        for view in self.query(AnswerView):
            view.show_origins(shows)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Show more messages when the reader comes to the top or to the end."""
        super().watch_scroll_y(old_value, new_value)
        if new_value < 1 < old_value and self._older:
            self.call_later(self._show_older)
        elif old_value < self.max_scroll_y <= new_value and self._newer:
            self.call_later(self._show_newer)

    async def _show_older(self) -> None:
        """Put the next messages above the others, and keep the reader's place."""
        numbers, self._older = self._older[-NUM_AT_ONCE:], self._older[:-NUM_AT_ONCE]
        if not numbers:
            return
        below = self.max_scroll_y - self.scroll_y
        views = [self._make(number) for number in numbers]
        await self._messages.mount(*views, after=self._above)
        self._say_more()
        self.call_after_refresh(lambda: self.scroll_to(y=self.max_scroll_y - below, animate=False))

    async def _show_newer(self) -> None:
        """Put the next messages below the others."""
        numbers, self._newer = self._newer[:NUM_AT_ONCE], self._newer[NUM_AT_ONCE:]
        views = [self._make(number) for number in numbers]
        if views:
            await self._messages.mount(*views, before=self._below)
            self._say_more()
            self._stay()

    def _say_more(self) -> None:
        self._above.say(len(self._older), "▲ {} older messages")
        self._below.say(len(self._newer), "▼ {} newer messages")
