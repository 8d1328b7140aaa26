"""How likely a token is to be accepted, by the confidence of its drafter.

Counts in bins of confidence, of which the older ones weigh less (a histogram; Zadrozny and Elkan
2001). A bin that has seen little is taken to be as right, compared with its confidence, as all of
them are.
"""

from collections.abc import Sequence

EDGES = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
"""Upper bounds of the bins but the last."""
MEMORY = 0.98
"""Weight of a count beside the next newer one of its bin."""
PRIOR = 4.0
"""Tokens that the confidence itself counts as."""


class Calibration:
    """Learns from outcomes: 1 for an accepted token, 0 for a rejected one, or its chance."""

    def __init__(self, counts: Sequence[float] = ()) -> None:
        """Begin with what was learned before; a malformed record counts as none."""
        size = len(EDGES) + 1
        is_valid = len(counts) == 3 * size and all(0 <= count < 1e4 for count in counts)
        counts = counts if is_valid else [0.0] * (3 * size)
        self._right, self._all, self._expected = (
            list(counts[part * size : (part + 1) * size]) for part in range(3)
        )

    def as_record(self) -> list[float]:
        """Return what was learned, as numbers."""
        return [*self._right, *self._all, *self._expected]

    def chance(self, confidence: float) -> float:
        """Return how likely a token of this confidence is to be accepted, below 1."""
        place = _bin(confidence)
        right = (sum(self._right) + PRIOR) / (sum(self._expected) + PRIOR)
        prior = min(confidence * right, 1.0)
        chance = (self._right[place] + PRIOR * prior) / (self._all[place] + PRIOR)
        return min(chance, 0.999)

    def observe(self, confidence: float, accepted: float) -> None:
        """Update with the outcome of a token."""
        place = _bin(confidence)
        for counts, more in (
            (self._right, accepted), (self._all, 1.0), (self._expected, confidence)
        ):  # fmt: skip
            counts[place] = MEMORY * counts[place] + more


def _bin(confidence: float) -> int:
    return sum(confidence >= edge for edge in EDGES)
