"""Which branches beside a draft a pass should verify.

A branch brings its chance to be accepted and costs what the target's pass takes longer, both in
tokens: a second is worth as many of them as the present rate makes in it,

    gain(n) = worth * (chance of the first + ... + chance of the n-th) - (price(k + n) - price(k))

As passes go up in steps, a branch may only pay together with others, so all numbers of them are
compared.
"""

from collections.abc import Callable, Sequence
from typing import TypeAlias

from specchat.decoding.draft_tree import chances_of, likeliest
from specchat.decoding.proposal import Branch, DraftToken
from specchat.pacing.calibration import Calibration

BESIDE, BEHIND = " beside", " behind"
"""Added to an origin: branches beside a draft, and those behind others, are right as often as their
own kind."""
NUM_SIBLINGS = 3
"""Branches looked for beside each drafted token: a fourth is rarely right."""
LONG_IDLE, LOOK_INTERVAL = 32, 8
"""After so many steps in which no branch was chosen, they are looked for in each eighth only."""

Price: TypeAlias = Callable[[int], float]
"""Returns the tokens that a pass costs, by its number of tokens: each takes time to work out."""


class BranchPacing:
    """Chooses branches and learns which were right."""

    def __init__(self, calibration_of: Callable[[str], Calibration]) -> None:
        """Learn how right branches are by their kind, an origin with BESIDE or BEHIND."""
        self._calibration_of = calibration_of
        self._num_idle = self.num_chosen = 0
        self._offered: tuple[Sequence[DraftToken], Sequence[Branch]] = ((), ())

    def begin_step(self) -> None:
        """Begin a step."""
        self._num_idle = 0 if self.num_chosen else self._num_idle + 1
        self.num_chosen, self._offered = 0, ((), ())

    @property
    def num_siblings(self) -> int:
        """How many branches beside each token to look for in this step."""
        looks = self._num_idle < LONG_IDLE or self._num_idle % LOOK_INTERVAL == 0
        return NUM_SIBLINGS if looks else 0

    def choose(
        self,
        draft: Sequence[DraftToken],
        branches: Sequence[Branch],
        most: int,
        chain: Sequence[float],
        price: Price,
    ) -> Sequence[int]:
        """Return the numbers of the branches, up to `most`, that bring more than they cost."""
        self._offered = draft, branches
        own = [self._of(branch).chance(branch.confidence) for branch in branches]
        chances = chances_of(chain, branches, own)
        order = likeliest(chances, most)
        # an accepted branch is read again with the next pass, in the text
        worth = 1.0 - max(0.0, price(2) - price(1))
        count = best_number([chances[number] for number in order], price, len(draft) + 1, worth)
        self.num_chosen = count
        return order[:count]

    def drawn(self, draft: Sequence[DraftToken], branches: Sequence[Branch]) -> None:
        """Note branches that were drawn in place of those chosen."""
        self._offered, self.num_chosen = (draft, branches), len(branches)

    def learn(self, emitted: Sequence[int]) -> None:
        """Learn which branches were right where the target left the draft, chosen or not."""
        draft, offered = self._offered
        if not offered:
            return
        fork = 0
        for drafted, token in zip(draft, emitted, strict=False):
            if drafted.token != token:
                break
            fork += 1
        followed = -1  # the branch that the target went on with
        for token in emitted[fork:]:
            right = -1
            for number, branch in enumerate(offered):
                if branch.behind == followed and (followed >= 0 or branch.fork == fork):
                    is_right = branch.token == token
                    self._of(branch).observe(branch.confidence, float(is_right))
                    right = number if is_right else right
            if right < 0:
                return
            followed = right

    def _of(self, branch: Branch) -> Calibration:
        return self._calibration_of(branch.origin + (BESIDE if branch.behind < 0 else BEHIND))


def best_number(chances: Sequence[float], price: Price, num_before: int, worth: float = 1.0) -> int:
    """Return how many branches, the likeliest first, bring the most for what they cost.

    `price` is that of a pass by its number of tokens, `num_before` of which are others. An accepted
    token is worth `worth` tokens.
    """
    best, number, brought, before = 0.0, 0, 0.0, price(num_before) if chances else 0.0
    for count, chance in enumerate(chances, 1):
        brought += chance * worth
        gain = brought - price(num_before + count) + before
        if gain > best:
            best, number = gain, count
    return number
