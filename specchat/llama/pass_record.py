"""Which passes filled a memory: its bits depend on them, and answers that repeat need the same."""

from bisect import bisect
from collections.abc import Callable, Sequence

from specchat.passes.exact_passes import LONGEST_COMPARED


class PassRecord:
    """The lengths after the passes that filled a memory, from an empty one on, as far as known.

    A pass over up to `longest_exact` tokens gives the bits of single-token passes, so it counts as
    one for each token.
    """

    longest_exact = 1

    def __init__(self) -> None:
        """Begin with an empty memory."""
        self._ends: list[int] = []

    @property
    def ends(self) -> tuple[int, ...]:
        """The lengths."""
        return tuple(self._ends)

    def begin_with(self, ends: Sequence[int]) -> None:
        """Begin with the lengths of a memory that is restored."""
        self._ends = list(ends)

    def note(self, start: int, count: int) -> None:
        """Note a pass, if it continues those that are known and always has the same kernels."""
        is_exact = count <= self.longest_exact
        if start == (self._ends[-1] if self._ends else 0) and (
            is_exact or count > LONGEST_COMPARED
        ):
            self._ends += self._ends_of_pass(start, count)

    def cut(self, length: int) -> None:
        """Forget the passes over tokens that are no longer in the memory."""
        del self._ends[bisect(self._ends, length) :]

    def planned(
        self, stops: Sequence[int], length: int, size_at: Callable[[int, int], int]
    ) -> list[int]:
        """Return the record of a reading up to each of `stops` in turn, then in exact passes.

        `size_at` returns the size of a pass by where it begins and the stop.
        """
        ends, start = list[int](), 0
        for stop in stops:
            while start < stop:
                count = size_at(start, stop)
                ends += self._ends_of_pass(start, count)
                start += count
        return [*ends, *range(start + 1, length + 1)]

    def num_matching(self, planned: Sequence[int], known: int) -> int:
        """Return how many of the first `known` tokens were read as planned."""
        length = 0
        for end, wanted in zip(self._ends, planned, strict=False):
            if end != wanted or end > known:
                break
            length = end
        return length

    def num_in_passes_of(self, size: int) -> int:
        """Return how many of the first tokens were read in passes of this size."""
        length = 0
        for end in self._ends:
            if end != length + size:
                break
            length = end
        return length

    def _ends_of_pass(self, start: int, count: int) -> range:
        step = 1 if count <= self.longest_exact else count
        return range(start + step, start + count + 1, step)
