"""How exact a model's passes are on this machine, and what that costs."""

from dataclasses import dataclass, replace

MAX_ATTEMPTS = 3
UNBOUND = 2**31


@dataclass(frozen=True, slots=True)
class Exactness:
    """The longest exact pass of a model loaded in one way; 1 if none of several tokens is.

    `costs` says of passes, by their number of tokens, how many times as long exact ones take,
    as far as that is a choice and was timed. Exact kernels compute passes of up to `cheap` tokens
    in any answer (None: all), longer ones only where an answer must repeat. If the time was too
    short, as on a busy machine, it is measured again: up to MAX_ATTEMPTS times. Passes of more than
    `bound` tokens were found inexact by then.
    """

    longest: int
    costs: tuple[tuple[int, float], ...] = ()
    attempts: int = MAX_ATTEMPTS
    cheap: int | None = None
    bound: int = UNBOUND

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

    def after(self, earlier: "Exactness | None") -> "Exactness":
        """Return this result, which lacked time, merged with an earlier one that did."""
        before = earlier or Exactness(1, attempts=0)
        longest = min(max(before.longest, self.longest), self.bound)
        return replace(self, longest=longest, attempts=before.attempts + 1)
