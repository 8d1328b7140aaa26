"""The prediction head as drafter: a layer of the target's own that runs ahead of it."""

import sys
from collections.abc import Sequence

from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import DraftToken
from specchat.drafting import draft_model, suffix
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.factory import Materials

MOST_IN_VAIN = 64
UNFIT = (
    f"the prediction head does not fit this target: none of its first {MOST_IN_VAIN} drafts was"
    " accepted; choose the one that belongs to the target"
)


class HeadDrafter(DraftModelDrafter):
    """Drafts with a head, which has read what the target has, up to the last few tokens.

    It drafts no more once MOST_IN_VAIN drafts, those that the pacer declined included, were wrong
    from their first token on and none was right.
    """

    origin = "head"
    short_memories = (sys.maxsize,)
    _num_in_vain = 0

    def propose(self, pacer: Pacer, after: Sequence[int] = ()) -> list[DraftToken]:
        """Draw tokens to follow the text; none `after` others, which the target has not read."""
        return [] if after or self.unfit_reason else super().propose(pacer)

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Also find out whether the head fits the target."""
        if self._is_ahead:
            is_right = emitted[0] in {*self._drafted[:1], self._first.best()}
            self._num_in_vain = -sys.maxsize if is_right else self._num_in_vain + 1
            self.unfit_reason = UNFIT if self._num_in_vain >= MOST_IN_VAIN else None
        super().observe(emitted, num_accepted)


def make(materials: Materials) -> DraftModelDrafter:
    """Return a drafter for a prediction head."""
    return draft_model.make(materials, HeadDrafter)


def make_combined(materials: Materials) -> CombinedDrafter:
    """Return a drafter that combines suffix lookup and the head."""
    return CombinedDrafter(suffix.make(materials), make(materials))
