"""How exact a model's passes are on this machine, and what that costs."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # NumPy, which `specchat show` does without
    from specchat.passes.exact_passes import ComparedModel, InexactKernels

MOST_SECONDS = {"auto": 2.0, "on": 15.0}
"""How long passes of a new model are compared while it is loaded: what is not reached is not
drafted with "on". With "auto" it only decides about kernels, so it must not delay the first answer
much."""
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


def measure_exactness(
    model: "ComparedModel",
    kernels: "InexactKernels",
    exact: str,
    earlier: Exactness | None = None,
    on_share: Callable[[float], None] | None = None,
) -> Exactness:
    """Return the longest exact pass of a model, and what exact kernels cost.

    If `exact` is "auto", exact kernels are only taken where they are cheap. `earlier` is a result
    that lacked time.
    """
    from specchat.passes.exact_costs import exact_costs, longest_cheap
    from specchat.passes.exact_passes import LONGEST_PASS, longest_exact_pass

    with kernels.left_out(LONGEST_PASS):
        longest, is_complete = longest_exact_pass(model, kernels, MOST_SECONDS[exact], on_share)
    costs = exact_costs(model, kernels, longest, MOST_SECONDS_OF_COSTS)
    if kernels.is_optional():
        is_complete &= bool(costs) or longest == 1
        longest = longest_cheap(costs, longest) if exact == "auto" else longest
    return Exactness(longest, tuple(costs.items())).after(earlier, is_complete=is_complete)
