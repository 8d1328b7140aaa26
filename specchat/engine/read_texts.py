"""Why tokens of a prompt are read that were read before."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from specchat.decoding.statistics import Statistics
from specchat.llama.text_memory import count_common

MOST_TOKENS = 2**20
"""The tokens of all remembered texts together: 4 MiB."""
MOST_TEXTS = 64
"""Each of them is compared with every prompt."""
SHORTEST_RUN = 16
"""Fewer tokens of a text may be found in another by chance, as the marks around messages are."""


@dataclass(frozen=True, slots=True)
class ReadBefore:
    """What was read before of a prompt, in tokens, and how much of it the memory still has.

    The first `num_known` tokens were read before, and the memory has the first `num_kept` of them,
    which an answer that `repeats` may read again. Behind them `num_moved` tokens had another text
    before them.
    """

    num_known: int
    num_kept: int
    num_moved: int
    repeats: bool

    def read_again(self, statistics: Statistics) -> dict[str, int]:
        """Return how many tokens an answer read again, by reason; none before it read any."""
        if not statistics.steps:
            return {}
        num_cached = statistics.cached_tokens
        num_kept = self.num_kept if self.repeats else num_cached
        counts = {
            "edited": self.num_moved,
            "forgotten": self.num_known - num_kept,
            "seed": num_kept - num_cached,
        }
        return {reason: count for reason, count in counts.items() if count > 0}


class ReadTexts:
    """The texts that a pair has read since it was loaded: their tokens alone."""

    def __init__(self) -> None:
        """Begin with none."""
        self._texts: list[NDArray[np.int32]] = []

    def add(self, tokens: Sequence[int]) -> None:
        """Remember a text, in place of its beginnings; the oldest ones are forgotten."""
        text = np.asarray(tokens, np.int32)
        others = [each for each in self._texts if count_common(each, text) < each.size]
        self._texts = [*others, text]
        while len(self._texts) > MOST_TEXTS or sum(each.size for each in self._texts) > MOST_TOKENS:
            del self._texts[0]

    def compare(self, tokens: Sequence[int]) -> tuple[int, int]:
        """Return how many first tokens of a text were read before, and how many of the others.

        The others are found in the text that has most of its beginning, behind that.
        """
        text = np.asarray(tokens, np.int32)
        shared = [(count_common(each, text), number) for number, each in enumerate(self._texts)]
        num_known, number = max(shared, default=(0, -1))
        if number < 0:
            return 0, 0
        return num_known, _num_found(text[num_known:], self._texts[number][num_known:])

    def clear(self) -> None:
        """Forget all texts."""
        self._texts.clear()


def _num_found(text: NDArray[np.int32], other: NDArray[np.int32]) -> int:
    """Return how many tokens of a text are in runs of it that another text has, too."""
    if min(text.size, other.size) < SHORTEST_RUN:
        return 0
    starts = np.isin(_hashes(text), _hashes(other)).nonzero()[0]
    is_found = np.zeros(text.size, np.bool_)
    for offset in range(SHORTEST_RUN):
        is_found[starts + offset] = True
    return int(is_found.sum())


def _hashes(text: NDArray[np.int32]) -> NDArray[np.uint64]:
    """Return a hash of each run of the shortest length."""
    factors = np.uint64(0x9E3779B97F4A7C15) ** np.arange(SHORTEST_RUN, dtype=np.uint64)
    runs = np.lib.stride_tricks.sliding_window_view(text.astype(np.uint64), SHORTEST_RUN)
    hashes: NDArray[np.uint64] = runs @ factors
    return hashes
