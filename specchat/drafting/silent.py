"""The drafter that proposes nothing: plain decoding."""

from __future__ import annotations

from collections.abc import Sequence

from specchat.decoding.ports import Task, TellProgress
from specchat.decoding.proposal import NOTHING, Proposal
from specchat.drafting.registry import Materials
from specchat.pacing.pacer import Pacer

__all__ = ["SilentDrafter", "make"]


def make(_: Materials) -> SilentDrafter:
    """Return a drafter for plain decoding."""
    return SilentDrafter()


class SilentDrafter:
    """Never proposes anything, so every step emits one token of the target's own."""

    def begin(self, task: Task, tell: TellProgress | None = None) -> None:
        """Need nothing."""

    def propose(self, pace: Pacer) -> Proposal:
        """Propose nothing."""
        del pace
        return NOTHING

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Learn nothing."""

    def close(self) -> None:
        """Hold nothing."""
