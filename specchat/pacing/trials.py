"""Finding out whether drafting pays, and at which lengths: what it may cost, and when it is due."""

import math

from specchat.passes.pass_costs import MAX_SURPRISE, PLAIN, SETTLED, PassCosts

INITIAL_BUDGET, BUDGET_SHARE, MAX_BUDGET = 1.0, 0.015, 8.0
"""In tokens of plain decoding: at first, for each emitted token, and at most."""
LITTLE_GAIN = 1.25
"""Drafting that promises less than this, over the rate of plain decoding, is checked against it."""
PLAIN_INTERVAL, SETTLING_INTERVAL = 64, 512
"""A step in each of the first interval is plain for that, and in each of the second as many in a
row as show what plain decoding settles to."""


class TrialBudget:
    """The time that may be spent on trials, in tokens of plain decoding.

    It grows with each emitted token and with what trials gain. It pays for the time they take, and
    for what the plain steps behind them take longer. Without it, drafting that never quite pays
    would be tried again and again. One trial may overdraw it, as its cost is only known afterwards.
    """

    def __init__(self) -> None:
        self._tokens = INITIAL_BUDGET
        self._num_settling, self._plain = 0, 1.0

    def grow(self, num_tokens: int) -> None:
        """Grow by the share of emitted tokens."""
        self._tokens = min(self._tokens + BUDGET_SHARE * num_tokens, MAX_BUDGET)

    def steps_until(self, price: float) -> int:
        """Return in how many plain steps the budget allows a trial of this price; 0 for now."""
        return math.ceil(max(0.0, price - self._tokens) / BUDGET_SHARE)

    def pay(self, num_tokens: int, seconds: float, plain: float) -> None:
        """Pay for a trial that emitted tokens in this time; `plain` is that of a plain step."""
        self._tokens += num_tokens - seconds / plain
        self._num_settling, self._plain = SETTLED, plain

    def pay_settling(self, seconds: float) -> None:
        """Pay for what a plain step takes longer if a trial was made shortly before."""
        if self._num_settling:
            self._num_settling -= 1
            self._tokens -= min(seconds / self._plain, MAX_SURPRISE) - 1.0

    def settle(self) -> None:
        """Pay for no more plain steps: drafting that was no trial has gone before them."""
        self._num_settling = 0


def is_plain_due(num_steps: int, costs: PassCosts, depth: int, rate: float) -> bool:
    """Whether to look what a plain step takes: none was made lately, and drafting pays little.

    Were one believed to take longer than it does, drafting could go on at a loss. `rate` is what
    drafting promises, in tokens per second.
    """
    place = SETTLING_INTERVAL - num_steps % SETTLING_INTERVAL
    is_due = place % PLAIN_INTERVAL == PLAIN_INTERVAL // 2 and costs.is_stale(1)
    is_due = is_due or (place <= SETTLED + 1 and costs.is_stale(PLAIN))
    return is_due and rate * costs.seconds(PLAIN, depth) < LITTLE_GAIN
