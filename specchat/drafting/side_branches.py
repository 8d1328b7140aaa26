"""Branches that cost no draft pass: what a draft model nearly drafted in place of each token."""

import math
from collections.abc import Sequence

import numpy as np

from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.ports import DraftTask
from specchat.decoding.proposal import Branch
from specchat.drafting.token_map import TokenMap

WIDTH = 8.0
"""Tokens whose logit is this far below the best one's are no branches."""


class SideBranches:
    """The branches beside one draft, as leaves.

    At temperature 0 they are the next best tokens. With a seed they are the next to be drawn with
    the target's noise, and without one the likeliest: where a drawn token is rejected, the target
    wants what it finds likelier than the draft model does.
    """

    def __init__(self, task: DraftTask, tokens: TokenMap, origin: str) -> None:
        """Find none yet, for an answer."""
        self._task, self._map, self._origin = task, tokens, origin
        self.found: list[Branch] = []

    def add(
        self, logits: Logits, distribution: Distribution, index: int, fork: int, count: int
    ) -> None:
        """Add up to `count` branches behind `fork` drafted tokens.

        `logits` is the draft model's row there and `distribution` what it makes of it, in the
        target's tokens. `index` counts from the answer's first token. The token to be drafted next
        may be among them.
        """
        likely: Sequence[tuple[int, float]]
        if len(distribution) == 1:
            likely = self._next_best(logits, count + 1)
        else:
            likely = self._task.ranked(distribution, index, count + 1)
        self.found += [Branch(token, fork, self._origin, share) for token, share in likely]

    def _next_best(self, logits: Logits, count: int) -> list[tuple[int, float]]:
        """Return the tokens of the highest logits, each with its share of what follows the best."""
        best = highest(logits, count)
        shares = [math.exp(value - best[0][1]) for _, value in best if value > best[0][1] - WIDTH]
        ids = np.array([token for token, _ in best[: len(shares)]])
        named = self._map.named(Distribution(ids, np.array(shares))).ids.tolist()
        others = sum(shares[1:]) or 1.0
        return [
            (token, min(1.0, share / others)) for token, share in zip(named, shares, strict=True)
        ]


def highest(logits: Logits, count: int) -> list[tuple[int, float]]:
    """Return the tokens of the highest logits with these, best first; the row is left as it was.

    A few searches for the maximum take a fraction of a sort.
    """
    found: list[tuple[int, float]] = []
    for _ in range(min(count, logits.size)):
        token = int(logits.argmax())
        found.append((token, logits.item(token)))
        logits[token] = -math.inf
    for token, value in found:
        logits[token] = value
    return found
