"""The drafter that proposes nothing: plain decoding."""

from specchat.decoding.ports import Drafter, Pacer
from specchat.decoding.proposal import NOTHING, Proposal
from specchat.drafting.factory import Materials


class SilentDrafter(Drafter):
    """Proposes nothing, so every step emits one token of the target's own."""

    def propose(self, pacer: Pacer) -> Proposal:
        """Propose nothing."""
        del pacer
        return NOTHING


def make(_: Materials) -> SilentDrafter:
    """Return a drafter for plain decoding."""
    return SilentDrafter()
