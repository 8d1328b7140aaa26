"""The prediction head as drafter: a layer of the target's own that runs ahead of it."""

import sys
from collections.abc import Sequence

from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import DraftToken
from specchat.drafting import draft_model, suffix
from specchat.drafting.combined import CombinedDrafter
from specchat.drafting.draft_model import DraftModelDrafter
from specchat.drafting.factory import Materials


class HeadDrafter(DraftModelDrafter):
    """Drafts with a head, which has read what the target has, up to the last few tokens."""

    origin = "head"
    short_memories = (sys.maxsize,)

    def propose(self, pacer: Pacer, after: Sequence[int] = ()) -> list[DraftToken]:
        """Draw tokens to follow the text; none `after` others, which the target has not read."""
        return [] if after else super().propose(pacer)


def make(materials: Materials) -> DraftModelDrafter:
    """Return a drafter for a prediction head."""
    return draft_model.make(materials, HeadDrafter)


def make_combined(materials: Materials) -> CombinedDrafter:
    """Return a drafter that combines suffix lookup and the head."""
    return CombinedDrafter(suffix.make(materials), make(materials))
