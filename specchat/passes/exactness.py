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
    `bound` tokens were found inexact meanwhile.
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

    def after(self, earlier: "Exactness | None", *, is_complete: bool) -> "Exactness":
        """Return this result merged with an earlier one that lacked time."""
        before = earlier or Exactness(1, attempts=0)
        bound = min(before.bound, self.bound)
        if is_complete:
            return replace(self, longest=min(self.longest, bound), bound=UNBOUND)
        longest = min(max(before.longest, self.longest), bound)
        return Exactness(longest, self.costs, before.attempts + 1, self.cheap, bound)
