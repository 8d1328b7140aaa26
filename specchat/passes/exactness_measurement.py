"""Measures how exact a model's passes are, depth by depth; if it is stopped, it goes on from there.

Passes are compared at each depth, and timed at the first and the last. Each of these has a share of
the time, and what one leaves of its own is the next one's.
"""

from collections.abc import Callable
from time import perf_counter

from specchat.passes.exact_costs import TIMED_LENGTHS, costs_here, longest_cheap
from specchat.passes.exact_passes import (
    LONGEST_COMPARED,
    ComparedModel,
    InexactKernels,
    depths_of,
    fill,
    longest_here,
)
from specchat.passes.exactness import Exactness

MOST_SECONDS = {"auto": 2.0, "on": 15.0}
"""How long passes of a new model are compared: what is not reached is not drafted with "on". With
"auto" it only decides about kernels, so it must not take much of a machine's time."""
MOST_SECONDS_OF_COSTS = 4.0


class ExactnessMeasurement:
    """Compares passes over several tokens with single ones, and times exact kernels.

    With `exact` "auto", answers that need not repeat take exact kernels only where they are cheap.
    `earlier` is a result that lacked time. With `most_seconds`, passes are only compared, for no
    longer than that, and nothing is timed.
    """

    def __init__(
        self, exact: str, earlier: Exactness | None = None, *, most_seconds: float | None = None
    ) -> None:
        """Prepare to measure; nothing is known yet."""
        self._exact, self._earlier, self.most_seconds = exact, earlier, most_seconds
        bound = earlier.bound if earlier else LONGEST_COMPARED
        self._bound = self._longest = min(bound, LONGEST_COMPARED)
        self._costs: dict[int, float] | None = None
        self._num_done, self._spent = 0, 0.0  # of the parts, and of their seconds

    def run(
        self,
        model: ComparedModel,
        kernels: InexactKernels,
        on_share: Callable[[float], None] | None = None,
    ) -> Exactness:
        """Return the longest exact pass of a model, and what exact kernels cost.

        The memory is empty afterwards. `on_share` is called before each pass with the share of the
        work or time that is spent; an exception from it stops the measurement, and the next call
        goes on with the same depth.
        """
        self._kernels, depths, is_optional = kernels, depths_of(model), kernels.is_optional()
        limit = self.most_seconds
        seconds = MOST_SECONDS[self._exact] if limit is None else limit
        parts = [(self._compare, depth, seconds / len(depths)) for depth in depths]
        if is_optional and limit is None:
            ends = dict.fromkeys([*depths[:1], *depths[-1:]])
            parts += [(self._time, depth, MOST_SECONDS_OF_COSTS / len(ends)) for depth in ends]
        all_seconds, allowed = sum(part[2] for part in parts), 0.0
        for number, (measure, depth, seconds) in enumerate(parts, 1):
            before, allowed = allowed, allowed + seconds
            if number <= self._num_done:
                continue
            began = perf_counter() - self._spent

            def on_pass(began: float = began, before: float = before) -> None:
                if on_share:
                    spent = max(before, perf_counter() - began)
                    on_share(min(1.0, spent / all_seconds) if all_seconds else 1.0)

            measure(model, depth, began + allowed, on_pass)
            self._num_done, self._spent = number, perf_counter() - began
        model.prefill([])
        if not depths:
            self._longest = self._bound = 1
        longest, costs, cheap = self._longest, self._costs or {}, None
        is_complete = self.has_compared_all
        if is_optional:
            is_complete &= bool(costs) or longest == 1
            cheap = longest_cheap(costs, longest) if self._exact == "auto" else None
        found = Exactness(longest, tuple(costs.items()), cheap=cheap, bound=self._bound)
        return found if is_complete else found.after(self._earlier)

    @property
    def has_compared_all(self) -> bool:
        """Whether no longer pass may be exact than the longest one found so."""
        return self._longest == self._bound

    def _compare(
        self, model: ComparedModel, depth: int, deadline: float, on_pass: Callable[[], None]
    ) -> None:
        """Compare passes at a depth, with exact kernels."""
        with self._kernels.left_out(LONGEST_COMPARED):
            possible = min(model.longest_draft + 1, self._kernels.longest_without())
            most, self._bound = min(self._longest, possible), min(self._bound, possible)
            on_pass()
            if most > 1 and fill(model, depth, deadline):
                self._longest, bound = longest_here(model, most, deadline, on_pass)
                if bound < most:
                    self._bound = bound
            else:  # a hybrid reads too slowly
                self._longest = 1

    def _time(
        self, model: ComparedModel, depth: int, deadline: float, on_pass: Callable[[], None]
    ) -> None:
        """Time passes at a depth; a cost is the larger one of two depths."""
        if self._costs is None:
            self._costs = {length: 0.0 for length in TIMED_LENGTHS if length <= self._longest}
        on_pass()
        known, here = self._costs, dict[int, float]()
        if known and fill(model, depth, deadline):
            here = costs_here(model, self._kernels, known, deadline, on_pass)
        self._costs = {length: max(known[length], cost) for length, cost in here.items()}
