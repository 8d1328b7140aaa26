"""How much to draft, decided before each token is drawn.

A step that drafts k tokens emits 1 + S(1) + ... + S(k) of them on average, S(i) being the chance
that the first i are kept, and takes the time of its draft passes and of one target pass over k + 1
tokens. The best rate of tokens per second R is reached by going on as long as what a longer draft
brings, in tokens, exceeds R times what it takes, in seconds (Dinkelbach 1967, for ratios of this
kind). As the cost of the target pass is a staircase, the end of a draft may only pay several tokens
further on, so the decision looks ahead. Drafting nothing is one of the choices. R is what the best
length promises by what is believed now, not what the last steps made: after a lucky one nothing
would seem to pay, and least of all the long drafts it owed its luck to.

Everything a decision looks at is known before the token it is about is drawn, so that the text
keeps its distribution (DESIGN: decide before you draw).
"""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter

from specchat.decoding.distribution import LARGEST_TABLE
from specchat.decoding.proposal import DraftToken, Hint
from specchat.decoding.verification import TargetAt, Verdict
from specchat.pacing.acceptance import AcceptanceModel
from specchat.pacing.draft_gain import (
    POSITION_FEATURES,
    DraftEconomics,
    best_rate,
    means,
    position_feature,
)
from specchat.pacing.knowledge import LONGEST_KNOWN, Knowledge
from specchat.pacing.trial_budget import Allowance

__all__ = ["LearningPacer"]

FEW, ENOUGH = 2, 4
"""Before the fate of few tokens is known, the draft model is watched, not used; before that of
enough it is not given up: the first tokens of an answer may be its worst."""
LOOKING_INTERVAL = 4
"""Plain steps between two thoughts about it."""
LONGEST_UNASKED = 32
"""After more steps in which nobody asked for the draft model it is not in use."""
LENGTH_MEMORY = 0.97
"""Weight of the past in how long passes are of late: about thirty steps."""
LEAST_CHANCE = 0.02
"""Tokens of a passage are looked at while they are at least so likely to be kept together."""
TRIAL_INTERVAL, TRIAL_STEPS = 32, 2
"""In so many of so many steps costs are taken to be as low as they may be. Two in a row: the first
pass of a length takes longer than the ones that follow."""


class LearningPacer:
    """Decides how much of what to draft, step by step, and learns from every step.

    Proposals that cost draft passes are told from those that cost none by the question asked of
    them. Of the former those of one origin are in use at a time, the last one asked about.
    """

    def __init__(self, knowledge: Knowledge, *, is_greedy: bool, pass_origin: str = "") -> None:
        """Decide by what is known of a pair, at temperature 0 or above it.

        `pass_origin` names the origin whose proposals cost passes, until one is asked about.
        """
        self._knowledge = knowledge
        self._is_greedy = is_greedy
        self._origin = pass_origin or next(iter(knowledge.drafts), "")
        if pass_origin:
            knowledge.costs_of(pass_origin)
        self._last_pass, self._usual = 0, [0.0] * (LONGEST_KNOWN + 1)
        self._allowance = Allowance()
        self._is_trial = False
        self._since_draft = self._num_steps = 0
        self._since_asked = LONGEST_UNASKED + 1
        self._step = self._new_step(0, 0)
        self._untaken: tuple[str, Sequence[Hint]] = ("", ())

    # --- asked by the loop

    def begin_step(self, depth: int, limit: int) -> None:
        """Start a step after `depth` tokens that may draft `limit` tokens."""
        self._untaken = ("", ())
        self._step = self._new_step(depth, limit)

    def end_step(self, emitted: Sequence[int], seconds: float) -> float:
        """Learn from a step's emitted tokens, and its time without drafting.

        Returns the seconds that a plain step takes now, 0.0 if unknown.
        """
        step, target = self._step, self._knowledge.target
        self._num_steps += 1
        self._since_asked += 1
        num_tokens = len(step.drafted) + 1
        is_change = num_tokens != self._last_pass
        target.observe(num_tokens, step.depth, seconds, is_change=is_change)
        took = step.draft_seconds + target.seconds(num_tokens, step.depth)
        took += target.change * target.speed if is_change else 0.0
        self._note_length(num_tokens)
        plain = target.seconds(1, step.depth)
        self._settle(len(emitted), took / plain)
        self._learn_untaken(emitted)
        return plain

    def _note_length(self, num_tokens: int) -> None:
        """Remember how long passes are of late."""
        self._last_pass = num_tokens
        self._usual = [LENGTH_MEMORY * share for share in self._usual]
        self._usual[min(num_tokens, LONGEST_KNOWN)] += 1.0 - LENGTH_MEMORY

    def learn(self, draft: Sequence[DraftToken], target: TargetAt, verdict: Verdict) -> None:
        """Hear what the target would have drawn along the draft and behind it.

        Of a token drawn from q, after some that are kept with probability P, p being what the
        target wants there, the sum of min(q / P, p) are kept: 1 - TV(p, q) for the first one
        (Leviathan et al. 2023, corollary 3.6), more behind others (block verification, Sun et al.
        2024). That chance tells more than what became of the token, and is known of a declined one
        as well. Comparing long distributions takes too long: there the outcome must do.
        """
        declined = self._step.declined
        places = [
            (*known, drafted.distribution)
            for known, drafted in zip(self._step.drafted, draft, strict=False)
        ]
        if declined and declined[1].distribution:
            places.append((*declined, declined[1].distribution))
        for place, (origin, hint, proposed) in enumerate(places[: len(verdict.kept)]):
            reached, wanted = verdict.kept[place], target(place)
            if reached < LEAST_CHANCE:
                continue
            is_short = max(wanted.ids.size, proposed.ids.size) <= LARGEST_TABLE
            if is_short or place == len(draft):
                chance = 1.0 - wanted.excess_mass(proposed, reached) / reached
            elif place <= verdict.num_accepted:
                chance, reached = float(place < verdict.num_accepted), 1.0
            else:
                break
            self._acceptance(origin).observe(hint.confidence, hint.feature, chance, reached)

    def _learn_untaken(self, emitted: Sequence[int]) -> None:
        """Learn whether tokens that cost no pass, and were not taken, would have been right."""
        origin, hints = self._untaken
        for hint, token in zip(hints, emitted, strict=False):
            if hint.distribution is None:
                break
            is_right = hint.distribution.best() == token
            self._acceptance(origin).observe(hint.confidence, hint.feature, float(is_right))
            if not is_right:
                break

    def _settle(self, num_emitted: int, took: float) -> None:
        """Keep account of what looking and trying gain and cost, in tokens of plain decoding."""
        if self._step.is_look or self._is_trial:
            self._allowance.settle(num_emitted - took)
        if self._step.draft_seconds:
            self._since_draft = 0
        else:
            self._since_draft += 1
            self._passes.pass_by()
        self._allowance.earn(num_emitted)

    # --- asked by drafters

    @property
    def room(self) -> int:
        """The number of tokens that may still be drafted in this step."""
        return self._step.room

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Whether a draft pass that reads this many tokens pays, for one token more."""
        if self.room < 1:
            return False
        self._use(origin)
        self._since_asked = 0
        step = self._step
        cost = self._draft_seconds(num_tokens)
        is_little_known = self._passes.num_observed < ENOUGH and not step.drafted
        if not (is_little_known or self._pays(cost) or self._may_pay(cost)):
            return False
        step.is_look |= self._is_new
        step.draft_seconds += cost
        step.pass_tokens, step.pass_began = num_tokens, perf_counter()
        return True

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Whether to draw and draft the token of the draft pass just made."""
        step = self._step
        if step.pass_tokens:
            took = perf_counter() - step.pass_began
            self._knowledge.costs_of(origin).observe(step.pass_tokens, step.depth, took)
            step.pass_tokens = 0
        feature = position_feature(len(step.drafted))
        hint = Hint(hint.confidence, feature, hint.distribution)
        probability = self._passes.meet(hint.confidence, feature)
        is_watched = self._is_new and hint.distribution is not None
        is_wanted = not is_watched and step.gain(probability) > 0
        if is_wanted:
            self._step.take(origin, hint, probability)
        else:
            step.declined = (origin, hint)
        return is_wanted

    def take(self, origin: str, hints: Sequence[Hint], rival: str | None = None) -> int:
        """Return how many of these tokens to draft, none of which costs a draft pass.

        Returns 0 if the draft passes of `rival` promise more.
        """
        if rival is not None:
            self._use(rival)
        probabilities = self._probabilities(origin, hints)
        num_taken, gain = self._step.best(probabilities)
        if rival is not None and gain <= self._gain_of_pass():
            num_taken = 0
        for hint, probability in zip(hints[:num_taken], probabilities, strict=False):
            self._step.take(origin, hint, probability)
        self._untaken = ("", ()) if num_taken else (origin, hints)
        return num_taken

    def _gain_of_pass(self) -> float:
        """Return what draft passes are likely to bring, in tokens after their cost."""
        return self._step.gain_of_pass() - self._step.pass_price

    def _use(self, origin: str) -> None:
        """Reckon with the draft passes of an origin."""
        if origin != self._origin:
            self._origin = origin
            self._knowledge.costs_of(origin)
            self._step = self._new_step(self._step.depth, self._step.limit)

    # --- told to the user

    def expects_drafting(self, depth: int) -> bool:
        """Whether draft passes are likely to pay from the start, after a prompt of this length."""
        self._step = self._new_step(depth, 4)
        return not self._knowledge.target.is_known or self._gain_of_pass() > 0

    def why_not(self) -> str | None:
        """Return why no draft passes are made at present, None if they are."""
        target = self._knowledge.target.seconds(1, self._step.depth)
        if not target or self._since_draft < 4:
            return None
        expected = self._passes.expected()[0]
        share = self._draft_seconds(1) / target
        return (
            f"acceptance {sum(expected) / len(expected):.0%},"
            f" a draft token costs {share:.0%} of a target pass"
        )

    # --- the arithmetic

    @property
    def _passes(self) -> AcceptanceModel:
        """The acceptance of tokens that cost draft passes."""
        return self._acceptance(self._origin)

    def _acceptance(self, origin: str) -> AcceptanceModel:
        return self._knowledge.acceptance_of(origin, self._is_greedy)

    def _draft_seconds(self, num_tokens: int) -> float:
        return self._knowledge.draft_seconds(self._origin, num_tokens, self._step.depth)

    def _new_step(self, depth: int, limit: int) -> DraftEconomics:
        target = self._knowledge.target
        rate = self._rate(depth, limit)
        factor = rate * target.speed
        self._is_trial = self._may_try(depth)
        costs = target.hopeful_row(depth) if self._is_trial else target.row(depth)
        single, another = self._draft_costs(depth)
        return DraftEconomics(
            depth,
            limit,
            prices=self._prices(costs, factor, factor * target.change),
            later_prices=[factor * cost for cost in costs],
            pass_price=factor and rate * single,
            another_price=factor and rate * another,
            expected=self._passes.expected(POSITION_FEATURES),
        )

    def _prices(self, row: Sequence[float], factor: float, change: float) -> list[float]:
        """Return what passes cost, in tokens: the change to another length and back included."""
        if not change:
            return [factor * cost for cost in row]
        prices = [
            factor * cost - change * share for cost, share in zip(row, self._usual, strict=True)
        ]
        prices[min(self._last_pass, LONGEST_KNOWN)] -= change
        return prices

    @property
    def _is_new(self) -> bool:
        """Whether next to nothing is known of the tokens that cost passes."""
        return self._passes.num_observed < FEW

    def _rate(self, depth: int, limit: int) -> float:
        """Return the tokens per second that a longer draft must beat: the best to be expected.

        That of the best draft length, by what is believed now, if the draft model is in use and
        known; and of plain decoding at least.
        """
        row, speed = self._knowledge.target.row(depth), self._knowledge.target.speed
        if not row[1]:
            return 0.0
        if self._is_new or self._since_asked > LONGEST_UNASKED:
            return 1.0 / (row[1] * speed)
        chances = means(self._passes.expected(POSITION_FEATURES))
        single, another = self._draft_costs(depth)
        return best_rate(row, single / speed, another / speed, chances, limit) / speed

    def _draft_costs(self, depth: int) -> tuple[float, float]:
        """Return the seconds of a draft pass, and of one token more in it."""
        single, double = (self._knowledge.draft_seconds(self._origin, n, depth) for n in (1, 2))
        return single, max(0.0, double - single)

    def _probabilities(self, origin: str, hints: Sequence[Hint]) -> list[float]:
        """Return how likely tokens are to be kept, as far as all together may be."""
        model, chance = self._acceptance(origin), 1.0
        probabilities: list[float] = []
        for hint in hints[: self._step.room]:
            known = model.probability(hint.confidence, hint.feature)
            chance *= known
            if chance < LEAST_CHANCE:
                break
            probabilities.append(known)
        return probabilities

    def _may_pay(self, cost: float) -> bool:
        """Say whether to look again: drafting would pay if it went as well as it perhaps does.

        Surely bad drafters are left alone for long, doubtful ones for less; what looking costs is
        limited by the allowance. Nothing need be drafted for it: a draft pass shows what the draft
        model would have said, and verification what would have become of that.
        """
        step, single = self._step, self._knowledge.target.seconds(1, self._step.depth)
        is_turn = self._since_draft % LOOKING_INTERVAL == 0
        if step.draft_seconds or not is_turn or not single:
            return False
        hope = self._passes.hope
        step.is_look = self._allowance.covers(cost / single) and self._pays(cost, hope)
        return step.is_look

    def _may_try(self, depth: int) -> bool:
        """Say whether a step is to find out if costs are lower than they are believed to be.

        Not where the draft model would first have to read more than may be spent.
        """
        target = self._knowledge.target
        is_turn = self._num_steps % TRIAL_INTERVAL >= TRIAL_INTERVAL - TRIAL_STEPS
        if not is_turn or not target.is_known:
            return False
        num_missed = min(1 + self._since_draft, LONGEST_KNOWN)
        catching_up = self._knowledge.draft_seconds(self._origin, num_missed, depth)
        return self._allowance.covers(catching_up / target.seconds(1, depth))

    def _pays(self, cost: float, hope: float = 0.0) -> bool:
        """Say whether a draft pass pays, if tokens were by so much likelier to be kept."""
        expected = self._passes.expected(POSITION_FEATURES, hope) if hope else ()
        return self._step.pays(cost, self._draft_seconds(1), expected)
