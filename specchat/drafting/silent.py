"""The drafter that proposes nothing: plain decoding."""

from collections.abc import Sequence

from specchat.decoding.ports import Drafter, DraftTask, Pacer
from specchat.decoding.proposal import DraftToken
from specchat.drafting.factory import Materials


class SilentDrafter(Drafter):
    """Proposes nothing, so every step emits one token from the target."""

    def begin(self, task: DraftTask) -> None:
        """Do nothing."""

    def propose(self, pacer: Pacer) -> Sequence[DraftToken]:
        """Propose nothing."""
        del pacer
        return ()

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Do nothing."""


def make(_: Materials) -> SilentDrafter:
    """Return a drafter for plain decoding."""
    return SilentDrafter()
