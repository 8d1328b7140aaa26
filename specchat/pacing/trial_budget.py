"""What finding out whether drafting pays, and in which lengths, may cost."""

from __future__ import annotations

__all__ = ["Allowance"]

AT_FIRST = 1.0
SHARE = 0.0175
MOST = 8.0


class Allowance:
    """An account in tokens of plain decoding: so many at first, then a share of what is emitted.

    Without it a draft model that never quite pays would be tried for ever. What trying gains may be
    spent on it too. It may be overdrawn by one step, as nobody knows before what that will gain.
    """

    def __init__(self) -> None:
        """Start with what may be spent at once."""
        self._tokens = AT_FIRST

    def covers(self, cost: float) -> bool:
        """Say whether so many tokens may be spent now."""
        return self._tokens >= cost

    def settle(self, gain: float) -> None:
        """Hear what a step of trying gained over plain decoding, or cost where it is negative."""
        self._tokens += gain

    def earn(self, num_emitted: int) -> None:
        """Hear of emitted tokens."""
        self._tokens = min(self._tokens + SHARE * num_emitted, MOST)
