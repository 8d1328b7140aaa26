"""When to try what does not seem to pay, so that pacing finds out if it would, and at what cost.

Three things are explored: draft passes of a drafter that was given up, lengths of passes that were
not measured for long, and plain steps where every step drafts. What is never tried is never
measured, so a wrong belief would last (exploration and exploitation; Auer et al. 2002).
"""

import math

from specchat.pacing.draft_economics import DraftEconomics
from specchat.passes.pass_costs import MAX_SURPRISE, PLAIN, SETTLED, PassCosts

INITIAL_BUDGET, BUDGET_SHARE, MAX_BUDGET = 1.0, 0.015, 8.0
"""In tokens of plain decoding: at first, for each emitted token, and at most."""
PASS_INTERVAL = 4
"""Of steps without draft passes, those that may explore one."""
COST_INTERVAL, COST_STEPS = 32, 2
"""Of COST_INTERVAL steps, COST_STEPS assume costs as low as they may be. Two in a row: the first
pass of a length takes longer than the ones that follow."""
LITTLE_GAIN = 1.25
"""Drafting that promises less than this, over the rate of plain decoding, is checked against it."""
PLAIN_INTERVAL, SETTLING_INTERVAL = 64, 512
"""A step in each of the first interval is plain for that, and in each of the second as many in a
row as show what plain decoding settles to."""
SILENT_STEPS = 4
"""After as many steps without a draft pass, drafting counts as given up for now."""

FIRST_DOUBT, DOUBT_FACTOR = 32, 4
"""What passes of answers seemed to cost is doubted after as many steps, then after that many times
as many: a bad beginning on a busy machine is overcome, and in the long run it costs nothing."""


class Exploration:
    """Counts steps, and the time that exploration may take, in tokens of plain decoding.

    That budget grows with each emitted token and with what exploration gains. It pays for the time
    exploration takes, and for what the plain steps behind it take longer. Without it, drafting that
    never quite pays would be tried again and again. One step may overdraw it, as its cost is only
    known afterwards.
    """

    def __init__(self) -> None:
        self._budget = INITIAL_BUDGET
        self._num_charged, self._plain_seconds = 0, 1.0
        self._num_steps = self._num_unasked = self._num_plain = 0
        self._since_pass = self._since_use = self._affordable_at = 0
        self._has_declined = False
        self._doubt_at = FIRST_DOUBT

    # --- what happened

    def begin_answer(self) -> None:
        """Begin an answer: the steps before it say little about its first ones."""
        self._num_plain, self._has_declined = 0, False

    def begin_anew(self) -> None:
        """Explore once more as in a new pair, whatever exploring cost so far."""
        self._budget = max(self._budget, INITIAL_BUDGET)
        self._doubt_at *= DOUBT_FACTOR

    def pay(self, num_emitted: int, seconds: float, plain: float) -> None:
        """Pay for a step that explored and emitted tokens; `plain` is the time of a plain step."""
        self._budget += num_emitted - seconds / plain
        self._num_charged, self._plain_seconds = SETTLED, plain

    def end_unasked_step(self, seconds: float) -> None:
        """Count a plain step in which no drafter asked for anything."""
        self._count_step()
        self._end_plain(seconds)
        self._num_unasked += 1

    def end_step(self, step: DraftEconomics, num_emitted: int, seconds: float) -> None:
        """Count a step with its time without drafting; one that explored has been paid for."""
        self._count_step()
        if step.has_drafted:
            self._num_plain, self._has_declined = 0, False
            if not step.is_exploration:
                self._since_use = self._num_charged = 0
        else:
            self._end_plain(seconds)
            self._has_declined = step.limit > 0
        self._earn(num_emitted)
        if step.draft_seconds:
            self._since_pass = self._affordable_at = 0

    def settle(self) -> int:
        """Return how many steps in which no drafter asked are not accounted for, and do so."""
        num_unasked, self._num_unasked = self._num_unasked, 0
        self._earn(num_unasked)
        return num_unasked

    def _end_plain(self, seconds: float) -> None:
        """Pay for what a plain step takes longer if exploration has gone before it."""
        self._num_plain += 1
        if self._num_charged:
            self._num_charged -= 1
            self._budget -= min(seconds / self._plain_seconds, MAX_SURPRISE) - 1.0

    def _count_step(self) -> None:
        self._num_steps += 1
        self._since_pass += 1
        self._since_use += 1

    def _earn(self, num_tokens: int) -> None:
        self._budget = min(self._budget + BUDGET_SHARE * num_tokens, MAX_BUDGET)

    # --- what may be explored now

    @property
    def plain_entry(self) -> int | None:
        """The entry of a table of costs that a plain step now belongs to.

        One right after drafting takes longer than plain decoding does; those between say nothing.
        """
        if self._num_plain >= SETTLED:
            return PLAIN
        return None if self._num_plain else 1

    @property
    def is_silent(self) -> bool:
        """Whether no draft pass was made for some steps."""
        return self._since_pass >= SILENT_STEPS

    @property
    def is_for_costs(self) -> bool:
        """Whether this is one of the steps that explore what passes cost."""
        return self._num_steps % COST_INTERVAL >= COST_INTERVAL - COST_STEPS

    @property
    def is_doubt_due(self) -> bool:
        """Whether to doubt, from this step on, what passes seemed to cost up to here."""
        return self._num_steps >= self._doubt_at

    @property
    def num_missed(self) -> int:
        """The least number of tokens that the next draft pass has to read."""
        return 1 + self._since_pass

    @property
    def is_resting(self) -> bool:
        """Whether drafting did not pay in the last step, and nothing is to be explored in this."""
        if not self._has_declined:
            return False
        if self._since_pass < self._affordable_at:
            return True
        return self._since_pass % PASS_INTERVAL > 0 and not self.is_for_costs

    def affords(self, price: float) -> bool:
        """Whether the budget allows a step of this price, in tokens of plain decoding."""
        return price <= self._budget

    def affords_pass(self, price: float) -> bool:
        """Whether a draft pass of this price may be explored in this step.

        If the budget does not allow it, none is considered until it may.
        """
        if self._since_pass % PASS_INTERVAL:
            return False
        if self.affords(price):
            return True
        num_steps = math.ceil((price - self._budget) / BUDGET_SHARE)
        longest = min(self._since_use // PASS_INTERVAL, COST_INTERVAL)
        self._affordable_at = self._since_pass + min(num_steps, longest)
        return False

    def is_plain_due(self, costs: PassCosts, depth: int, rate: float) -> bool:
        """Whether to check what a plain step takes: none was made lately, and drafting pays little.

        Were one believed to take longer than it does, drafting could go on at a loss. `rate` is
        what drafting promises, in tokens per second.
        """
        index = SETTLING_INTERVAL - self._num_steps % SETTLING_INTERVAL
        is_due = index % PLAIN_INTERVAL == PLAIN_INTERVAL // 2 and costs.is_stale(1)
        is_due = is_due or (index <= SETTLED + 1 and costs.is_stale(PLAIN))
        return is_due and rate * costs.seconds(PLAIN, depth) < LITTLE_GAIN
