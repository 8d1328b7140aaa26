"""How exact a model's passes are on this machine, and what that costs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # NumPy, which `specchat show` does without
    from specchat.passes.exact_passes import ComparedModel, InexactKernels

MOST_SECONDS = {"auto": 2.0, "on": 15.0}
"""How long passes of a new model are compared: what is not reached is not drafted with "on". With
"auto" it only decides about kernels, so it must not take much of a machine's time."""
MOST_SECONDS_OF_COSTS = 4.0
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Exactness:
    """The longest exact pass of a model loaded in one way; 1 if none of several tokens is.

    `costs` says of passes, by their number of tokens, how many times as long exact ones take,
    as far as that is a choice and was timed. If the time was too short, as on a busy machine, it is
    measured again: up to MAX_ATTEMPTS times.
    """

    longest: int
    costs: tuple[tuple[int, float], ...] = ()
    attempts: int = MAX_ATTEMPTS

    @property
    def is_final(self) -> bool:
        """Whether it need not be measured again."""
        return self.attempts >= MAX_ATTEMPTS

    @property
    def largest_cost(self) -> float | None:
        """The largest cost of an exact pass, None if none is known."""
        known = [cost for length, cost in self.costs if length <= self.longest]
        return max(known, default=None)

    def after(self, earlier: "Exactness | None", *, is_complete: bool) -> "Exactness":
        """Return this result merged with an earlier one that lacked time."""
        if is_complete:
            return self
        attempts, longest = (earlier.attempts, earlier.longest) if earlier else (0, 1)
        return Exactness(max(longest, self.longest), self.costs, attempts + 1)


class ExactnessMeasurement:
    """Measures how exact a model's passes are; if it is stopped, it goes on from there.

    With `exact` "auto", exact kernels are only taken where they are cheap. `earlier` is a result
    that lacked time.
    """

    def __init__(self, exact: str, earlier: Exactness | None = None) -> None:
        """Prepare to measure; nothing is known yet."""
        from specchat.passes.exact_costs import TimedCosts
        from specchat.passes.exact_passes import Compared

        self._exact, self._earlier = exact, earlier
        self._compared: Compared = Compared()
        self._timed: TimedCosts = TimedCosts()

    def run(
        self,
        model: "ComparedModel",
        kernels: "InexactKernels",
        on_share: Callable[[float], None] | None = None,
    ) -> Exactness:
        """Return the longest exact pass of a model, and what exact kernels cost.

        `on_share` is called before each pass with the share that is done; an exception from it
        stops the measurement.
        """
        from specchat.passes import exact_costs, exact_passes

        most_seconds, is_optional = MOST_SECONDS[self._exact], kernels.is_optional()
        share = most_seconds / (most_seconds + MOST_SECONDS_OF_COSTS) if is_optional else 1.0

        def on_compared(part: float) -> None:
            if on_share:
                on_share(share * part)

        def on_timed(part: float) -> None:
            if on_share:
                on_share(share + (1.0 - share) * part)

        with kernels.left_out(exact_passes.LONGEST_PASS):
            longest, is_complete = exact_passes.longest_exact_pass(
                model, kernels, most_seconds, on_compared, self._compared
            )
        costs = exact_costs.exact_costs(
            model, kernels, longest, MOST_SECONDS_OF_COSTS, on_timed, self._timed
        )
        if is_optional:
            is_complete &= bool(costs) or longest == 1
            is_auto = self._exact == "auto"
            longest = exact_costs.longest_cheap(costs, longest) if is_auto else longest
        found = Exactness(longest, tuple(costs.items()))
        return found.after(self._earlier, is_complete=is_complete)
