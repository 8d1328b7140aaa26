"""The noise of a seed: one fixed number for each index of an answer and token, for every model.

A token is drawn by a race: token x arrives at time E(x) / p(x), where the E(x) are independent
exponential numbers. The first to arrive is x with probability p(x) (the Gumbel-max trick without
logarithms). Models that race with the same numbers mostly draw the same token where their
distributions are alike: "Coupling without communication and drafter-invariant speculative decoding"
(Daliri, Musco and Suresh 2024, arXiv 2408.07978).

The numbers come from SplitMix64 (Steele, Lea and Flood 2014, "Fast splittable pseudorandom number
generators"), which hashes a counter, so each number can be computed without those before it. The
counter of an index starts at a cryptographic hash of seed and index.
"""

import math
from collections.abc import Sequence
from hashlib import blake2b
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from specchat.decoding.distribution import Distribution, Ids, Logits, Weights

Words: TypeAlias = npt.NDArray[np.uint64]

INCREMENT, FACTORS = 0x9E3779B97F4A7C15, (0xBF58476D1CE4E5B9, 0x94D049BB133111EB)
"""The constants of SplitMix64."""
WORD = 2**64 - 1
LEVELS = 256
"""The first byte of a token's uniform number rules out most tokens without the rest of it: if it is
n, E(x) is at least n / 256. One word of the generator has the first bytes of eight tokens."""


class Noise:
    """The noise of one seed, which may be any whole number."""

    def __init__(self, seed: int) -> None:
        """Use the noise of this seed."""
        self._seed = seed

    def draw(self, distribution: Distribution, index: int) -> int:
        """Return the token that wins at an index of the answer (0 for its first token).

        Noise is computed only for tokens that can still win.
        """
        if len(distribution) == 1:
            return distribution.best()
        starts = self._starts(index)
        if distribution.table:
            return _winner(*distribution.table, starts)
        ids, weights = distribution.ids, distribution.unscaled
        rivals = _rivals(ids, weights, starts)
        ids = ids[rivals]
        return ids.item((weights[rivals] / _times(ids, starts)).argmax())

    def ranked(self, distribution: Distribution, index: int, count: int) -> list[tuple[int, float]]:
        """Return the first tokens to arrive at an index, the winner first, with their shares.

        A share is that of the speed at which a token arrives, among those returned.
        """
        starts = self._starts(index)
        ids, weights = distribution.ids, distribution.unscaled
        if not distribution.table:
            near = weights.argpartition(-min(LEVELS, weights.size))[-LEVELS:]
            ids, weights = ids[near], weights[near]
        speeds = weights / _times(ids, starts)
        order = speeds.argsort()[::-1][:count]
        total = float(speeds[order].sum())
        return [(int(ids[row]), float(speeds[row]) / total) for row in order]

    def times(self, ids: Ids, index: int) -> Weights:
        """Return the exponential numbers E of tokens at an index of the answer, shape (n,)."""
        return _times(ids, self._starts(index))

    def _starts(self, index: int) -> tuple[int, int]:
        """Return the first counters of an index: for first bytes, and for the other bits."""
        digest = blake2b(f"{self._seed} {index}".encode(), digest_size=16).digest()
        return int.from_bytes(digest[:8], "little"), int.from_bytes(digest[8:], "little")


def _winner(tokens: Sequence[int], weights: Sequence[float], starts: tuple[int, int]) -> int:
    """Return the winner among a few tokens."""
    winner, best = -1, 0.0
    for token, weight in zip(tokens, weights, strict=True):
        first = _word(starts[0] + (token >> 3) * INCREMENT) >> ((token & 7) << 3) & 255
        if weight * LEVELS <= best * first:
            continue
        bits = first << 44 | _word(starts[1] + token * INCREMENT) >> 20
        speed = weight / -math.log1p(-(bits + 0.5) / 2**52)
        if speed > best:
            winner, best = token, speed
    return winner


def _rivals(ids: Ids, weights: Logits | Weights, starts: tuple[int, int]) -> Ids:
    """Return the indices of those of many tokens that can win.

    These are the tokens whose first byte is 0, and those probable enough to beat them and the most
    probable one.
    """
    blocks = np.arange(int(ids.max()) // 8 + 1, dtype=np.uint64)
    firsts = _words(starts[0], blocks).astype("<u8", copy=False).view(np.uint8)
    is_rival = firsts.take(ids) == 0
    is_rival[weights.argmax()] = True
    early = is_rival.nonzero()[0]
    best = float((weights[early] / _times(ids[early], starts)).max())
    is_rival |= weights >= best / (LEVELS + 1)
    rivals: Ids = is_rival.nonzero()[0]
    return rivals


def _times(ids: Ids, starts: tuple[int, int]) -> Weights:
    """Return the exponential numbers of tokens, from 52 uniform bits each, shape (n,)."""
    tokens = ids.astype(np.uint64)
    first = _words(starts[0], tokens >> np.uint64(3)) >> ((tokens & np.uint64(7)) << np.uint64(3))
    rest = _words(starts[1], tokens) >> np.uint64(20)
    bits = (first & np.uint64(255)) << np.uint64(44) | rest
    times: Weights = -np.log1p(-(bits + 0.5) / 2**52)
    return times


def _words(start: int, counters: Words) -> Words:
    """Return the generator's words at these counters, shape (n,)."""
    words = counters * np.uint64(INCREMENT)
    words += np.uint64(start)
    words ^= words >> np.uint64(30)
    words *= np.uint64(FACTORS[0])
    words ^= words >> np.uint64(27)
    words *= np.uint64(FACTORS[1])
    words ^= words >> np.uint64(31)
    return words


def _word(state: int) -> int:
    """Return the generator's word at a state, start + counter * INCREMENT."""
    state &= WORD
    state = (state ^ state >> 30) * FACTORS[0] & WORD
    state = (state ^ state >> 27) * FACTORS[1] & WORD
    return state ^ state >> 31
