"""Sparse probability distributions over a vocabulary, and what speculative sampling does with them.

A processed distribution has a handful of tokens left (top-k, top-p, min-p), so it is kept as the
ids that have any probability and their weights, both short arrays, instead of a row as long as the
vocabulary.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

__all__ = ["Distribution", "Ids", "Logits", "Random", "Weights"]

Ids: TypeAlias = npt.NDArray[np.integer[Any]]
Logits: TypeAlias = npt.NDArray[np.float32]
Weights: TypeAlias = npt.NDArray[np.float64]

Random: TypeAlias = Callable[[], float]
"""Draws a uniform number from [0, 1): `numpy.random.Generator.random` is one."""


class Distribution:
    """A probability distribution that names only the tokens it gives any probability.

    `ids` are distinct token ids, shape (n,); `weights` their probabilities, shape (n,), which sum
    to 1 up to rounding. Neither is to be changed.
    """

    __slots__ = ("ids", "weights")

    def __init__(self, ids: Ids, weights: Weights) -> None:
        """Take ids and weights as they are; the weights must already sum to 1."""
        self.ids = ids
        self.weights = weights

    @classmethod
    def certain(cls, token: int) -> Distribution:
        """Give all probability to one token: greedy decoding, drafters without probabilities."""
        return cls(np.array([token]), np.ones(1))

    def probability(self, token: int) -> float:
        """Return the probability of one token; 0.0 for a token that is not named."""
        found = (self.ids == token).nonzero()[0]
        return float(self.weights[found[0]]) if found.size else 0.0

    def best(self) -> int:
        """Return the most probable token, the lowest id among equals."""
        if self.ids.size == 1:
            return int(self.ids[0])
        top = self.ids[self.weights == self.weights.max()]
        return int(top.min()) if top.size > 1 else int(top[0])

    def sample(self, random: Random) -> int:
        """Draw one token, using one uniform number."""
        if self.ids.size == 1:
            return int(self.ids[0])
        return _draw(self.ids, self.weights, random)

    def weights_of(self, ids: Ids) -> Weights:
        """Return the probabilities of the given tokens, in their order."""
        if self.ids.size == 1:
            return np.where(ids == self.ids[0], self.weights[0], 0.0)
        order = self.ids.argsort()
        place = self.ids.searchsorted(ids, sorter=order)
        np.minimum(place, self.ids.size - 1, out=place)
        found = order[place]
        return np.where(self.ids[found] == ids, self.weights[found], 0.0)

    def excess(self, other: Distribution, scale: float = 1.0) -> Weights:
        """Return max(0, scale * self - other) for each of this distribution's ids, shape (n,)."""
        return np.maximum(scale * self.weights - other.weights_of(self.ids), 0.0)

    def sample_excess(self, other: Distribution, random: Random, scale: float = 1.0) -> int:
        """Draw from norm(max(0, scale * self - other)), the residual of speculative sampling.

        Where rounding leaves no excess at all the two are equal, and self is as right as anything.
        """
        excess = self.excess(other, scale)
        return _draw(self.ids, excess if excess.any() else self.weights, random)


def _draw(ids: Ids, weights: Weights, random: Random) -> int:
    """Draw an id with probability proportional to its weight; weights of 0 are never drawn."""
    cumulative = weights.cumsum()
    place = int(cumulative.searchsorted(random() * cumulative[-1], side="right"))
    if place >= ids.size:  # the product rounded up to the total
        place = int(weights.nonzero()[0][-1])
    return int(ids[place])
