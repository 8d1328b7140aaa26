"""What clients have asked for: the requests in progress, and what those that are over add up to.

The server's own thread writes it, and metrics and screens read it from any thread. It holds counts
and names, never texts.
"""

import threading
from bisect import bisect_left
from collections import Counter
from copy import deepcopy
from dataclasses import dataclass, field, replace
from itertools import accumulate
from math import hypot
from typing import Literal, TypeAlias

from specchat.decoding.chunk import Finish
from specchat.decoding.statistics import Statistics

Api: TypeAlias = Literal["chat", "text", "native", "responses", "messages", "check"]
"""The API that a request came by; "check" decodes an answer again to verify it."""
State: TypeAlias = Literal["waiting", "reading", "writing", "over"]

SECONDS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
"""The upper bounds of the buckets of times."""


@dataclass(slots=True)
class ServedRequest:
    """A request as a screen shows it, and as metrics count it once it is over.

    `notices` say what of it the server could not follow. `waited_s` is how long it waited for its
    first turn. The texts are never kept.
    """

    number: int
    client: str
    api: Api
    model: str
    began: float
    state: State = "waiting"
    place: int = 0
    share: float = 0.0
    waited_s: float = 0.0
    statistics: Statistics = field(default_factory=Statistics)
    finish: Finish | Literal["failed"] | None = None
    error: str = ""
    notices: tuple[str, ...] = ()


@dataclass(slots=True)
class Times:
    """Seconds, counted in buckets as Prometheus has them."""

    total: float = 0.0
    counts: list[int] = field(default_factory=lambda: [0] * (len(SECONDS) + 1))

    def add(self, seconds: float) -> None:
        """Count a time, unless it is 0; one that equals a bound belongs below it."""
        if not seconds:
            return
        self.total += seconds
        self.counts[bisect_left(SECONDS, seconds)] += 1

    def cumulative(self) -> list[tuple[str, int]]:
        """Return how many times are within each bound, the last of which is "+Inf"."""
        bounds = (*map(str, SECONDS), "+Inf")
        return list(zip(bounds, accumulate(self.counts), strict=True))


@dataclass(slots=True)
class Totals:
    """What the requests that are over add up to.

    `finishes` counts them by API and by how they ended, `sums` has their counts and seconds.
    `plain_s` and `own_s` are what plain decoding would have taken, and what decoding took, of those
    answers whose gain is sound, and `error_s` is the standard error of the former.
    """

    finishes: Counter[tuple[str, str]] = field(default_factory=Counter)
    sums: Statistics = field(default_factory=Statistics)
    plain_s: float = 0.0
    own_s: float = 0.0
    error_s: float = 0.0
    first_token: Times = field(default_factory=Times)
    queue: Times = field(default_factory=Times)
    prompt: Times = field(default_factory=Times)
    decode: Times = field(default_factory=Times)

    @property
    def num_requests(self) -> int:
        """The requests that are over."""
        return self.finishes.total()

    @property
    def answers_per_pass(self) -> float:
        """How many answers share a pass on average; 0.0 if there was none."""
        return self.sums.steps / self.sums.passes if self.sums.passes else 0.0

    @property
    def rows_per_pass(self) -> float:
        """How many tokens a pass reads on average; 0.0 if there was none."""
        return self.sums.rows / self.sums.passes if self.sums.passes else 0.0

    @property
    def joint_gain(self) -> float:
        """How much faster shared passes were than one by one; 0.0 if that is not known."""
        return self.sums.apart_s / self.sums.joint_s if self.sums.joint_s else 0.0

    @property
    def speedup(self) -> float:
        """The speedup over plain decoding; 0.0 if no answer has a sound one."""
        return self.plain_s / self.own_s if self.own_s else 0.0

    @property
    def speedup_error(self) -> float:
        """The relative standard error of the speedup."""
        return self.error_s / self.plain_s if self.plain_s else 0.0

    @property
    def saved_s(self) -> float:
        """Seconds saved, below 0 if lost."""
        return self.plain_s - self.own_s

    def add(self, request: ServedRequest) -> None:
        """Add a request that is over."""
        statistics = request.statistics
        self.finishes[request.api, request.finish or "cancelled"] += 1
        self.sums = self.sums.plus(statistics)
        gain = statistics.gain
        if gain.is_sound:
            self.plain_s += gain.plain_s
            self.own_s += gain.own_s
            self.error_s = hypot(self.error_s, gain.plain_s * gain.error)
        self.queue.add(request.waited_s)
        self.prompt.add(statistics.until_first_step_s)
        self.decode.add(statistics.later_steps_s)
        if statistics.generated_tokens:
            self.first_token.add(request.waited_s + statistics.time_to_first_token_s)


class Activity:
    """Follows the requests of a service."""

    def __init__(self) -> None:
        """Begin with no request."""
        self._lock = threading.Lock()
        self._live: dict[int, ServedRequest] = {}
        self._totals: dict[str, Totals] = {}
        self._all = Totals()
        self.num_refused = 0
        """The requests refused because too many were sent, read or waiting."""

    def observe(self, request: ServedRequest) -> None:
        """Follow a request; once it is over, it counts."""
        with self._lock:
            if request.state != "over":
                self._live[request.number] = replace(request)
                return
            self._live.pop(request.number, None)
            self._totals.setdefault(request.model, Totals()).add(request)
            self._all.add(request)

    def live(self) -> tuple[ServedRequest, ...]:
        """Return the requests in progress, the oldest first."""
        with self._lock:
            return tuple(self._live[number] for number in sorted(self._live))

    def totals(self) -> Totals:
        """Return what all requests that are over add up to."""
        with self._lock:
            return deepcopy(self._all)

    def totals_by_model(self) -> dict[str, Totals]:
        """Return what the requests that are over add up to, by the model's name."""
        with self._lock:
            return deepcopy(self._totals)
