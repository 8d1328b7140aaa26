"""What it may cost to find out whether drafting pays, and at which lengths."""

INITIAL = 1.0
SHARE = 0.0175
MAXIMUM = 8.0


class TrialBudget:
    """A budget in tokens of plain decoding that grows with each emitted token.

    Without it, drafting that never quite pays would be tried again and again. Gains from
    trials add to it. One trial may overdraw it, as its cost is only known afterwards.
    """

    def __init__(self) -> None:
        """Start with the initial budget."""
        self._tokens = INITIAL

    def covers(self, cost: float) -> bool:
        """Whether this many tokens may be spent now."""
        return self._tokens >= cost

    def settle(self, gain: float) -> None:
        """Add what a trial gained over plain decoding; negative if it cost more."""
        self._tokens += gain

    def earn(self, num_emitted: int) -> None:
        """Grow with emitted tokens."""
        self._tokens = min(self._tokens + SHARE * num_emitted, MAXIMUM)
