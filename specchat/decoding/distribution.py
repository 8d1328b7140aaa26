"""Sparse probability distributions over a vocabulary, and what speculative sampling does with them.

A processed distribution has a handful of tokens left (top-k, top-p, min-p), so it is kept as the
ids that have any probability and their weights, both short arrays, instead of a row as long as the
vocabulary. After a pass over gigabytes of weights nothing is in the caches, and every NumPy call
starts cold: short distributions are therefore worked on as a plain table, long ones as arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["LARGEST_TABLE", "Distribution", "Ids", "Logits", "Random", "Weights"]

Ids: TypeAlias = npt.NDArray[np.integer[Any]]
Logits: TypeAlias = npt.NDArray[np.float32]
Weights: TypeAlias = npt.NDArray[np.float64]

Random: TypeAlias = Callable[[], float]
"""Draws a uniform number from [0, 1): `numpy.random.Generator.random` is one."""

ONE = np.ones(1)
LARGEST_TABLE = 256
"""Distributions over at most so many tokens are worked on as tables."""


class Distribution:
    """A probability distribution that names only the tokens it gives any probability.

    `ids` are distinct token ids, shape (n,); `weights` their probabilities, shape (n,), which sum
    to 1 up to rounding. Neither is to be changed. Draws are quickest with the likely tokens first.
    """

    __slots__ = ("_ids", "_table", "_weights")

    def __init__(self, ids: Ids, weights: Weights) -> None:
        """Take ids and weights as they are; the weights must already sum to 1."""
        self._ids = ids
        self._weights = weights
        self._table: dict[int, float] | None = None
        if ids.size <= LARGEST_TABLE:
            self._table = dict(zip(ids.tolist(), weights.tolist(), strict=True))

    @classmethod
    def certain(cls, token: int) -> Distribution:
        """Give all probability to one token: greedy decoding, drafters without probabilities."""
        return cls(np.array([token]), ONE)

    @property
    def ids(self) -> Ids:
        """The tokens that have any probability, shape (n,)."""
        return self._ids if self._table is None else np.array(list(self._table))

    @property
    def weights(self) -> Weights:
        """Their probabilities, shape (n,)."""
        return self._weights if self._table is None else np.array(list(self._table.values()))

    def probability(self, token: int) -> float:
        """Return the probability of one token; 0.0 for a token that is not named."""
        if self._table is not None:
            return self._table.get(token, 0.0)
        found = (self._ids == token).nonzero()[0]
        return float(self._weights[found[0]]) if found.size else 0.0

    def best(self) -> int:
        """Return the most probable token, the lowest id among equals."""
        if self._table is not None and len(self._table) == 1:
            return next(iter(self._table))
        ids, weights = self.ids, self.weights
        return int(ids[weights == weights.max()].min())

    def sample(self, random: Random) -> int:
        """Draw one token, using one uniform number."""
        if self._table is None:
            return _draw_from_arrays(self._ids, self._weights, random)
        return _draw_from_table(self._table, 1.0, random)

    def excess_mass(self, other: Distribution, scale: float = 1.0) -> float:
        """Return the sum of max(0, scale * self - other) over all tokens."""
        if self._table is None:
            return float(self._excess_array(other, scale).sum())
        return sum(self._excess_table(other, scale).values())

    def sample_excess(self, other: Distribution, random: Random, scale: float = 1.0) -> int:
        """Draw from norm(max(0, scale * self - other)), the residual of speculative sampling.

        Where rounding leaves no excess at all the two are equal, and self is as right as anything.
        """
        if self._table is None:
            excess = self._excess_array(other, scale)
            return _draw_from_arrays(self._ids, excess if excess.any() else self._weights, random)
        table = self._excess_table(other, scale)
        return (
            _draw_from_table(table, sum(table.values()), random) if table else self.sample(random)
        )

    def weights_of(self, ids: Ids) -> Weights:
        """Return the probabilities of the given tokens, in their order."""
        if self._table is not None:
            known = self._table.get
            return np.array([known(token, 0.0) for token in ids.tolist()])
        order = self._ids.argsort()
        place = self._ids.searchsorted(ids, sorter=order)
        np.minimum(place, self._ids.size - 1, out=place)
        found = order[place]
        return np.where(self._ids[found] == ids, self._weights[found], 0.0)

    def _excess_table(self, other: Distribution, scale: float) -> dict[int, float]:
        other_weight, table = other.probability, self._table or {}
        return {
            token: excess
            for token, weight in table.items()
            if (excess := scale * weight - other_weight(token)) > 0
        }

    def _excess_array(self, other: Distribution, scale: float) -> Weights:
        return np.maximum(scale * self._weights - other.weights_of(self._ids), 0.0)


def _draw_from_table(table: dict[int, float], total: float, random: Random) -> int:
    """Draw a token with probability proportional to its weight, of which `total` is the sum."""
    left = random() * total
    for token, weight in table.items():
        left -= weight
        if left < 0:
            return token
    return max(table, key=table.__getitem__)  # rounding left a sliver: as good as any that has one


def _draw_from_arrays(ids: Ids, weights: Weights, random: Random) -> int:
    """Draw an id with probability proportional to its weight; weights of 0 are never drawn."""
    cumulative = weights.cumsum()
    place = int(cumulative.searchsorted(random() * cumulative[-1], side="right"))
    if place >= ids.size:  # the product rounded up to the total
        place = int(weights.nonzero()[0][-1])
    return int(ids[place])
