"""When the draft of a step is shown ahead of the answer: at a pace that the eye can follow."""

from collections.abc import Callable
from functools import partial
from time import monotonic

from specchat.decoding.chunk import Chunk
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.writing import Writing
from specchat.tui.texts.ghost_text import Ghost, after_verdict, before_verdict

HOLD = 0.25
"""Seconds for which a draft stands before the verdict."""
LINGER = 0.5
"""Seconds after which what was rejected disappears, if no new text has replaced it before."""
PERIOD = 2.0
"""The least seconds from one draft to the next. Each costs one drawing more: 1.4 ms of a quiet
core, so 0.01 ms a token at 70 tokens/s."""
CALM = 0.4
"""The least seconds since the text was last drawn: text that flows faster is not held up."""
LATE, MAX_LATE = 0.25, 3
"""Seconds by which the verdict may be late, and how often in a row: then the terminal is slow."""


class Ghosts:
    """Shows now and then what the last step drafted, then what the target made of it."""

    def __init__(self, view: ChatView) -> None:
        self.is_wanted: Callable[[], bool] = lambda: False
        """Whether the user wants to see drafts, and the terminal has colours."""
        self._view = view
        self._shown_at = 0.0
        self._num_late = 0

    def next(self, writing: Writing, step: Chunk, since: float) -> Ghost | None:
        """Return the draft to show with a step, and show the verdict later.

        `since` is the seconds since the text was last drawn. Once the terminal proved slow there
        is none any more.
        """
        now = monotonic()
        is_calm = since >= CALM and now - self._shown_at >= PERIOD
        if not is_calm or self._num_late >= MAX_LATE or not self.is_wanted():
            return None
        ghost = before_verdict(step)
        if ghost is not None:
            self._shown_at = now
            self._view.later(HOLD, partial(self._judge, writing, step, now + HOLD))
        return ghost

    def _judge(self, writing: Writing, step: Chunk, due: float) -> None:
        """Show the verdict on a draft if nothing newer is shown."""
        self._num_late = self._num_late + 1 if monotonic() - due > LATE else 0
        if _is_last(step, writing):
            writing.show(after_verdict(step))
            self._view.later(LINGER, partial(self._clear, writing, step))

    def _clear(self, writing: Writing, step: Chunk) -> None:
        if _is_last(step, writing):
            writing.show()


def _is_last(step: Chunk, writing: Writing) -> bool:
    """Return whether a step is the last one of an answer that goes on."""
    return writing.parts.is_growing and writing.steps[-1] is step
