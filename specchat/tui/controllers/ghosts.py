"""When the draft of a step is shown ahead of the answer: at a pace that the eye can follow."""

from collections.abc import Callable
from functools import partial
from time import monotonic

from specchat.decoding.chunk import Chunk
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.writing import Writing
from specchat.tui.texts.ghost_text import Ghost, after_verdict, before_verdict

HOLD = 0.15
"""Seconds for which a draft stands before the verdict."""
SHOWN = 0.15
"""Seconds for which the verdict stands before newer text, which waits for both."""
LINGER = 0.5
"""Seconds after which what was rejected disappears, if no newer text has replaced it before."""
PERIOD = 4.0
"""The least seconds from one draft to the next: the text flows for most of them."""
LATE, MAX_LATE = 0.25, 3
"""Seconds by which the verdict may be late, and how often in a row: then the terminal is slow."""


class Ghosts:
    """Shows now and then what the last step drafted, then what the target made of it."""

    def __init__(self, view: ChatView) -> None:
        self.has_colours: Callable[[], bool] = lambda: False
        """Whether the terminal can tell drafts from text."""
        self._is_on = False
        self._view = view
        self._next_at = 0.0
        self._last: Writing | None = None
        """The answer that has the last draft, which stands until `_stands_until`."""
        self._stands_until = 0.0
        self._num_late = 0

    def turn(self, *, is_on: bool) -> None:
        """Turn drafts ahead of the text on or off, until the chat ends or the terminal is slow."""
        self._is_on, self._num_late, self._last = is_on, 0, None

    def toggle(self) -> None:
        """Turn them on if they are off, and say so, or why they are not shown either way."""
        if not self.has_colours():
            words = "Ghost drafts are not shown: without colours they would look like the answer."
            self._view.notify(words, severity="warning")
            return
        self.turn(is_on=not self._is_on)
        state = "on" if self._is_on else "off"
        self._view.notify(f"Ghost drafts are {state}; the setting screen.ghost keeps that.")

    def stands_until(self, writing: Writing) -> float:
        """Return when newer text of an answer may be drawn, on the monotonic clock.

        A draft in another answer holds nothing back here, nor does one out of sight.
        """
        is_here = writing is self._last and writing.display is not None
        return self._stands_until if is_here else 0.0

    def next(self, writing: Writing) -> Ghost | None:
        """Return the draft to show with the last step of an answer, and show the verdict later."""
        now = monotonic()
        is_seen = writing.display is not None and self.has_colours()
        if not self._is_on or now < self._next_at or not is_seen:
            return None
        step = writing.steps[-1]
        ghost = before_verdict(step, writing.parts.text)
        if ghost is not None:
            self._next_at, self._stands_until = now + PERIOD, now + HOLD + SHOWN
            self._last = writing
            self._view.later(HOLD, partial(self._judge, writing, step, now + HOLD))
        return ghost

    def _judge(self, writing: Writing, step: Chunk, due: float) -> None:
        """Show the verdict on a draft if nothing newer is shown."""
        self._num_late = self._num_late + 1 if monotonic() - due > LATE else 0
        if self._num_late >= MAX_LATE:
            self.turn(is_on=False)
            self._view.notify("Ghost drafts are off: this terminal draws them too late.")
        if _is_last(step, writing):
            writing.show(after_verdict(step))
            self._view.later(LINGER, partial(self._clear, writing, step))

    def _clear(self, writing: Writing, step: Chunk) -> None:
        if _is_last(step, writing):
            writing.show()


def _is_last(step: Chunk, writing: Writing) -> bool:
    """Return whether a step is the last one of an answer that goes on."""
    return writing.parts.is_growing and writing.steps[-1] is step
