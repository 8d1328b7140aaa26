"""What drafts of each length would have brought lately: the last drafts, cut anew.

Every draft leaves its confidences, known before its tokens were drawn, and the chances that these
were accepted. Of those, the tokens and the time of any other way to draft follow: stopping after n
tokens, or at the first one whose confidence is below a threshold,

    rate = sum over drafts of (1 + S(1) + ... + S(k)) / sum over drafts of seconds(k)

where S(i) is the chance that the first i tokens are all accepted and k where that draft stops.
Choosing by what was measured and testing by using is what Cascade does (arXiv 2506.20675).
"""

from collections.abc import Iterable, Sequence
from itertools import product
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

LONGEST = 16
"""Tokens of a draft that takes passes; longer ones never paid on any machine."""
THRESHOLDS = (0.0, 0.3, 0.5, 0.7, 0.85)
NUM_RECENT, MEMORY = 96, 0.98
"""Drafts remembered, and the weight of each beside the next newer one."""
LOOKS_FORGET = 4
"""A draft that looks whether the text has changed drops a quarter of the others."""
USUAL_CHANCE, USUAL_DRAFTS = 0.75, 2.0
"""The chance of a token before anything is known, and the drafts that this counts as."""
LEAST_DRAFTED = 0.25
"""The tokens that a way has to draft on average, to be one."""
NUM_POSITIONS = 4
"""Later tokens of a draft are alike."""


class Way(NamedTuple):
    """A way to draft: up to this many tokens, each of at least this confidence."""

    length: int = 0
    threshold: float = 0.0


class PastDraft(NamedTuple):
    """The confidences of a draft's tokens, and the chances of those where that is known.

    A chance is that of a token to be accepted once those before it are.
    """

    confidences: tuple[float, ...]
    chances: tuple[float, ...]


class StepSeconds(NamedTuple):
    """What steps take, in seconds.

    `verifying[k]` is a target pass over k drafted tokens and one more, `drafting[j]` are j draft
    passes, both for 0 to n; a target pass after one of another length takes `change` more.
    """

    verifying: Sequence[float]
    drafting: Sequence[float]
    change: float = 0.0


class RecentDrafts:
    """The last drafts of one drafter, at temperature 0 or above it.

    The rows, (drafts, 2, LONGEST), are the confidences and the chances of each, the oldest first:
    NaN where there was no token, or where its chance is not known.
    """

    def __init__(self, drafts: Iterable[PastDraft] = ()) -> None:
        """Begin with earlier drafts, the oldest first."""
        self._rows = np.empty((0, 2, LONGEST))
        for draft in drafts:
            self.add(draft)

    @classmethod
    def of_record(cls, record: Sequence[Sequence[Sequence[float]]]) -> Self:
        """Return the drafts of an earlier session; malformed ones are left out."""
        return cls(
            PastDraft(*map(tuple, parts))
            for parts in record
            if len(parts) == 2 and all(0 <= number <= 1 for part in parts for number in part)
        )

    def as_record(self) -> list[list[list[float]]]:
        """Return the drafts for later sessions: the confidences and the chances of each."""
        return [[part[~np.isnan(part)].round(3).tolist() for part in row] for row in self._rows]

    def __len__(self) -> int:
        return len(self._rows)

    def add(self, draft: PastDraft, *, is_look: bool = False) -> None:
        """Remember one more; `is_look` for one made to see whether drafting pays again."""
        forgotten = (len(self) - 1) // LOOKS_FORGET if is_look else len(self) + 1 - NUM_RECENT
        self._rows = _with_row(self._rows[max(0, forgotten) :], *draft)

    def _weights(self) -> NDArray[np.float64]:
        return np.full(len(self), MEMORY).cumprod()[::-1]

    def usual_chances(self) -> list[float]:
        """Return the mean chance of the first, second, ... token, the last one for all later.

        One that was seldom reached is taken to be as likely as the one before it.
        """
        chances = self._rows[:, 1]
        is_known = ~np.isnan(chances)
        sums = self._weights() @ np.where(is_known, chances, 0.0)
        weights = self._weights() @ is_known
        last = NUM_POSITIONS - 1
        sums[last], weights[last] = sums[last:].sum(), weights[last:].sum()
        usual, before = [], USUAL_CHANCE
        for total, weight in zip(sums[:NUM_POSITIONS], weights, strict=False):
            before = float(total + USUAL_DRAFTS * before) / float(weight + USUAL_DRAFTS)
            usual.append(before)
        return usual

    def rates(self, seconds: StepSeconds) -> dict[Way, float]:
        """Return the tokens per second of every way to draft."""
        longest = min(LONGEST, len(seconds.verifying) - 1)
        if longest < 1:
            return {}
        confidences, chances = self._filled(longest)
        weights = np.append(self._weights(), USUAL_DRAFTS)
        weights /= weights.sum()
        verifying, passes = np.asarray(seconds.verifying), np.asarray(seconds.drafting)
        # from here on by threshold, draft and length
        goes_on = np.logical_and.accumulate(confidences >= _THRESHOLDS, axis=2)
        drafted = goes_on.cumsum(axis=2)  # by each draft, if it may have 1, 2, ... tokens
        made = np.minimum(drafted + 1, np.arange(1, longest + 1))  # a declined one took a pass, too
        survivals = np.cumprod(chances * goes_on, axis=2)
        tokens = 1.0 + weights @ survivals.cumsum(axis=2)
        times = weights @ (verifying[drafted] + passes[made])
        if seconds.change and len(self) > 1:
            differs = drafted[:, 1:-1] != drafted[:, :-2]  # from one draft to the next
            times += seconds.change * differs.mean(axis=1)
        rates, mostly = (tokens / times).ravel().tolist(), (weights @ drafted).ravel().tolist()
        ways = product(THRESHOLDS, range(1, longest + 1))
        return {
            Way(length, threshold): rate
            for (threshold, length), rate, count in zip(ways, rates, mostly, strict=True)
            if count >= LEAST_DRAFTED
        }

    def mean_length(self, way: Way) -> float:
        """Return the number of tokens that a way would have drafted on average."""
        confidences, _ = self._filled(way.length)
        weights = np.append(self._weights(), USUAL_DRAFTS)
        drafted = np.logical_and.accumulate(confidences >= way.threshold, axis=1).sum(axis=1)
        return float(weights @ drafted / weights.sum())

    def _filled(self, longest: int) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Return confidences and chances, (drafts + 1, tokens), the last row being the usual ones.

        What is not known of a draft is taken to be as usual, and confident enough to go on.
        """
        usual = self.usual_chances()
        usual += usual[-1:] * (LONGEST - len(usual))
        rows = _with_row(self._rows)[..., :longest]
        filled = np.where(np.isnan(rows[:, 1]), usual[:longest], rows[:, 1])
        return np.nan_to_num(rows[:, 0], nan=1.0), filled


_THRESHOLDS = np.array(THRESHOLDS)[:, None, None]


def _with_row(rows: NDArray[np.float64], *draft: Sequence[float]) -> NDArray[np.float64]:
    """Return these rows and one more: that of a draft, or of unknown tokens."""
    last = np.full((1, 2, LONGEST), np.nan)
    for part, values in zip(last[0], draft, strict=False):
        part[: len(values)] = values[:LONGEST]
    return np.concatenate((rows, last))
