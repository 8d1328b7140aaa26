"""What a draft model nearly drafted in place of each token, and what would follow that.

Branches beside a draft cost no draft pass. What follows them is known if they are read together
with the draft, each on its own path: a full tree, as in EAGLE-2 (Li et al. 2024, arXiv 2406.16858)
and OPT-Tree (Wang et al. 2024, arXiv 2406.17276), which grow where tokens are likeliest.
"""

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
    """The branches beside one draft, and behind these.

    At temperature 0 they are the next best tokens. With a seed they are the next to be drawn with
    the target's noise, and without one the likeliest: where a drawn token is rejected, the target
    wants what it finds likelier than the draft model does.
    """

    def __init__(self, task: DraftTask, tokens: TokenMap, origin: str) -> None:
        """Find none yet, for an answer."""
        self._task, self._map, self._origin = task, tokens, origin
        self.found: list[Branch] = []
        self.unread: set[int] = set()

    def clear(self) -> None:
        """Forget the branches of the last draft."""
        self.found, self.unread = [], set()

    def leave_out(self, token: int, fork: int) -> None:
        """Read no branch that was drafted itself."""
        drafted = {
            number for number in self.unread
            if self.found[number][:2] == (token, fork) and self.found[number].behind < 0
        }  # fmt: skip
        self.unread -= drafted

    def tokens_to(self, number: int) -> list[int]:
        """Return the tokens of the branches that lead to one, its own included."""
        line: list[int] = []
        while number >= 0:
            line.insert(0, self.found[number].token)
            number = self.found[number].behind
        return line

    def add(
        self,
        logits: Logits,
        distribution: Distribution,
        index: int,
        fork: int,
        count: int,
        behind: int = -1,
    ) -> None:
        """Add up to `count` branches beside the next token, behind `fork` drafted ones.

        With `behind`, they follow that branch instead, and are one more. `logits` is the draft
        model's row there and `distribution` what it makes of it, in the target's tokens. `index`
        counts from the answer's first token. The token to be drafted next may be among them.
        """
        first = len(self.found)
        likely: Sequence[tuple[int, float]]
        if len(distribution) == 1:
            likely = self._next_best(logits, count + 1, is_beside=behind < 0)
        else:
            likely = self._task.ranked(distribution, index, count + 1)
        self.found += [Branch(token, fork, self._origin, share, behind) for token, share in likely]
        self.unread.update(range(first, len(self.found)))

    def _next_best(self, logits: Logits, count: int, *, is_beside: bool) -> list[tuple[int, float]]:
        """Return the tokens of the highest logits, each with its share.

        Beside a draft, which has the best one, that is the share of what follows it.
        """
        best = highest(logits, count)
        if not best or not math.isfinite(best[0][1]):
            return []
        shares = [math.exp(value - best[0][1]) for _, value in best if value > best[0][1] - WIDTH]
        ids = np.array([token for token, _ in best[: len(shares)]])
        named = self._map.named(Distribution(ids, np.array(shares))).ids.tolist()
        others = sum(shares[is_beside:]) + shares[-1]  # those not looked at count as one more
        return [
            (token, min(1.0, share / others)) for token, share in zip(named, shares, strict=True)
        ]


def highest(logits: Logits, count: int) -> list[tuple[int, float]]:
    """Return the tokens of the highest logits with these, best first; the row is left as it was.

    There may be fewer than asked for. A few searches for the maximum take a fraction of a sort.
    """
    found: list[tuple[int, float]] = []
    for _ in range(min(count, logits.size)):
        token = int(logits.argmax())
        value = logits.item(token)
        if value == -math.inf:  # no others may come
            break
        found.append((token, value))
        logits[token] = -math.inf
    for token, value in found:
        logits[token] = value
    return found
