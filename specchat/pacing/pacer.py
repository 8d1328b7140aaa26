"""How much to draft, decided before each token is drawn.

A step that drafts k tokens emits 1 + S(1) + ... + S(k) of them on average, S(i) being the chance
that the first i are accepted, and takes the time of its draft passes and of one target pass over
k + 1 tokens. The best rate of tokens per second R is reached by going on as long as what a longer
draft brings, in tokens, exceeds R times what it takes, in seconds (Dinkelbach 1967, for ratios of
this kind). As the cost of the target pass is a staircase, a draft may only pay several tokens
further on, so the decision looks ahead. Drafting nothing is one of the choices. R is what the best
draft length promises by present knowledge, not what the last steps reached: after a lucky step
nothing would seem to pay, least of all the long drafts it owed its luck to.

Everything a decision looks at is known before the token it is about is drawn, so the text keeps
its distribution.
"""

from collections.abc import Collection, Iterable, Sequence
from itertools import accumulate, islice
from operator import mul, sub
from time import perf_counter

from specchat.decoding.draft_tree import chances_of, likeliest, with_ancestors
from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.decoding.verification import TargetAt, Verdict
from specchat.drafter_registry import GRAMMAR
from specchat.pacing.acceptance import USUAL_CONFIDENCE, AcceptanceModel, position_feature
from specchat.pacing.branch_economics import best_number
from specchat.pacing.draft_economics import DraftEconomics, best_rate, means
from specchat.pacing.exploration import Exploration
from specchat.pacing.knowledge import LONGEST_KNOWN, Knowledge
from specchat.pacing.outcomes import outcomes
from specchat.passes.pass_costs import MAX_SURPRISE, PLAIN
from specchat.wording import percent

FORCED = (GRAMMAR.name, Hint(1.0))
BESIDE, BEHIND = " beside", " behind"
"""Added to an origin: branches beside a draft, and those behind others, have rates of their own."""
NUM_SIBLINGS = 3
"""Branches looked for beside each drafted token: a fourth is rarely right."""
LONG_IDLE, LOOK_INTERVAL = 32, 8
"""After so many steps in which no branch was chosen, they are looked for in each eighth only."""
SURE = 0.9
"""The confidence of a branch that is likely to be right."""


class LearningPacer:
    """Decides how much of what to draft, step by step, and learns from every step.

    While nothing is known of what target passes cost, a step is plain: after one, it is. Costs
    learned from answers are doubted now and then, those measured when idle are not.

    It distinguishes proposals that cost draft passes, which ask for each token, from passages that
    cost none. Draft passes of one origin are considered at a time, the last one that asked.
    """

    needs_confidence = True

    def __init__(self, knowledge: Knowledge, *, is_greedy: bool, pass_origin: str = "") -> None:
        """Decide by what is known of a pair, at temperature 0 or above it.

        `pass_origin` is the origin of draft passes until one asks, empty if none is expected.
        """
        self._knowledge, self._is_greedy = knowledge, is_greedy
        self._origin = pass_origin
        self._passes = knowledge.acceptance_of(self._origin, is_greedy)
        self._exploration = Exploration()
        self._num_idle = 0  # steps since a branch was chosen
        self.begin_step(0, 0)

    def clock(self) -> float:
        """Return the time in seconds; a simulation has its own."""
        return perf_counter()

    # --- asked by the loop

    def expects_drafting(self, depth: int) -> bool:
        """Whether draft passes are likely to pay from the start, after a prompt of this length."""
        self._exploration.begin_answer()
        self.begin_step(depth, 4)
        return self._step.pays_for_pass()

    def begin_step(self, depth: int, limit: int, num_forced: int = 0) -> None:
        """Begin a step after `depth` tokens that may draft up to `limit` tokens.

        Its pass reads `num_forced` tokens more, which nothing is learned from.
        """
        self._depth, self._limit, self._began = depth, limit, self.clock()
        self._num_forced = num_forced
        self._planned: DraftEconomics | None = None
        self._untaken: tuple[str, Sequence[Hint]] = ("", ())
        self._offered: tuple[Sequence[DraftToken], Sequence[Branch]] = ((), ())
        self._declined: Branch | None = None  # that of a token that was not worth drafting
        self._looks = self._num_idle < LONG_IDLE or self._num_idle % LOOK_INTERVAL == 0
        self._num_branches = 0

    def end_step(self, emitted: Sequence[int], seconds: float) -> float:
        """Learn from a step's emitted tokens, and its time without drafting.

        Returns the seconds that a plain step takes now, 0.0 if unknown.
        """
        step, target = self._planned, self._knowledge.target
        self._learn_untaken(emitted)
        self._learn_branches(emitted)
        self._num_idle = 0 if self._num_branches else self._num_idle + 1
        if self._num_forced:
            return target.seconds(PLAIN, self._depth)
        if step is None:
            self._learn_plain(seconds)
            self._exploration.end_unasked_step(seconds)
            return seconds
        num_decided = len(emitted) - step.drafted[: len(emitted)].count(FORCED)
        if step.has_drafted or self._num_branches:
            target.observe(self._num_verified(step), step.depth, seconds)
            if step.is_exploration:
                plain = target.seconds(PLAIN, step.depth)
                self._exploration.pay(num_decided, self._seconds_of(step), plain)
        else:
            self._learn_plain(seconds)
        self._exploration.end_step(step, num_decided, seconds)
        if not step.draft_seconds:
            self._passes.decay()
        return target.seconds(PLAIN, step.depth)

    def _learn_plain(self, seconds: float) -> None:
        """Learn what a plain step takes."""
        target, entry = self._knowledge.target, self._exploration.plain_entry
        if entry is None and not target.is_one_known:
            entry = 1
        if entry is not None:
            target.observe(entry, self._depth, seconds)

    def _seconds_of(self, step: DraftEconomics) -> float:
        """Return how long this step took; a disturbance counts little."""
        verifying = self._knowledge.target.seconds(self._num_verified(step), step.depth)
        usual = step.draft_seconds + verifying
        return min(self.clock() - self._began, MAX_SURPRISE * usual)

    def _num_verified(self, step: DraftEconomics) -> int:
        """Return the tokens of the pass of a step."""
        return len(step.drafted) + self._num_branches + 1

    def learn(
        self,
        draft: Sequence[DraftToken],
        target: TargetAt,
        verdict: Verdict,
        branches: Sequence[Branch] = (),
    ) -> None:
        """Learn from the target's distributions along the draft how likely it was to be accepted.

        That of a declined token, too. Branches that were drawn teach in place of those chosen.
        """
        if branches:
            self._offered = draft, branches
            self._num_branches = len(branches)
        if (step := self._planned) is None:
            return
        is_whole = len(step.drafted) == len(draft)
        step.drafted = known = _aligned(step.drafted, draft)
        proposed = [each.distribution for each in draft]
        if is_whole and step.declined and step.declined[1].distribution:
            known = [*known, step.declined]
            proposed.append(step.declined[1].distribution)
        for place, chance, reached in outcomes(proposed, len(draft), target, verdict):
            origin, hint = known[place]
            if origin == GRAMMAR.name:  # certain, whoever drafts
                continue
            position = position_feature(place) if origin in self._knowledge.drafts else 0.0
            self._acceptance(origin).observe(hint.confidence, chance, reached, position)

    def _learn_untaken(self, emitted: Sequence[int]) -> None:
        """Learn whether the tokens of a passage that was not taken would have been accepted."""
        origin, hints = self._untaken
        for hint, token in zip(hints, emitted, strict=False):
            if hint.distribution is None:
                break
            is_right = hint.distribution.best() == token
            self._acceptance(origin).observe(hint.confidence, float(is_right))
            if not is_right:
                break

    def _learn_branches(self, emitted: Sequence[int]) -> None:
        """Learn which branches were right where the target left the draft, chosen or not."""
        draft, offered = self._offered
        if not offered:
            return
        place = 0
        for each, token in zip(draft, emitted, strict=False):
            if each.token != token:
                break
            place += 1
        followed = -1  # the branch that the target went on with
        for token in emitted[place:]:
            right = -1
            for number, branch in enumerate(offered):
                if branch.behind == followed and (followed >= 0 or branch.fork == place):
                    is_right = branch.token == token
                    if branch != self._declined:
                        self._of_branch(branch).observe(branch.confidence, float(is_right))
                    right = number if is_right else right
            if right < 0:
                return
            followed = right

    # --- asked by drafters

    @property
    def room(self) -> int:
        """The number of tokens that may still be drafted in this step."""
        return self._planned.room if self._planned else self._limit

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Whether a draft pass that reads this many tokens pays, for one token more."""
        is_considered = self._planned is not None or origin != self._origin
        if self.room < 1 or (self._exploration.is_resting and not is_considered):
            return False
        self._use(origin)
        step = self._step
        if not (step.pays_for_pass() or self._may_explore(num_tokens)):
            return False
        if not step.draft_seconds:
            step.pass_began = self._began  # deciding takes time, too
        if step.is_exploration or not step.draft_seconds:
            step.draft_seconds += self._draft_seconds(num_tokens)
        step.pass_tokens = num_tokens
        return True

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Whether to draw and draft the token of the draft pass just made."""
        step = self._step
        if step.pass_tokens:  # timed from the last one's end: what lies between is part of drafting
            began, step.pass_began = step.pass_began, self.clock()
            took = (step.pass_tokens, step.depth, step.pass_began - began)
            self._knowledge.costs_of(origin).observe(*took)
            step.pass_tokens = 0
        position = position_feature(len(step.drafted))
        probability = self._acceptance(origin).predict(hint.confidence, position)
        is_wanted = step.gain(probability, 0.0) > 0
        if is_wanted:
            step.take(origin, hint, probability)
        else:
            step.declined = (origin, hint)
        return is_wanted

    def make_room(self, num_forced: int) -> None:
        """Let so many tokens that a grammar forces follow what is drafted; they take its room."""
        self._step.drafted += [FORCED] * num_forced

    def take(self, origin: str, hints: Iterable[Hint], rival: str | None = None) -> int:
        """Return how many of these tokens to draft, none of which costs a draft pass.

        Returns 0 if the draft passes of `rival` promise more. Hints are asked for one by one, no
        further than needed.
        """
        if rival is not None:
            self._use(rival)
        num_taken, hints = 0, islice(hints, self._limit)
        seen, chances = self._acceptance(origin).likely(hints, self._least_chances())
        if chances and self._may_take(chances):
            num_taken, gain = self._step.best_passage(chances[: self._step.room])
            if num_taken and rival is not None and gain <= self._gain_of_pass():
                num_taken = 0
            for hint, chance in zip(seen[:num_taken], chances, strict=False):
                self._step.take(origin, hint, chance)
        self._untaken = ("", ()) if num_taken else (origin, seen)
        return num_taken

    def num_siblings(self, origin: str) -> int:
        """Return how many branches beside a token to look for: none where not even one can pay."""
        step, rises = self._step, self._knowledge.target.least_rises(self._depth)
        leaving = 1.0
        if origin == self._origin and step.later:  # where the target is likeliest to leave a draft
            survivals = list(accumulate(step.later, mul, initial=1.0))
            leaving = max(map(sub, survivals, [*survivals[1:], 0.0]))
        value = leaving * self._acceptance(origin + BESIDE).probability(SURE)
        price = self._price * self._row[1] * min(rises[1:], default=0.0)
        is_worth_it = self._looks and step.limit > 0 and value > price
        return NUM_SIBLINGS if is_worth_it else 0

    def choose_to_read(
        self, origin: str, branches: Sequence[Branch], unread: Collection[int], most: int
    ) -> Sequence[int]:
        """Return the numbers of the branches whose followers bring more than reading them costs."""
        step, row = self._step, self._row
        num_read = step.pass_tokens
        if not unread or not num_read or not row[1]:
            return ()
        place = min(len(step.drafted), len(row) - 2)
        node_price = self._price * max(0.0, row[place + 2] - row[place + 1])
        right = [self._of_branch(each).probability(each.confidence) for each in branches]
        chances = chances_of(_chain(step), branches, right)
        order = [each for each in likeliest(chances, len(chances)) if each in unread][:most]
        follower = self._acceptance(origin + BEHIND).probability(USUAL_CONFIDENCE)
        worth = [chances[each] * follower - node_price for each in order]
        rate = self._price / self._knowledge.target.speed
        costs = [rate * self._draft_seconds(num_read + more) for more in range(len(order) + 1)]
        count = best_number(worth, costs, 0)
        chosen = with_ancestors(branches, order[:count], most)
        step.pass_tokens += len(chosen)
        return chosen

    def choose_branches(
        self, draft: Sequence[DraftToken], branches: Sequence[Branch], most: int
    ) -> Sequence[int]:
        """Return the numbers of the branches, up to `most`, that bring more than they cost."""
        step = self._step
        if not branches or step.limit < 1:
            return ()
        self._offered = draft, branches
        forced = [each.origin == GRAMMAR.name for each in draft]
        right = [self._of_branch(each).probability(each.confidence) for each in branches]
        chain = _chain(step, forced)
        number, chance = self._find_declined(step, len(draft), branches)
        if number >= 0:  # what the target makes of it is known better than of a branch
            chain.append(chance)
            right[number] = chance / (1.0 - chance)
            self._declined = branches[number]
        chances = chances_of(chain, branches, right)
        order = likeliest(chances, most)
        prices = [self._price * cost for cost in self._row]
        reading_again = max(0.0, prices[2] - prices[1]) if len(prices) > 2 else 0.0
        worth = 1.0 - step.accepted_price - reading_again
        count = best_number([chances[each] for each in order], prices, len(draft) + 1, worth)
        self._num_branches = count
        return order[:count]

    def _find_declined(
        self, step: DraftEconomics, num_drafted: int, branches: Sequence[Branch]
    ) -> tuple[int, float]:
        """Return which branch is the token that the step declined, and its chance; -1 without."""
        origin, hint = step.declined or ("", Hint(0.0))
        if hint.distribution is None or len(hint.distribution) > 1:
            return -1, 0.0
        token = hint.distribution.best()
        for number, branch in enumerate(branches):
            if (branch.token, branch.fork, branch.behind) == (token, num_drafted, -1):
                position = position_feature(num_drafted)
                return number, self._acceptance(origin).probability(hint.confidence, position)
        return -1, 0.0

    # --- reported to the user

    def why_not(self) -> str | None:
        """Return why no draft passes are made at present, None if they are."""
        if not self._exploration.is_silent or not self._knowledge.target.is_known:
            return None
        plain, two = (self._knowledge.target.seconds(count, self._depth) for count in (PLAIN, 2))
        return (
            f"about {percent(means(self._passes.expected())[0])} of its tokens would be accepted,"
            f" but each costs {percent(self._draft_seconds(1) / plain)} of a target pass, and"
            f" checking 2 tokens costs {two / plain:.1f}x checking one"
        )

    # --- the arithmetic

    def _acceptance(self, origin: str) -> AcceptanceModel:
        if origin == self._origin:
            return self._passes
        return self._knowledge.acceptance_of(origin, self._is_greedy)

    def _of_branch(self, branch: Branch) -> AcceptanceModel:
        """Return how often branches like this one are right where they could be."""
        return self._acceptance(branch.origin + (BESIDE if branch.behind < 0 else BEHIND))

    def _draft_seconds(self, num_tokens: int) -> float:
        return self._knowledge.draft_seconds(self._origin, num_tokens, self._depth)

    def _use(self, origin: str) -> None:
        """Consider the draft passes of this origin."""
        if origin != self._origin:
            self._passes.decay(self._exploration.settle())
            self._origin = origin
            self._knowledge.add_origin(origin)
            self._passes = self._knowledge.acceptance_of(origin, self._is_greedy)
            self._planned = None

    @property
    def _step(self) -> DraftEconomics:
        """The economics of this step, worked out when a drafter first asks: some never do."""
        if self._planned is None:
            self._passes.decay(self._exploration.settle())
            self._planned = self._new_step(self._depth, self._limit)
        return self._planned

    def _new_step(self, depth: int, limit: int) -> DraftEconomics:
        """Return the economics of a step that may draft up to `limit` tokens.

        All prices are seconds times the rate R to beat (Dinkelbach 1967): a token is worth its time
        if 1 - R t > 0. R comes from costs as they are known; in a step that explores costs, the
        prices of target passes are what these may cost at best, so that R is still to be beaten.
        """
        if self._exploration.is_doubt_due and self._knowledge.doubt():
            self._exploration.begin_anew()
        target, is_exploration = self._knowledge.target, self._explores_costs(depth)
        costs, expected = (0.0, 0.0, 0.0, 0.0), list[list[float]]()
        if origin := self._origin:
            costs, expected = self._knowledge.draft_costs(origin, depth), self._passes.expected()
        chances = means(expected)
        rate = self._rate(depth, limit, costs, chances)
        is_plain = not target.is_one_known or self._exploration.is_plain_due(target, depth, rate)
        limit = 0 if is_plain else limit
        row = target.optimistic_row(depth) if is_exploration else target.row(depth)
        if self._num_forced:  # a draft makes a longer pass longer
            beyond = row[self._num_forced + 1 :] or row[-1:]
            row = [beyond[0], *beyond, *(limit * beyond[-1:])]
        price = rate * target.speed
        self._row, self._price = row, price
        return DraftEconomics(
            depth,
            limit,
            prices=[price * cost for cost in row[: limit + 2]],  # no pass is longer
            pass_price=rate * costs[0],
            later_price=rate * costs[1],
            another_price=rate * costs[2],
            expected=expected,
            is_exploration=is_exploration,
            accepted_price=rate * costs[3],
            settling_price=price * (row[1] - row[PLAIN]),
            later=chances,
        )

    def _rate(
        self, depth: int, limit: int, costs: Iterable[float], chances: Sequence[float]
    ) -> float:
        """Return the tokens per second that a longer draft must beat.

        The rate of the best draft length by present knowledge, or that of plain decoding while
        draft passes are unknown. `costs` are those of Knowledge.draft_costs.

            R = max over k of  (1 + S(1) + ... + S(k)) / (k draft passes, a pass over k + 1)

        Costs in rows of the table are before the speed factor; a rate is divided by it once.
        """
        row, speed = self._knowledge.target.row(depth), self._knowledge.target.speed
        if not row[PLAIN]:
            return 0.0
        if not self._passes.num_observed or not chances:
            return 1.0 / row[PLAIN] / speed
        costs = [cost / speed for cost in costs]
        return max(1.0 / row[PLAIN], best_rate(row, costs, chances, limit)) / speed

    def _gain_of_pass(self, optimism: float = 0.0) -> float:
        """Return what draft passes are likely to bring, in tokens after their cost.

        The logits of acceptance may be assumed to be higher by `optimism`.
        """
        expected = self._passes.expected(optimism) if optimism else ()
        return self._step.gain_of_pass(expected) if self._origin else 0.0

    def _may_take(self, chances: Sequence[float]) -> bool:
        """Whether a passage of these chances beats plain decoding, unless costs are explored."""
        row = self._knowledge.target.row(self._depth)
        emitted = accumulate(accumulate(chances, mul), initial=1.0)
        pays = [tokens * row[PLAIN] > cost for tokens, cost in zip(emitted, row[1:], strict=False)]
        return any(pays) or self._exploration.is_for_costs or not row[1]

    def _least_chances(self) -> list[float]:
        """Return the least chance that the first n tokens of a passage need, entry 0 unused.

        No later token is likelier to be reached and accepted than the nth one, and each adds the
        least rise of a pass or more to what the step costs. Steps that explore costs assume others.
        """
        if self._exploration.is_for_costs:
            return [-1.0] * (LONGEST_KNOWN + 1)
        return self._knowledge.target.least_rises(self._depth)

    def _may_explore(self, num_tokens: int) -> bool:
        """Whether to explore: a draft pass would pay if acceptance were as high as it may be.

        Drafters known to be bad are left alone for long, uncertain ones for less. Nothing need be
        drafted for it: the pass shows what would have been drafted, and verification whether that
        would have been accepted.
        """
        step, single = self._step, self._knowledge.target.seconds(PLAIN, self._depth)
        if step.draft_seconds or not single or self._num_forced:
            return False
        if not self._exploration.affords_pass(self._draft_seconds(num_tokens) / single):
            return False
        may_pay = self._gain_of_pass(self._passes.optimism) > 0
        step.is_exploration |= may_pay
        return may_pay

    def _explores_costs(self, depth: int) -> bool:
        """Whether a step is to find out if costs are lower than believed.

        Not if draft passes would first have to read more tokens than the budget allows.
        """
        target, exploration = self._knowledge.target, self._exploration
        if not exploration.is_for_costs or not target.is_known or self._num_forced:
            return False
        seconds = self._draft_seconds(min(exploration.num_missed, LONGEST_KNOWN))
        return exploration.affords(seconds / target.seconds(PLAIN, depth))


def _aligned(
    known: Sequence[tuple[str, Hint]], draft: Sequence[DraftToken]
) -> list[tuple[str, Hint]]:
    """Return what is known of each token of a draft, whose end a grammar may have changed."""
    own = iter([each for each in known if each != FORCED])
    return [FORCED if each.origin == GRAMMAR.name else next(own) for each in draft]


def _chain(step: DraftEconomics, forced: Sequence[bool] | None = None) -> list[float]:
    """Return the chance of each drafted token to be accepted, which is certain where it must come.

    `forced` says which must, unless the draft is as the drafters left it.
    """
    if forced is None:
        forced = [each == FORCED for each in step.drafted]
    own = iter(step.chances)
    return [1.0 if is_forced else next(own, 1.0) for is_forced in forced]
