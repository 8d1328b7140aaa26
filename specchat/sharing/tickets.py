"""Requests to a shared engine, and how their clients follow them."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from time import monotonic

from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.errors import SpecchatError
from specchat.requests.answer_request import AnswerRequest


class QueueFull(SpecchatError):
    """Raised when too many requests are waiting; trying again later may work."""


@dataclass(frozen=True, slots=True)
class Update:
    """What is new of a request since the last look.

    `place` counts the answers before it, 0 once it is being answered; `share` is how much of its
    prompt is read. `chunks` are the new steps, `statistics` those of all steps so far. `is_over`
    comes with the `finish`, or with the `error` it failed with.
    """

    place: int
    share: float
    chunks: tuple[Chunk, ...]
    statistics: Statistics
    is_over: bool = False
    finish: Finish | None = None
    error: SpecchatError | None = None


class Ticket:
    """A request to a shared engine. `take` may be called from any thread, and so may `cancel`."""

    def __init__(
        self, request: AnswerRequest, client: str, on_change: Callable[[], None], *, number: int = 0
    ) -> None:
        """Make the ticket of a request; `on_change` is called on the engine's thread."""
        self.number, self.client, self.request = number, client, request
        self.place = 0
        self.share = 0.0
        self.begun: list[Chunk] = []
        self.may_be_interrupted = True
        self._earlier, self._latest = Statistics(), Statistics()
        self.is_cancelled = self.is_over = False
        self.queued_at = monotonic()
        self.waited_s = 0.0
        self.idle_since = self.queued_at
        self.num_turns = 0
        self._on_change = on_change
        self._finish: Finish | None = None
        self._error: SpecchatError | None = None
        self._chunks: list[Chunk] = []
        self._is_announced = False
        self._lock = threading.Lock()

    def take(self) -> Update:
        """Return what is new, and forget it."""
        with self._lock:
            chunks, self._chunks = tuple(self._chunks), []
            self._is_announced = False
            return Update(
                self.place, self.share, chunks, self.statistics,
                self.is_over, self._finish, self._error,
            )  # fmt: skip

    def cancel(self) -> None:
        """Give the request up; an answer in progress ends within a step."""
        self.is_cancelled = True
        self.on_cancel()

    def on_cancel(self) -> None:
        """Called when the request is given up; set by the engine that has it."""

    def report(self, place: int, share: float) -> None:
        """Note its place in the queue and how much of its prompt is read."""
        if (place, share) != (self.place, self.share):
            self.place, self.share = place, share
            self._announce()

    @property
    def statistics(self) -> Statistics:
        """The statistics of all turns so far."""
        return self._earlier.joined(self._latest)

    def end_turn(self, statistics: Statistics) -> None:
        """Add the statistics of a turn that is over."""
        self._earlier, self._latest = self._earlier.joined(statistics), Statistics()

    def add(self, chunk: Chunk, statistics: Statistics) -> None:
        """Add a step."""
        with self._lock:
            self._chunks.append(chunk)
            self._latest = statistics
            self.begun.append(chunk)
        self._announce()

    def end(self, finish: Finish | None, error: SpecchatError | None = None) -> None:
        """End the request."""
        with self._lock:
            self.is_over, self._finish, self._error = True, finish, error
            self._is_announced = False
        self._announce()

    def _announce(self) -> None:
        """Call `on_change` once until the next look."""
        with self._lock:
            is_due, self._is_announced = not self._is_announced, True
        if is_due:
            self._on_change()
