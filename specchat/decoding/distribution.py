"""Sparse probability distributions over a vocabulary, and the operations of speculative sampling.

After top-k, top-p and min-p only a handful of tokens are left, so a processed distribution is
stored as their ids and weights, not as a row of the vocabulary's length. A pass over gigabytes of
weights evicts everything else from the CPU caches, so each NumPy call starts cold: short
distributions are therefore plain lists and dictionaries, long ones arrays.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import nlargest
from operator import itemgetter
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

Ids: TypeAlias = npt.NDArray[np.integer[Any]]
Logits: TypeAlias = npt.NDArray[np.float32]
Weights: TypeAlias = npt.NDArray[np.float64]

Shares: TypeAlias = dict[int, float]
"""The probabilities of a distribution by token."""

Random: TypeAlias = Callable[[], float]
"""Draws a uniform number from [0, 1): `numpy.random.Generator.random` is one."""

LARGEST_TABLE = 256
"""Distributions over at most this many tokens are stored as lists."""


class Distribution:
    """A probability distribution that stores only tokens with a nonzero probability.

    It consists of distinct token `ids` and of `weights` proportional to their probabilities, both
    of shape (n,) and never changed. Draws are fastest with likely tokens first.
    """

    __slots__ = ("_excess", "_ids", "_list", "_table", "_tokens", "_total", "_weights")

    def __init__(self, ids: Ids, weights: Logits | Weights) -> None:
        """Store ids and weights, as lists if they are short."""
        if ids.size <= LARGEST_TABLE:
            weights_list = weights.tolist()
            self._store(ids.tolist(), weights_list, sum(weights_list))
        else:
            self._store([], None, float(weights.sum(dtype=np.float64)))
            self._ids, self._weights = ids, weights

    def _store(self, tokens: list[int], weights: list[float] | None, total: float) -> None:
        self._tokens, self._list, self._total = tokens, weights, total
        self._table: dict[int, float] | None = None
        self._excess: tuple[Distribution, float, dict[int, float]] | None = None

    @classmethod
    def of_table(cls, tokens: list[int], weights: list[float]) -> Distribution:
        """Return a distribution over at most LARGEST_TABLE tokens."""
        few = cls.__new__(cls)
        few._store(tokens, weights, sum(weights))  # noqa: SLF001  # of this class
        return few

    @classmethod
    def certain(cls, token: int) -> Distribution:
        """Return the distribution of one certain token, as in greedy decoding."""
        sure = cls.__new__(cls)
        sure._tokens, sure._list, sure._total = [token], [1.0], 1.0  # noqa: SLF001  # of this class
        sure._table = sure._excess = None  # noqa: SLF001
        return sure

    @property
    def ids(self) -> Ids:
        """The tokens with a nonzero probability, shape (n,)."""
        return self._ids if self._list is None else np.array(self._tokens, dtype=np.int64)

    @property
    def weights(self) -> Weights:
        """The probabilities of `ids`, shape (n,); the sum is 1 up to rounding."""
        weights = self._weights if self._list is None else self._list
        return np.divide(weights, self._total, dtype=np.float64)

    def __len__(self) -> int:
        """Return the number of tokens with a nonzero probability."""
        return len(self._ids if self._list is None else self._tokens)

    @property
    def unscaled(self) -> Logits | Weights:
        """Numbers proportional to the probabilities of `ids`, shape (n,)."""
        return self._weights if self._list is None else np.array(self._list)

    @property
    def table(self) -> tuple[list[int], list[float]] | None:
        """The `ids` and `unscaled` of a short distribution as lists; None for a long one."""
        return None if self._list is None else (self._tokens, self._list)

    @property
    def largest_share(self) -> float:
        """The probability of the most probable token."""
        if self._list is not None:
            return max(self._list) / self._total
        return float(self._weights.max()) / self._total

    def probability(self, token: int) -> float:
        """Return the probability of one token; 0.0 if it is not among the ids."""
        if self._table is not None:
            return self._table.get(token, 0.0)
        if self._list is not None:
            tokens = self._tokens
            return self._list[tokens.index(token)] / self._total if token in tokens else 0.0
        indices = (self._ids == token).nonzero()[0]
        return float(self._weights[indices[0]]) / self._total if indices.size else 0.0

    def best(self) -> int:
        """Return the most probable token, the lowest id among equals."""
        if len(self._tokens) == 1:
            return self._tokens[0]
        weights = self.weights
        return int(self.ids[weights == weights.max()].min())

    def likeliest(self, count: int) -> list[tuple[int, float]]:
        """Return the most probable tokens with their probabilities, best first."""
        ids, weights = self.ids, self.weights
        if self._list is None and 0 < count < ids.size:
            near = weights.argpartition(-count)[-count:]
            ids, weights = ids[near], weights[near]
        pairs = zip(ids.tolist(), weights.tolist(), strict=True)
        return nlargest(count, pairs, key=itemgetter(1))

    def sample(self, random: Random) -> int:
        """Draw one token, using one uniform number."""
        if self._list is None:
            return int(self._ids[_draw_from_array(self._weights, random)])
        return self._tokens[_draw_from_list(self._list, self._total, random)]

    def sample_others(self, token: int, count: int, random: Random) -> list[int]:
        """Draw up to `count` other tokens than this one, without replacement."""
        left, drawn = self.shares(), [token]
        while len(drawn) <= count and len(left := without(left, drawn[-1])) > 0:
            tokens, weights = list(left), list(left.values())
            drawn.append(tokens[_draw_from_list(weights, sum(weights), random)])
        return drawn[1:]

    def shares(self) -> Shares:
        """Return the probability of each token; not to be changed."""
        if self._list is not None:
            return self._as_table()
        return dict(zip(self.ids.tolist(), self.weights.tolist(), strict=True))

    def excess_mass(self, other: Distribution, scale: float = 1.0) -> float:
        """Return the sum of max(0, scale * self - other) over all tokens."""
        if self._list is None:
            return float(self._excess_array(other, scale).sum())
        if len(self._list) == 1:  # as in greedy decoding
            share = scale / self._total * self._list[0]
            return max(0.0, share - other.probability(self._tokens[0]))
        return sum(self._excess_table(other, scale).values())

    def sample_excess(self, other: Distribution, random: Random, scale: float = 1.0) -> int:
        """Draw from norm(max(0, scale * self - other)), the residual of speculative sampling.

        If rounding leaves no excess at all, the two are equal and the draw is from self.
        """
        if self._list is None:
            excess = self._excess_array(other, scale)
            if not excess.any():
                return self.sample(random)
            return int(self._ids[_draw_from_array(excess, random)])
        table = self._excess_table(other, scale)
        if not table:
            return self.sample(random)
        tokens, weights = list(table), list(table.values())
        return tokens[_draw_from_list(weights, sum(weights), random)]

    def weights_of(self, ids: Ids) -> Weights:
        """Return the probabilities of the given tokens, in their order."""
        if self._list is not None:
            share_of = self._as_table().get
            return np.array([share_of(token, 0.0) for token in ids.tolist()])
        order = self._ids.argsort()
        ranks = self._ids.searchsorted(ids, sorter=order)
        np.minimum(ranks, self._ids.size - 1, out=ranks)
        indices = order[ranks]
        return np.where(self._ids[indices] == ids, self.weights[indices], 0.0)

    def _as_table(self) -> dict[int, float]:
        if self._table is None:
            shares = [weight / self._total for weight in self._list or ()]
            self._table = dict(zip(self._tokens, shares, strict=True))
        return self._table

    def _excess_table(self, other: Distribution, scale: float) -> dict[int, float]:
        """Return the excess by token, cached because verification and pacing both need it."""
        if self._excess and self._excess[0] is other and self._excess[1] == scale:
            return self._excess[2]
        other_share = other.probability if other._list is None else other._as_table().get
        factor = scale / self._total
        table = {
            token: excess
            for token, weight in zip(self._tokens, self._list or (), strict=True)
            if (excess := factor * weight - (other_share(token) or 0.0)) > 0
        }
        self._excess = other, scale, table
        return table

    def _excess_array(self, other: Distribution, scale: float) -> Weights:
        return np.maximum(scale * self.weights - other.weights_of(self._ids), 0.0)


def _draw_from_list(weights: list[float], total: float, random: Random) -> int:
    """Draw an index with probability proportional to its weight; `total` is the sum of weights."""
    left = random() * total
    for index, weight in enumerate(weights):
        left -= weight
        if left < 0:
            return index
    return weights.index(max(weights))  # rounding left a remainder: any token with weight will do


def _draw_from_array(weights: Logits | Weights, random: Random) -> int:
    """Draw an index with probability proportional to its weight, never one of weight 0."""
    cumulative = weights.cumsum(dtype=np.float64)
    index = int(cumulative.searchsorted(random() * cumulative[-1], side="right"))
    return min(index, int(weights.nonzero()[0][-1]))  # the product may round up to the total


def sample_shares(shares: Shares, random: Random) -> int:
    """Draw a token with probability proportional to its share."""
    weights = list(shares.values())
    return list(shares)[_draw_from_list(weights, sum(weights), random)]


def without(shares: Shares, token: int) -> Shares:
    """Return a distribution without one of its tokens, empty if it had no other."""
    left = sum([share for kept, share in shares.items() if kept != token])
    return {kept: share / left for kept, share in shares.items() if kept != token} if left else {}


def excess_of(wanted: Shares, proposed: Shares, scale: float = 1.0) -> tuple[Shares, float]:
    """Return norm(max(0, scale * wanted - proposed)), and the sum before it was normalised.

    If rounding leaves no excess at all, the two are equal: the result is `wanted`, with sum 0.
    """
    share_of = proposed.get
    excess = {
        token: more
        for token, share in wanted.items()
        if (more := scale * share - share_of(token, 0.0)) > 0
    }
    mass = sum(excess.values())
    if not mass:
        return wanted, 0.0
    return {token: more / mass for token, more in excess.items()}, mass
