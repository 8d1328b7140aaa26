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
MOST_SECONDS_NEEDED = 10.0
"""The same where an answer waits for it. Costs are then left for later."""
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Exactness:
    """The longest exact pass of a model loaded in one way; 1 if none of several tokens is.

    `costs` says of passes, by their number of tokens, how many times as long exact ones take,
    as far as that is a choice and was timed. Exact kernels compute passes of up to `cheap` tokens
    in any answer (None: all), longer ones only where an answer must repeat. If the time was too
    short, as on a busy machine, it is measured again: up to MAX_ATTEMPTS times.
    """

    longest: int
    costs: tuple[tuple[int, float], ...] = ()
    attempts: int = MAX_ATTEMPTS
    cheap: int | None = None

    @property
    def is_final(self) -> bool:
        """Whether it need not be measured again."""
        return self.attempts >= MAX_ATTEMPTS

    @property
    def usual(self) -> int:
        """The longest exact pass in answers that need not repeat."""
        return self.longest if self.cheap is None else min(self.longest, self.cheap)

    @property
    def largest_cost(self) -> float | None:
        """The largest cost of an exact pass in any answer, None if none is known."""
        known = [cost for length, cost in self.costs if length <= self.usual]
        return max(known, default=None)

    def after(self, earlier: "Exactness | None", *, is_complete: bool) -> "Exactness":
        """Return this result merged with an earlier one that lacked time."""
        if is_complete:
            return self
        attempts, longest = (earlier.attempts, earlier.longest) if earlier else (0, 1)
        return Exactness(max(longest, self.longest), self.costs, attempts + 1, self.cheap)


class ExactnessMeasurement:
    """Measures how exact a model's passes are; if it is stopped, it goes on from there.

    With `exact` "auto", answers that need not repeat take exact kernels only where they are cheap.
    `earlier` is a result that lacked time. If it `is_needed` for an answer, only passes are
    compared, and for longer.
    """

    def __init__(
        self, exact: str, earlier: Exactness | None = None, *, is_needed: bool = False
    ) -> None:
        """Prepare to measure; nothing is known yet."""
        from specchat.passes.exact_costs import TimedCosts
        from specchat.passes.exact_passes import Compared

        self._exact, self._earlier, self.is_needed = exact, earlier, is_needed
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
        if self.is_needed:
            most_seconds = MOST_SECONDS_NEEDED
        times_costs = is_optional and not self.is_needed
        share = most_seconds / (most_seconds + MOST_SECONDS_OF_COSTS) if times_costs else 1.0

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
        costs: dict[int, float] = {}
        if times_costs:
            costs = exact_costs.exact_costs(
                model, kernels, longest, MOST_SECONDS_OF_COSTS, on_timed, self._timed
            )
        cheap = None
        if is_optional:
            is_complete &= bool(costs) or longest == 1
            cheap = exact_costs.longest_cheap(costs, longest) if self._exact == "auto" else None
        found = Exactness(longest, tuple(costs.items()), cheap=cheap)
        return found.after(self._earlier, is_complete=is_complete)
