"""Requests to a shared engine, and how their clients follow them."""

import threading
from collections.abc import Callable, Sequence
from time import monotonic
from typing import TypeAlias

from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import EngineFacts
from specchat.errors import SpecchatError
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update
from specchat.requests.progress import Progress

RequestSource: TypeAlias = AnswerRequest | Callable[[EngineFacts], AnswerRequest]
"""A request, or a function that makes it once the engine is loaded and its facts are known."""


class QueueFull(SpecchatError):
    """Raised when too many requests are waiting; trying again later may work."""


class Ticket:
    """A request to a shared engine. `take` may be called from any thread, and so may `cancel`."""

    def __init__(
        self,
        asked: RequestSource,
        client: str,
        on_change: Callable[[], None],
        *,
        is_timed: bool = False,
        measures_first: bool = False,
        is_served: bool = False,
    ) -> None:
        """Make the ticket of a request, to submit; `on_change` is called on any thread.

        With `is_timed` the answer is compared with another: no other answer interrupts it. With
        `measures_first` the pair is measured before it. One that `is_served` is for another
        program: what this one's own user asks goes first.
        """
        self.number, self.client, self.measures_first = 0, client, measures_first
        self.is_served = is_served
        self._asked = asked
        self.place = 0
        self.share_read = 0.0
        """How much of the prompt is read."""
        self.begun: list[Chunk] = []
        self.may_be_interrupted = not is_timed
        self._earlier, self._latest = Statistics(), Statistics()
        self.is_cancelled = self.is_over = False
        self.lacks_exactness = False
        """Whether a turn of it began without knowing which drafts repeat, which it must."""
        self.queued_at = monotonic()
        self.waited_s = 0.0
        self.idle_since = self.queued_at
        self.num_turns = 0
        self._before_s = 0.0
        """The seconds between its first turn and the present one."""
        self._on_change = on_change
        self._progress: Progress | None = None
        self._finish: Finish | None = None
        self._error: SpecchatError | None = None
        self._chunks: list[Chunk] = []
        self._is_announced = False
        self._lock = threading.Lock()

    def request(self, facts: EngineFacts) -> AnswerRequest:
        """Return the request to an engine of these facts. Raises InvalidOption."""
        if callable(self._asked):
            self._asked = self._asked(facts)
        return self._asked

    def take(self) -> Update:
        """Return what is new, and forget it."""
        with self._lock:
            chunks, self._chunks = tuple(self._chunks), []
            self._is_announced = False
            return Update(
                chunks, self.statistics, self._progress, self.place, self._finish, self._error
            )

    def cancel(self) -> None:
        """Give the request up; an answer in progress ends within a step."""
        self.is_cancelled = True
        self.on_cancel()

    def on_cancel(self) -> None:
        """Called when the request is given up; set by the engine that has it."""

    def set_place(self, place: int) -> None:
        """Note how many answers come before it."""
        if place != self.place:
            self.place = place
            self._announce()

    def report(self, progress: Progress) -> None:
        """Note how far the work is that precedes its first step; the same again shows time."""
        if progress.stage == "prompt":
            self.share_read = progress.share
        self._progress = progress
        self._announce()

    @property
    def statistics(self) -> Statistics:
        """The statistics of all turns so far; between turns those of the last one describe it."""
        if not self._latest.prompt_tokens and self._earlier.prompt_tokens:
            return self._earlier
        return self._earlier.joined(self._latest, self._before_s)

    def begin_turn(self) -> None:
        """Note that a turn begins."""
        seconds = monotonic() - self.queued_at
        if not self.num_turns:
            self.waited_s = seconds
        self._before_s = seconds - self.waited_s
        self.num_turns += 1

    def end_turn(self, statistics: Statistics) -> None:
        """Add the statistics of a turn that is over."""
        with self._lock:
            self._earlier = self._earlier.joined(statistics, self._before_s)
            self._latest = Statistics()

    def add(self, chunks: Sequence[Chunk], statistics: Statistics) -> None:
        """Add steps, with the statistics of this turn so far."""
        with self._lock:
            self._chunks += chunks
            self._latest = statistics
            self.begun += chunks
            self._progress = None
        self._announce()

    def end(self, finish: Finish | None, error: SpecchatError | None = None) -> None:
        """End the request; ending it again does nothing."""
        with self._lock:
            if self.is_over:
                return
            self.is_over, self._finish, self._error = True, finish, error
            self._is_announced = False
        self._announce()

    def _announce(self) -> None:
        """Wake the client once, until it takes what is new: it need not count the steps."""
        with self._lock:
            is_due, self._is_announced = not self._is_announced, True
        if is_due:
            self._on_change()
