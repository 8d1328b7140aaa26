"""The conversation on the screen: its newest messages, and older ones as the reader asks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.geometry import Size
from textual.reactive import Reactive
from textual.widgets import Static

from specchat.tui.typesetter import Typesetter
from specchat.tui.views import AnswerView, MessageView, Plain

__all__ = ["Transcript"]

NUM_AT_ONCE = 30
"""Messages that are put on the screen together; more would only wait above it."""

MOST_AT_ONCE = 3 * NUM_AT_ONCE
"""With more than that, new messages take the oldest off the screen."""

MakeView = Callable[[], MessageView]


class Transcript(VerticalScroll, can_focus=False):
    """A column of messages that follows the newest unless the reader went up."""

    DEFAULT_CSS = """
    Transcript { height: 1fr; scrollbar-size-vertical: 1; overflow-y: scroll; }
    Transcript > .messages { height: auto; min-height: 100%; padding: 1 1 0 1; }
    Transcript .older { color: $text-muted; text-align: center; width: 1fr; display: none; }
    Transcript .older:hover { color: $text-accent; }
    """

    virtual_size = Reactive(Size(0, 0), layout=False)  # as in Prose; the scrollbar is always there

    def __init__(self) -> None:
        """Start empty."""
        super().__init__()
        self.make_again: Callable[[int], MessageView] | None = None
        """Makes the view of a message by its number, once it was taken off the screen."""
        self._waiting: list[MakeView] = []
        self._older = Static("", classes="older", markup=False)
        self._messages = Plain(self._older, classes="messages")

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

    async def show(self, makers: Sequence[MakeView]) -> None:
        """Show another conversation, given by how to make the view of each message."""
        await self._messages.remove_children(MessageView)
        self._waiting = list(makers)
        await self._show_older()
        self.anchor()
        self.scroll_end(animate=False)

    async def add(self, view: MessageView) -> None:
        """Add a message at the end."""
        await self._messages.mount(view)
        await self._take_off_oldest()
        self.anchor()

    async def reveal(self, message: int) -> MessageView | None:
        """Scroll to a message, older ones than are shown included; None where it is not there."""
        found = self._view(message)
        while found is None and self._waiting:
            await self._show_older()
            found = self._view(message)
        if found is not None:
            self.release_anchor()
            view = found
            self.call_after_refresh(lambda: self.scroll_to_widget(view, animate=False, top=True))
        return found

    def _view(self, message: int) -> MessageView | None:
        return next((view for view in self.views if view.message_id == message), None)

    async def _take_off_oldest(self) -> None:
        """Hold no more and more of them: what is taken off waits above, as older ones do."""
        views = self.views
        if len(views) <= MOST_AT_ONCE or self.make_again is None:
            return
        taken = views[:-NUM_AT_ONCE]
        numbers = [view.message_id for view in taken]
        self._waiting += [partial(self.make_again, each) for each in numbers if each is not None]
        await self._messages.remove_children(taken)
        self._say_older()

    async def remove_from(self, view: MessageView) -> None:
        """Take a message and all after it off the screen."""
        views = self.views
        await self._messages.remove_children(views[views.index(view) :])

    def restyle(self, typesetter: Typesetter) -> None:
        """Show everything in other colours."""
        for view in self.views:
            view.restyle(typesetter)

    def show_origins(self, shows: bool) -> None:
        """Colour the tokens of all answers, or show their Markdown."""
        for view in self.query(AnswerView):
            view.show_origins(shows)

    async def on_click(self, event: Any) -> None:
        """Show older messages where the reader asks for them."""
        if event.widget is self._older:
            await self._show_older()

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Show older messages when the reader comes to the top."""
        super().watch_scroll_y(old_value, new_value)
        if new_value < 1 < old_value and self._waiting:
            self.call_later(self._show_older)

    async def _show_older(self) -> None:
        """Put the next messages above the others, and keep the reader's place."""
        makers, self._waiting = self._waiting[-NUM_AT_ONCE:], self._waiting[:-NUM_AT_ONCE]
        self._say_older()
        views = [make() for make in makers]
        if not views:
            return
        below = self.max_scroll_y - self.scroll_y
        await self._messages.mount(*views, after=self._older)
        self.call_after_refresh(lambda: self.scroll_to(y=self.max_scroll_y - below, animate=False))

    def _say_older(self) -> None:
        self._older.display = bool(self._waiting)
        self._older.update(f"▲ {len(self._waiting)} older messages")
