"""The branches beside a draft: other likely tokens in place of a drafted one.

They cost no draft pass: the draft model's row that the drafted token is drawn from names them, too.
"""

import math
from collections.abc import Sequence

import numpy as np

from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.ports import DraftTask
from specchat.decoding.proposal import Branch
from specchat.drafting.token_map import TokenMap

WIDTH = 8.0
"""Tokens whose logit is this far below the highest are not offered as branches."""


class SideBranches:
    """The branches beside one draft.

    At temperature 0 they are the next best tokens. With a seed they are the next to be drawn with
    the target's noise, and without one the likeliest: where a drawn token is rejected, the target
    wants what it finds likelier than the draft model does.
    """

    def __init__(self, task: DraftTask, tokens: TokenMap, origin: str) -> None:
        """Begin an answer, with no branches yet; `origin` names what drafts them."""
        self._task, self._map, self._origin = task, tokens, origin
        self.branches: list[Branch] = []

    def clear(self) -> None:
        """Forget the branches of the last draft."""
        self.branches = []

    def add(
        self, logits: Logits, distribution: Distribution, index: int, fork: int, count: int
    ) -> None:
        """Add up to `count` + 1 branches: tokens that may follow the first `fork` drafted ones.

        One of them may be the token that is drafted there next. `logits` is the draft model's row
        there, and `distribution` what sampling makes of it, in the target's token ids. `index` is
        that of the token in the answer, which decides the noise of a seed.
        """
        likely: Sequence[tuple[int, float]]
        if len(distribution) == 1:
            likely = self._next_best(logits, count + 1)
        else:
            likely = self._task.ranked(distribution, index, count + 1)
        self.branches += [Branch(token, fork, self._origin, share) for token, share in likely]

    def _next_best(self, logits: Logits, count: int) -> list[tuple[int, float]]:
        """Return the tokens of the highest logits, each with its share.

        The best one is the draft's, so shares are taken among the others.
        """
        best = highest(logits, count)
        if not best or not math.isfinite(best[0][1]):
            return []
        shares = [math.exp(value - best[0][1]) for _, value in best if value > best[0][1] - WIDTH]
        ids = np.array([token for token, _ in best[: len(shares)]])
        named = self._map.named(Distribution(ids, np.array(shares))).ids.tolist()
        others = sum(shares[1:]) + shares[-1]  # those not looked at count as one more
        return [
            (token, min(1.0, share / others)) for token, share in zip(named, shares, strict=True)
        ]


def highest(logits: Logits, count: int) -> list[tuple[int, float]]:
    """Return the tokens with the highest logits, each with its logit, best first.

    The row is changed in between, and restored. There may be fewer than `count`. A few searches for
    the maximum take a fraction of the time of a sort.
    """
    best: list[tuple[int, float]] = []
    for _ in range(min(count, logits.size)):
        token = int(logits.argmax())
        value = logits.item(token)
        if value == -math.inf:  # the constraint allows no others
            break
        best.append((token, value))
        logits[token] = -math.inf
    for token, value in best:
        logits[token] = value
    return best
