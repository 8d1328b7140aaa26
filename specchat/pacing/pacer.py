"""How much to draft, decided before each token is drawn, and what is learned from every step.

The draft passes of a step follow the way that `way_choice` has chosen for some steps: a length, and
a confidence below which a draft ends early. Passages of earlier text, which take no draft passes,
are taken as far as they bring more than that, and branches by `branch_pacing`.

Everything a decision looks at is known before the token it is about is drawn, so the text keeps
its distribution.
"""

from collections.abc import Iterable, Sequence
from itertools import islice
from time import perf_counter

from specchat.decoding.proposal import Branch, DraftToken, Hint
from specchat.decoding.verification import TargetAt, Verdict
from specchat.drafter_registry import GRAMMAR
from specchat.pacing.branch_pacing import BranchPacing
from specchat.pacing.calibration import Calibration
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.outcomes import MIN_CHANCE, chances_of_draft
from specchat.pacing.recent_drafts import PastDraft
from specchat.pacing.way_choice import WayChoice
from specchat.passes.pass_costs import PLAIN
from specchat.wording import percent

FORCED = (GRAMMAR.name, Hint(1.0))
LEAST_SHORTER = 1.0
"""The tokens that drafts must lack on average, to be called short."""
SETTLED = 2
"""Plain steps in a row after which they show what plain decoding takes."""
SILENT_STEPS = 4
"""After as many steps without a draft, drafting counts as given up for now."""
LONG_READ = 8
"""A draft pass that reads more tokens than this catches up: its time says nothing of others."""


class LearningPacer:
    """Decides how much of what to draft, and learns from every step.

    While nothing is known of what target passes cost, a step is plain: after one, it is. Draft
    passes of one origin are considered at a time, the last one that asked.
    """

    needs_confidence = True
    is_replay = False
    """Whether the text is known, so that what is accepted teaches nothing."""

    def __init__(self, knowledge: Knowledge, *, is_greedy: bool, pass_origin: str = "") -> None:
        """Decide by what is known of a pair, at temperature 0 or above it.

        `pass_origin` is the origin of draft passes until one asks, empty if none is expected.
        """
        self._knowledge = knowledge
        self._temperature = "greedy" if is_greedy else "sampled"
        self._branches = BranchPacing(self._calibration)
        self._num_plain, self._last_count, self._since_draft = 0, 1, 0
        self._most = 0  # tokens that any step of this answer might draft
        self._company: Sequence[int] = ()
        self._choices: dict[str, WayChoice] = {}
        self._use(pass_origin)
        self._clear(0, 0, 0)

    def clock(self) -> float:
        """Return the time in seconds; a simulation has its own."""
        return perf_counter()

    # --- asked by the loop

    def join(self, company: Sequence[int]) -> None:
        """Begin to share passes with the answers of these numbers, its own among them.

        What was learned of them holds while they are the same. A number that is not known is 0.
        """
        self._knowledge.verifying.share_among(len(company))
        if company != self._company or not all(company):
            self._knowledge.verifying.begin_answer()
        self._company = company

    def expects_drafting(self, depth: int) -> bool:
        """Whether draft passes are likely to pay from the start, after a prompt of this length."""
        self._num_plain = self._most = 0
        self._choice.may_look_back = not self.is_replay
        self._choice.begin_answer(depth)
        return self._choice.way.length > 0

    def begin_step(self, depth: int, limit: int, num_forced: int = 0, num_sharing: int = 1) -> None:
        """Begin a step after `depth` tokens that may draft up to `limit` tokens.

        Its pass reads `num_forced` tokens more, and as many answers as `num_sharing` wait for it.
        """
        self._clear(depth, limit, num_forced)
        if num_sharing != self._knowledge.verifying.num_sharing:  # others have come, or have ended
            self._knowledge.verifying.share_among(num_sharing)
            self._choice.begin_answer(depth)
        self._most = max(self._most, limit)
        self._choice.begin_step(depth, limit)

    def _clear(self, depth: int, limit: int, num_forced: int) -> None:
        """Forget the step before."""
        self._depth, self._limit, self._num_forced = depth, limit, num_forced
        self._began = self._drafted_at = self.clock()
        self._num_passes = self._num_read = 0
        self._known: list[tuple[str, Hint]] = []
        self._declined: tuple[str, Hint] | None = None
        self._untaken: tuple[str, Sequence[Hint]] = ("", ())
        self._is_look = False
        self._count = 1  # tokens of the target's pass, without forced ones before them
        self._branches.begin_step()

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
            self._branches.drawn(draft, branches)
        self._count = len(draft) + self._branches.num_chosen + 1
        if self.is_replay or (not self._known and self._declined is None):
            return
        known, proposed = _aligned(self._known, draft), [each.distribution for each in draft]
        is_whole = len(self._known) == len(draft)
        if is_whole and self._declined and self._declined[1].distribution:
            known.append(self._declined)
            proposed.append(self._declined[1].distribution)
        own: list[float] = []
        chances = chances_of_draft(proposed, len(draft), target, verdict)
        for (origin, hint), chance in zip(known, chances, strict=False):
            if origin == GRAMMAR.name:  # certain, whoever drafts
                continue
            self._calibration(origin).observe(hint.confidence, chance)
            if origin == self._origin:
                own.append(chance)
        if self._num_passes and own:
            read = [*self._known, *([self._declined] if self._declined else [])]
            confidences = [hint.confidence for origin, hint in read if origin == self._origin]
            self._choice.add(PastDraft(tuple(confidences), tuple(own)), is_look=self._is_look)

    def end_step(
        self, emitted: Sequence[int], seconds: float, num_drafting: int = 0, num_longest: int = 0
    ) -> None:
        """Learn from a step's emitted tokens, and its time without drafting.

        A pass that answers shared takes as long as if each had as many tokens as the longest part.
        """
        knowledge, depth = self._knowledge, self._depth
        count = max(self._count + self._num_forced, num_longest)
        verifying = knowledge.verifying
        verifying.note_drafting(num_drafting)
        is_plain = count == 1 and not self._num_passes
        self._num_plain = self._num_plain + 1 if is_plain else 0
        size = PLAIN if self._num_plain >= SETTLED else count
        if knowledge.target.is_known and not is_plain:
            expected, changed = verifying.expected(size, depth), count != self._last_count
            knowledge.note_change(seconds, expected, changed=changed)
        verifying.observe(size, depth, seconds)
        self._last_count = count
        if self._num_passes and self._num_read <= LONG_READ:
            drafting = knowledge.drafting(self._origin)
            drafting.observe(self._num_passes, depth, self._drafted_at - self._began)
        looked = self._price_of_look() if self._is_look else None
        self._choice.end_step(len(emitted), is_plain=is_plain, looked=looked)
        self._since_draft = 0 if self._known else self._since_draft + 1
        if not self.is_replay:
            self._learn_untaken(emitted)
            self._branches.learn(emitted)

    def _price_of_look(self) -> float:
        """Return what a look costs, in tokens: its pass, and that the next plain one is slower."""
        verifying, depth = self._knowledge.verifying, self._depth
        looked = self._knowledge.catching_up(self._origin, self._num_read, depth)
        return (looked + verifying.seconds(1, depth)) / verifying.seconds(PLAIN, depth) - 1.0

    def _learn_untaken(self, emitted: Sequence[int]) -> None:
        """Learn whether the tokens of a passage that was not taken would have been accepted."""
        origin, hints = self._untaken
        for hint, token in zip(hints, emitted, strict=False):
            if hint.distribution is None:
                break
            is_right = hint.distribution.best() == token
            self._calibration(origin).observe(hint.confidence, float(is_right))
            if not is_right:
                break

    # --- asked by drafters

    @property
    def room(self) -> int:
        """The number of tokens that may still be drafted in this step."""
        room = self._limit - len(self._known)
        way = self._choice.way
        return min(room, way.length - self._num_own) if self._num_passes else room

    def wants_pass(self, origin: str, num_tokens: int) -> bool:
        """Whether a draft pass that reads this many tokens pays, for one token more."""
        self._use(origin)
        if len(self._known) >= self._limit:
            return False
        choice, is_untouched = self._choice, not (self._num_passes or self._known)
        if choice.checks_plain or self._num_own >= choice.way.length:
            self._is_look = (
                is_untouched and not self._num_forced and choice.may_look(num_tokens, self._depth)
            )
            if not self._is_look:
                return False
        elif num_tokens > LONG_READ and not choice.may_catch_up(num_tokens, self._depth):
            return False
        self._num_read = max(self._num_read, num_tokens)
        self._num_passes += 1
        return True

    def wants_token(self, origin: str, hint: Hint) -> bool:
        """Whether to draw and draft the token of the draft pass just made."""
        self._drafted_at = self.clock()
        is_sure = hint.confidence >= self._choice.way.threshold
        is_wanted = self.room > 0 and not self._is_look and is_sure
        if is_wanted:
            self._known.append((origin, hint))
        else:
            self._declined = origin, hint
        return is_wanted

    def make_room(self, num_forced: int) -> None:
        """Let so many tokens that a grammar forces follow what is drafted; they take its room."""
        self._known += [FORCED] * num_forced

    def take(self, origin: str, hints: Iterable[Hint], rival: str | None = None) -> int:
        """Return how many of these tokens to draft, none of which costs a draft pass.

        Returns 0 if the draft passes of `rival` promise more. Hints are asked for one by one, no
        further than needed.
        """
        if rival is not None:
            self._use(rival)
        verifying, depth = self._knowledge.verifying, self._depth
        if self._choice.checks_plain or not verifying.is_known:
            return 0
        best, length = (self._choice.gain if rival else 1.0) / verifying.seconds(PLAIN, depth), 0
        change = self._knowledge.change * verifying.seconds(1, depth)
        seen: list[Hint] = []
        survival, tokens, calibration = 1.0, 1.0, self._calibration(origin)
        for hint in islice(hints, self._limit):
            seen.append(hint)
            survival *= calibration.chance(hint.confidence)
            if survival < MIN_CHANCE:
                break
            tokens += survival
            count = len(seen) + self._num_forced + 1
            rate = tokens / (verifying.seconds(count, depth) + change)
            if rate > best:
                best, length = rate, len(seen)
        self._known += [(origin, hint) for hint in seen[:length]]
        self._untaken = ("", ()) if length else (origin, seen)
        return length

    @property
    def num_siblings(self) -> int:
        """How many branches beside a token to look for in this step."""
        is_ready = self._limit and self._knowledge.verifying.is_known
        return self._branches.num_siblings if is_ready else 0

    def choose_branches(
        self, draft: Sequence[DraftToken], branches: Sequence[Branch], most: int
    ) -> Sequence[int]:
        """Return the numbers of the branches, up to `most`, that bring more than they cost."""
        if not branches or self._limit < 1 or not self._knowledge.verifying.is_known:
            return ()
        chain = [self._chance(*token) for token in _aligned(self._known, draft)]
        verifying, depth, forced = self._knowledge.verifying, self._depth, self._num_forced
        rate = max(self._choice.gain, 1.0) / verifying.seconds(PLAIN, depth)
        return self._branches.choose(
            draft,
            branches,
            most,
            chain,
            lambda count: rate * verifying.seconds(count + forced, depth),
        )

    # --- reported to the user

    def why_not(self) -> str | None:
        """Return why no draft passes are made at present, None if they are."""
        knowledge, depth, split = self._knowledge, self._depth, self._knowledge.split
        if self._since_draft < SILENT_STEPS or not self._origin or not knowledge.verifying.is_known:
            return None
        plain = knowledge.verifying.seconds(PLAIN, depth)
        share = knowledge.drafting(self._origin).seconds(1, depth) / plain
        accepted = self._choice.drafts.usual_chances()[0]
        return (
            f"about {percent(accepted)} of its tokens would be accepted,"
            f" but each takes {percent(share)} of the time of a plain one, and {self._checking(2)}"
            + (f", {split.cause}" if split and self._length_on_gpus else "")
        )

    def why_short(self) -> str | None:
        """Return why drafts are shorter than with all of the target on GPUs; None if they are not.

        None, too, while no draft passes are made: `why_not` says why.
        """
        split, length = self._knowledge.split, self._length_on_gpus
        if split is None or not length or self._since_draft >= SILENT_STEPS:
            return None
        return f"{self._checking(round(length) + 1)}, {split.cause}"

    def _checking(self, num_tokens: int) -> str:
        """Return what a pass over some tokens costs, in words."""
        verifying, depth = self._knowledge.verifying, self._depth
        ratio = verifying.seconds(num_tokens, depth) / verifying.seconds(PLAIN, depth)
        return f"checking {num_tokens} tokens costs {ratio:.1f}x checking one"

    @property
    def _length_on_gpus(self) -> float:
        """The length of drafts if the whole target were on GPUs, 0 if that is no greater."""
        knowledge = self._knowledge
        split, verifying = knowledge.split, knowledge.verifying
        if split is None or not self._origin or not verifying.is_known:
            return 0.0

        def on_gpus(num_tokens: int) -> float:
            return split.on_gpus.seconds(verifying.rows(num_tokens), 0)

        def seconds(num_tokens: int, depth: int) -> float:
            own, single = (verifying.seconds(count, depth) for count in (num_tokens, 1))
            return min(own, single * on_gpus(num_tokens) / on_gpus(1))

        longest = min(self._most, knowledge.longest)
        length, longer = self._choice.lengths(self._depth, longest, seconds)
        return longer if longer >= length + LEAST_SHORTER else 0.0

    # --- what is known

    def _use(self, origin: str) -> None:
        """Consider the draft passes of this origin."""
        if origin not in self._choices:
            name = f"{origin} {self._temperature}"
            self._choices[origin] = WayChoice(self._knowledge, name, origin)
        self._origin, self._choice = origin, self._choices[origin]

    @property
    def _num_own(self) -> int:
        """The tokens drafted by passes in this step, and the passage before them."""
        return sum(token != FORCED for token in self._known)

    def _calibration(self, origin: str) -> Calibration:
        return self._knowledge.calibration_of(f"{origin} {self._temperature}")

    def _chance(self, origin: str, hint: Hint) -> float:
        if origin == GRAMMAR.name:
            return 1.0
        return self._calibration(origin).chance(hint.confidence)


def _aligned(
    known: Sequence[tuple[str, Hint]], draft: Sequence[DraftToken]
) -> list[tuple[str, Hint]]:
    """Return what is known of each token of a draft, whose end a grammar may have changed."""
    own: dict[str, list[tuple[str, Hint]]] = {}
    for token in reversed(known):
        own.setdefault(token[0], []).append(token)
    return [
        FORCED if drafted.origin == GRAMMAR.name else own[drafted.origin].pop() for drafted in draft
    ]
