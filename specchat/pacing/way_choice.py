"""Which way to draft for some steps: the one that promises most, plain decoding among them.

What was given up is seen again in two ways, both within a credit of time that is kept between
processes, so that a hopeless drafter cannot overdraw it: a *look* makes one draft pass and drafts
nothing, and where a whole run seems to lose little, that is *tried*. While drafting pays, short
*checks* of plain steps show what plain decoding takes.
"""

from specchat.pacing.knowledge import MOST_CREDIT, Knowledge
from specchat.pacing.recent_drafts import PastDraft, StepSeconds, Way
from specchat.passes.pass_costs import PLAIN, Seconds

RUN, FEW_DRAFTS = 6, 8
"""Steps of one way in a row; while fewer drafts are known, each step chooses anew."""
CLEARLY = 1.02
"""Another way is chosen if it promises this many times the rate of the present one."""
PLAIN_RUN, PLAIN_SHARE, FIRST_CREDIT, LEAST_INTERVAL = 4, 0.007, 1.25, 24
"""Plain steps in a row while drafting pays, the share of the time that they may cost over all
answers, what they may cost at first, in tokens, and the steps before such a run at least."""
CREDIT_SHARE = 0.005
"""What each token earns for looking back, in tokens of plain decoding."""
MOST_LOST = 1.0
"""The tokens that a run may seem to lose and be tried all the same, within the credit. Where drafts
pay by little, looks alone reached 0.94 of the best constant length in simulations, both 0.98."""


class WayChoice:
    """The way that the next steps draft with passes of one origin, at one temperature.

    `way` is the way, `gain` how many times as fast as plain decoding it promises to be. A step that
    `checks_plain` is plain whatever pays. Unless it `may_look_back`, what was given up is not seen
    again.
    """

    may_look_back = True

    def __init__(self, knowledge: Knowledge, name: str, origin: str) -> None:
        """Choose for an origin of draft passes, "" for none; `name` is that at a temperature."""
        self._knowledge, self._name, self._origin = knowledge, name, origin
        self._plain = f"{name} plain"
        knowledge.credits.setdefault(self._plain, FIRST_CREDIT)
        self.drafts = knowledge.drafts_of(name)
        self.way, self.gain, self.checks_plain = Way(), 1.0, False
        self._best, self._gain_of_best = Way(), 0.0  # of the ways that draft, but the chosen one
        self._num_left, self._has_news, self._chosen_from = 0, True, 0
        self._tries = self._has_checked = False
        self._since_look, self._since_check = 1, 0

    # --- at each step

    def begin_answer(self, depth: int) -> None:
        """Choose for the first step of an answer."""
        self._num_left, self._has_news = 0, True
        self._choose(depth, self._knowledge.longest)

    def begin_step(self, depth: int, limit: int) -> None:
        """Choose if a run is over; a step may draft up to `limit` tokens."""
        if not self._origin:  # there is no choice
            return
        if self._num_left <= 0:
            self._begin_run(depth, limit)
        self._num_left -= 1

    def add(self, draft: PastDraft, *, is_look: bool) -> None:
        """Learn from a draft whose first chance is known."""
        self.drafts.add(draft, is_look=is_look)
        self._has_news = True

    def end_step(self, num_emitted: int, *, is_plain: bool, looked: float | None = None) -> None:
        """Count a step; one that looked cost so many tokens of plain decoding."""
        if looked is not None:
            self._spend(self._name, looked)
        elif self._origin:
            self._spend(self._name, -CREDIT_SHARE * num_emitted)
        self._since_look = 0 if looked is not None else self._since_look + 1
        self._since_check = 0 if is_plain else self._since_check + 1
        if not is_plain:
            self._has_news = True  # also where the text is known, and only times are learned
            self._spend(self._plain, -PLAIN_SHARE * num_emitted / max(self.gain, 1.0))

    # --- what is given up

    def may_look(self, num_tokens: int, depth: int) -> bool:
        """Whether to make a draft pass only to see what would have been accepted.

        Its token is not drafted: verification shows whether it would have been right. Where a whole
        run seems to lose little, that is tried instead, which shows more.
        """
        if self.checks_plain or not self.may_look_back:
            return False
        if not self._knowledge.verifying.is_known or self._lost_by_trying <= MOST_LOST:
            return False
        return self._price_of_reading(num_tokens, depth) <= self._credit

    def may_catch_up(self, num_tokens: int, depth: int) -> bool:
        """Whether the drafter may first read many tokens that it missed; a try pays for that."""
        if not self._tries:
            return True
        price = self._price_of_reading(num_tokens, depth)
        if price > self._credit:
            return False
        self._spend(self._name, price)
        return True

    def _price_of_reading(self, num_tokens: int, depth: int) -> float:
        seconds = self._knowledge.catching_up(self._origin, num_tokens, depth)
        return seconds / self._knowledge.verifying.seconds(PLAIN, depth)

    @property
    def _lost_by_trying(self) -> float:
        """The tokens that a run of the best way to draft seems to lose against plain decoding."""
        return RUN * (1.0 - self._gain_of_best) if self._best.length else RUN

    def _try_again(self) -> None:
        """Draft for a run if that seems to lose little: what was learned may be chance."""
        lost = self._lost_by_trying
        if lost <= min(self._credit, MOST_LOST) and self._since_look > RUN:
            self._spend(self._name, max(0.0, lost))
            self.way, self.gain, self._since_look = self._best, self._gain_of_best, 0
            self._tries = True

    @property
    def _credit(self) -> float:
        return self._knowledge.credits[self._name]

    def _spend(self, name: str, tokens: float) -> None:
        """Take these from a credit; fewer than none are earned."""
        left = self._knowledge.credits[name] - tokens
        self._knowledge.credits[name] = min(max(left, -MOST_CREDIT), MOST_CREDIT)

    # --- the choice

    def _begin_run(self, depth: int, limit: int) -> None:
        """Choose what the next steps do."""
        self.checks_plain, self._tries = self._is_plain_due(depth), False
        if self.checks_plain:
            self._num_left, self._since_check, self._has_checked = PLAIN_RUN, 0, True
            return
        self._choose(depth, min(limit, self._knowledge.longest))
        if self.may_look_back and not self.way.length:
            self._try_again()
        self._num_left = RUN if len(self.drafts) >= FEW_DRAFTS else 1

    def _is_plain_due(self, depth: int) -> bool:
        """Whether to see again what plain steps take, at the price of what drafting brings.

        The first one after others takes longer, as changes of length do, and then the drafter has
        them to read. Where nothing was measured, some are made after the first run at any price.
        """
        is_first = not (self._has_checked or self._knowledge.target.is_known)
        if not self.way.length or self._since_check < (RUN if is_first else LEAST_INTERVAL):
            return False
        verifying = self._knowledge.verifying
        lost = PLAIN_RUN * (1.0 - 1.0 / max(self.gain, 1.0))
        first = (1.0 + 2.0 * self._knowledge.change) * verifying.seconds(1, depth)
        lost += first / verifying.seconds(PLAIN, depth) - 1.0
        lost += self._price_of_reading(PLAIN_RUN + 1, depth) - self._price_of_reading(1, depth)
        if lost > self._knowledge.credits[self._plain] and not is_first:
            return False
        self._spend(self._plain, lost)
        return True

    def _choose(self, depth: int, longest: int) -> None:
        """Choose the way to draft, unless nothing is known that was not before."""
        if not self._knowledge.verifying.is_known:
            return
        if not self._has_news and longest == self._chosen_from:
            return
        self._has_news, self._chosen_from = False, longest
        gains = self._gains(depth, longest, self._knowledge.verifying.seconds)
        best = max(gains, key=gains.__getitem__)
        if gains[best] > CLEARLY * gains.get(self.way, 0.0):
            self.way = best
        self.gain = gains.pop(self.way)
        gains.pop(Way(), None)
        self._best = max(gains, key=gains.__getitem__, default=Way())
        self._gain_of_best = gains.get(self._best, 0.0)

    def lengths(self, depth: int, longest: int, other: Seconds) -> tuple[float, float]:
        """Return how many tokens drafts have on average, and how many if passes took other seconds.

        Both are the same where other drafts would gain next to nothing.
        """
        own, others = (
            self._gains(depth, longest, seconds)
            for seconds in (self._knowledge.verifying.seconds, other)
        )
        best, best_of_others = (max(gains, key=gains.__getitem__) for gains in (own, others))
        if others[best_of_others] <= CLEARLY * others[best]:
            best_of_others = best
        length, other_length = map(self.drafts.mean_length, (best, best_of_others))
        return length, other_length

    def _gains(self, depth: int, longest: int, verifying: Seconds) -> dict[Way, float]:
        """Return how many times as fast as plain decoding each way to draft promises to be.

        `verifying` has the seconds of the target's passes.
        """
        knowledge = self._knowledge
        if not self._origin or not longest:
            return {Way(): 1.0}
        drafting, counts = knowledge.drafting(self._origin), range(1, longest + 1)
        passes = [1 if knowledge.drafts_blocks else count for count in counts]
        seconds = StepSeconds(
            [verifying(count, depth) for count in range(1, longest + 2)],
            [0.0, *(drafting.seconds(count, depth) for count in passes)],
            knowledge.change * verifying(1, depth),
        )
        plain, rates = verifying(PLAIN, depth), self.drafts.rates(seconds)
        return {Way(): 1.0} | {way: rate * plain for way, rate in rates.items()}
