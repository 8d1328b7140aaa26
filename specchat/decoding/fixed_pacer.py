"""The pacer of a fixed draft length."""

from collections.abc import Iterable, Sequence
from itertools import accumulate
from operator import mul

from specchat.decoding.draft_tree import chances_of, likeliest
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.decoding.verification import TargetAt, Verdict

LEAST_CHANCE = 0.02
"""Tokens that cost no pass are drafted while the probability of accepting all is at least this."""
USUAL_ACCEPTANCE = 0.75
"""The acceptance rate expected of drafters that make a pass for each token."""


class FixedPacer:
    """Drafts as many tokens as allowed, whatever they cost, and learns nothing.

    Tokens that cost no pass are left out if they are hardly ever right. `room` is the number of
    tokens that may still be drafted in this step. Decisions do not depend on time, so the same
    random numbers give the same text.
    """

    needs_confidence = False
    num_siblings = 7
    """Branches beside each drafted token, from which the likeliest are taken."""

    def __init__(self, limit: int = 0) -> None:
        """Allow `limit` tokens until the first step begins."""
        self.room = limit

    def expects_drafting(self, depth: int) -> bool:
        """Return True: every step drafts."""
        del depth
        return True

    def begin_step(self, depth: int, limit: int, num_forced: int = 0, num_sharing: int = 1) -> None:
        """Begin a step that drafts up to `limit` tokens."""
        del depth, num_forced, num_sharing
        self.room = limit

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Whether there is room for one more token."""
        del origin, num_tokens
        return self.room > 0

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Count the token and return True."""
        del origin, hint
        self.room -= 1
        return True

    def take(self, origin: str, hints: Iterable[Hint], rival: str | None = None) -> int:
        """Return the number of tokens likely to be accepted; 0 if draft passes promise more."""
        del origin
        room = range(1, self.room + 1)
        chances = accumulate([hint.confidence for _, hint in zip(room, hints, strict=False)], mul)
        likely = [chance for chance in chances if chance >= LEAST_CHANCE]
        if rival and sum(likely) <= sum(USUAL_ACCEPTANCE**length for length in room):
            return 0
        self.room -= len(likely)
        return len(likely)

    def make_room(self, num_forced: int) -> None:
        """Count forced tokens: a draft with them is no longer than one without."""
        self.room -= num_forced

    def choose_branches(
        self, draft: Sequence[DraftToken], branches: Sequence[Branch], most: int
    ) -> Sequence[int]:
        """Return the likeliest branches, if drafts break at the usual acceptance rate."""
        chances = chances_of([USUAL_ACCEPTANCE] * len(draft), branches)
        return likeliest(chances, most)

    def learn(
        self,
        draft: Sequence[DraftToken],
        target: TargetAt,
        verdict: Verdict,
        branches: Sequence[Branch] = (),
    ) -> None:
        """Do nothing."""

    def end_step(
        self, emitted: Sequence[int], seconds: float, num_drafting: int = 0, num_longest: int = 0
    ) -> None:
        """Do nothing."""
