"""The conversation on the screen: its newest messages, and older ones on scrolling to them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from textual.containers import Vertical, VerticalScroll
from textual.events import Click
from textual.message import Message
from textual.widgets import Static

from specchat.tui.markdown.prose import virtual_size_alone
from specchat.tui.widgets.fold import Fold
from specchat.tui.widgets.message_views import MessageView, render_alike

NUM_AT_ONCE = 30
"""The number of messages mounted at a time, enough to fill the screen."""

MAX_MOUNTED = 3 * NUM_AT_ONCE
"""When more messages than this are mounted, adding one unmounts the oldest."""


class _Column(Vertical):
    """The messages, starting at the top of the screen even if there are few."""

    render_lines = render_alike
    virtual_size = virtual_size_alone()


class Transcript(VerticalScroll, can_focus=False):
    """A column of messages that follows the newest unless the reader scrolls up.

    Only part of a long conversation is mounted. For the messages before and after it only their
    numbers are kept; they are mounted when the reader scrolls to that edge.
    """

    render_lines = render_alike
    virtual_size = virtual_size_alone()

    @dataclass
    class Behind(Message):
        """The reader has scrolled away from the newest message, or back to it."""

        is_behind: bool

    def __init__(self, make: Callable[[int], MessageView]) -> None:
        """Start empty; `make` returns a view of the message with a given number."""
        self._above = Static(classes="edge", markup=False)
        self._below = Static(classes="edge", markup=False)
        self._messages = _Column(self._above, self._below)
        super().__init__(self._messages)
        self._make = make
        self._is_behind = False
        self._older: list[int] = []
        self._newer: list[int] = []

    def on_mount(self) -> None:
        """Follow the newest message."""
        self.anchor()

    async def on_click(self, event: Click) -> None:
        """Show more messages when the line that counts them is clicked."""
        place = event.screen_x, event.screen_y
        if self._above.region.contains(*place):
            await self._show_older()
        elif self._below.region.contains(*place):
            await self._show_newer()

    @property
    def views(self) -> list[MessageView]:
        """The mounted messages, oldest first."""
        return list(self.query(MessageView))

    async def show(self, numbers: Sequence[int]) -> None:
        """Show the end of a conversation, given the numbers of its messages."""
        await self._show_part(numbers, max(0, len(numbers) - NUM_AT_ONCE))
        self.anchor()
        self.scroll_end(animate=False)

    async def add(self, view: MessageView) -> None:
        """Add a message at the end."""
        await self.show_end()
        await self._messages.mount(view, before=self._below)
        await self._unmount_oldest()
        self.anchor()

    async def show_end(self) -> None:
        """Mount the newest messages unless they are mounted."""
        if self._newer:
            await self.show(self._numbers)

    async def follow(self) -> None:
        """Scroll to the newest message, and follow it."""
        await self.show_end()
        self.anchor()
        self.scroll_end(animate=False)

    async def reveal(self, message: int) -> MessageView | None:
        """Scroll to a message and return its view; None if it is not in the conversation."""
        found = self.view_of(message)
        if found is None and message in (numbers := self._numbers):
            place = numbers.index(message)
            last_first = max(0, len(numbers) - NUM_AT_ONCE)
            await self._show_part(numbers, min(max(0, place - NUM_AT_ONCE // 2), last_first))
            found = self.view_of(message)
        if found is not None:
            self._stop_following()
            self.call_after_refresh(self.scroll_to_widget, found, animate=False, top=True)
        return found

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Show more messages when the reader scrolls to either end."""
        super().watch_scroll_y(old_value, new_value)
        is_behind = self.max_scroll_y - new_value >= 1
        if is_behind != self._is_behind:
            self._is_behind = is_behind
            self.post_message(self.Behind(is_behind))
        if new_value < 1 < old_value and self._older:
            self.call_later(self._show_older)
        elif old_value < self.max_scroll_y <= new_value and self._newer:
            self.call_later(self._show_newer)

    @property
    def _numbers(self) -> list[int]:
        """The numbers of all messages of the conversation, mounted or not."""
        return [*self._older, *(view.message_id for view in self.views), *self._newer]

    async def _show_part(self, numbers: Sequence[int], first: int) -> None:
        """Mount the messages from index `first` on, and unmount all others."""
        last = first + NUM_AT_ONCE
        self._older, self._newer = list(numbers[:first]), list(numbers[last:])
        await self._messages.remove_children(MessageView)
        await self._mount(numbers[first:last])

    def _stop_following(self) -> None:
        """Stop following the newest message, until it is mounted and the reader scrolls to it."""
        self.anchor(not self._newer)
        self.release_anchor()

    def on_fold_opened(self, message: Fold.Opened) -> None:
        """Scroll to the beginning of the opened fold."""
        self._stop_following()
        self.call_after_refresh(self.scroll_to_widget, message.fold, animate=False, top=True)

    def view_of(self, message: int) -> MessageView | None:
        """Return the view of a message; None if it is not mounted."""
        return next((view for view in self.views if view.message_id == message), None)

    async def _unmount_oldest(self) -> None:
        views = self.views
        if len(views) > MAX_MOUNTED:
            oldest = views[:-NUM_AT_ONCE]
            self._older += [view.message_id for view in oldest]
            await self._messages.remove_children(oldest)
            self._show_counts()

    async def _show_older(self) -> None:
        """Mount older messages without moving the visible ones."""
        numbers, self._older = self._older[-NUM_AT_ONCE:], self._older[:-NUM_AT_ONCE]
        if numbers:
            below = self.max_scroll_y - self.scroll_y
            await self._mount(numbers, at_top=True)
            self.call_after_refresh(
                lambda: self.scroll_to(y=self.max_scroll_y - below, animate=False)
            )

    async def _show_newer(self) -> None:
        numbers, self._newer = self._newer[:NUM_AT_ONCE], self._newer[NUM_AT_ONCE:]
        if numbers:
            await self._mount(numbers)
            self._stop_following()

    async def _mount(self, numbers: Sequence[int], *, at_top: bool = False) -> None:
        views = [self._make(number) for number in numbers]
        before, after = (None, self._above) if at_top else (self._below, None)
        await self._messages.mount(*views, before=before, after=after)
        self._show_counts()

    def _show_counts(self) -> None:
        """Show how many messages are not mounted, above and below."""
        self._above.update(f"▲ {len(self._older)} older messages")
        self._below.update(f"▼ {len(self._newer)} newer messages")
        self._above.display, self._below.display = bool(self._older), bool(self._newer)
