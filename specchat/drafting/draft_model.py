"""The draft model as drafter: a smaller model runs ahead of the target."""

import math
from collections.abc import Callable, Collection, Generator, Sequence

from specchat.decoding.constraint import Walk
from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.ports import (
    Drafter,
    DraftTask,
    Draw,
    LanguageModel,
    Pacer,
    reading_of,
)
from specchat.decoding.proposal import Branch, DraftToken, Hint, forced_token
from specchat.decoding.sampling import Sampler
from specchat.drafting.factory import Materials
from specchat.drafting.side_branches import SideBranches
from specchat.drafting.token_map import TokenMap
from specchat.errors import EngineFailed, NothingAllowed, NotNumbers
from specchat.options.declarations import Sampling

LONGEST_CATCH_UP = 16
"""More unread tokens than this are read by `prefill`, in chunks."""
SHORT_MEMORIES = (256, 32)
"""How many of the last tokens the draft model reads after a long pause: the smaller number where
reading is expensive. Reading everything would cost more than a trial is worth; the same goes for a
longer prompt while no draft is likely to be wanted."""


class DraftModelDrafter(Drafter):
    """Draws each drafted token from the draft model's processed distribution.

    The draft model keeps its memory and only rejected tokens are rolled back, so no token is
    evaluated twice. The last drafted token is not evaluated before its step is verified: if it is
    accepted, it is evaluated together with the target's own token in the next step.

    Its texts are in the draft model's token ids, which may differ from the target's.
    """

    origin = "draft"
    short_memories: Sequence[int] = SHORT_MEMORIES

    def __init__(
        self, model: LanguageModel, token_map: TokenMap, end_tokens: Collection[int] = ()
    ) -> None:
        """Draft with this model and token map; stop after one of the `end_tokens`."""
        self._model = model
        self._map = token_map
        self._end_tokens = frozenset(end_tokens)
        self._tokens: list[int] = []
        self._num_read = 0  # leading tokens that are in the model's memory
        self._is_ahead = False  # whether drafted tokens of this step follow them there
        self._is_spoiled = False  # whether the memory has given NaN: masked, it would come back
        self._drafted: list[int] = []
        self._first: Distribution | None = None  # of the token drafted first
        self._sampler = Sampler(Sampling())
        self._draw: Draw
        self._walk: Walk
        self._index = 0  # of the next token in the answer
        self._beside: SideBranches
        self._has_branches = self._reads_prompt = False

    @property
    def unfit_reason(self) -> str | None:
        """Why the model does not suit this target, None if it may."""
        return None

    def begin(self, task: DraftTask) -> None:
        """Start an answer."""
        self._tokens = self._map.prompt(task.tokens)
        self._drafted, self._is_ahead = [], False
        self._sampler = Sampler(self._map.sampling(task.sampling))
        self._draw, self._walk, self._index = task.draw, task.walk, 0
        self._has_branches = task.has_branches
        self._beside = SideBranches(task, self._map, self.origin)
        if self._is_spoiled:
            self._model.prefill([])
            self._is_spoiled = False
        self._num_read = self._model.count_known(self._tokens)
        unread = self._tokens[self._num_read :]
        # an image takes longer than its tokens say: the model's own projector encodes it first
        is_short = len(unread) <= self.short_memories[0] and min(unread, default=0) >= 0
        is_worth_it = task.is_ever and (task.is_soon or is_short)
        self._reads_prompt = is_worth_it and len(self._tokens) <= self._model.capacity

    def reading(self, is_brief: Callable[[], bool]) -> Generator[None]:
        """Read all but the prompt's last token if drafts are likely soon."""
        if self._reads_prompt:
            yield from self._reading(is_brief)

    def propose(self, pacer: Pacer, after: Sequence[int] = ()) -> list[DraftToken]:
        """Draw tokens that follow the text and `after` (drafted by others) while that pays."""
        draft, named = list[DraftToken](), list(after)
        self._beside.clear()
        self._add_forced(pacer, draft, named)
        drafted = self._map.read(named)
        if not self._has_room(len(drafted)):
            self._shorten(self._model.capacity // 2)
        if not (self._has_room(len(drafted)) and self._catch_up(pacer, len(drafted))):
            return []
        return self._drawn(pacer, draft, named, drafted)

    def branches(self) -> Sequence[Branch]:
        """Return the tokens likely in place of each drafted one."""
        return self._beside.branches

    def observe(self, emitted: Sequence[int], num_accepted: int) -> None:
        """Keep the accepted tokens in memory, and roll back the rest."""
        self._beside.clear()
        read = self._map.read(emitted)  # a correction may be spelled as what was rejected
        num_right = 0
        for right, drafted in zip(read, self._drafted, strict=False):
            if right != drafted:
                break
            num_right += 1
        # the memory is right as far as the answer, in the draft model's ids, agrees with the draft
        length = len(self._tokens) + num_right
        self._tokens += read
        if num_accepted < len(emitted):  # the next pass needs a token to read
            length = min(length, len(self._tokens) - 1)
        self._index += len(emitted)
        if not self._is_ahead:
            return
        self._model.rollback(min(length, self._model.length))
        self._num_read = self._model.length
        self._drafted, self._is_ahead = [], False

    def _drawn(
        self, pacer: Pacer, draft: list[DraftToken], named: list[int], drafted: list[int]
    ) -> list[DraftToken]:
        """Make a pass and draw a token in turns while the pacer wants both; return the draft.

        `named` holds all tokens drafted in this step, those of other drafters included, by the
        target's ids. `drafted` is the same text by the draft model's own ids, which may be more or
        fewer tokens. `draft` holds those to propose. All three grow in place.
        """
        self._first = None
        pending = [*self._tokens[self._num_read :], *drafted]
        self._drafted, self._is_ahead = drafted, True
        past = [*self._sampler.window(self._tokens), *drafted]
        num_siblings = pacer.num_siblings if self._has_branches else 0
        while True:
            self._model.mark()
            logits = self._map.restricted(self._model.evaluate(pending, 1)[0])
            try:
                mask = self._walk.mask_after(named)
                own = self._sampler.distribution(logits, past, self._map.mask(mask))
            except NotNumbers:
                self._is_spoiled = True
                break
            except (EngineFailed, NothingAllowed):  # by the constraint, or of the common tokens
                break
            distribution = self._map.named(own)
            self._first = self._first or distribution
            # finding the second best token takes time: only where the pacer makes use of it
            is_sure = not pacer.needs_confidence or (mask is not None and mask.is_single)
            confidence = 1.0 if is_sure else confidence_of(logits, own)
            hint = Hint(confidence, distribution)
            if num_siblings:  # before the draw: they are chosen, whatever it will be
                row = logits
                if self._sampler.sampling.is_greedy:
                    row = self._sampler.preferred(logits, past, self._map.mask(mask))
                fork = len(named)
                self._beside.add(row, distribution, self._index + fork, fork, num_siblings)
            if not pacer.wants_token(self.origin, hint):
                break
            token = self._draw(distribution, self._index + len(named))
            draft.append(DraftToken(token, distribution, self.origin))
            named.append(token)
            run = self._add_forced(pacer, draft, named)
            pending = self._map.read([token, *run])
            drafted += pending
            is_over = token in self._end_tokens or not self._has_room(len(drafted))
            if is_over or not self._wants_another(pacer, len(pending)):
                break
            past += pending
        return draft

    def _add_forced(self, pacer: Pacer, draft: list[DraftToken], named: list[int]) -> Sequence[int]:
        """Add the tokens that must follow to the draft, without passes, and return them."""
        if run := self._walk.forced_after(named)[: max(0, pacer.room)]:
            pacer.make_room(len(run))
            draft += map(forced_token, run)
            named += run
        return run

    def _wants_another(self, pacer: Pacer, num_pending: int) -> bool:
        """Return whether the pacer wants a pass over these tokens, to draft one more."""
        return pacer.wants_pass(self.origin, num_pending)

    def _has_room(self, num_drafted: int) -> bool:
        return len(self._tokens) + num_drafted <= self._model.capacity

    def _catch_up(self, pacer: Pacer, num_after: int) -> bool:
        """Read the tokens missed so far, except the last few, which the next pass reads itself.

        Returns False if the pacer does not want a pass over the missed tokens and `num_after` more.
        """
        num_missed = len(self._tokens) - self._num_read
        for most in self.short_memories:
            if pacer.wants_pass(self.origin, min(num_missed, most) + num_after):
                break
            if num_missed <= most:
                return False
        else:
            return False
        if num_missed > most:
            self._shorten(most)
        is_far = not 0 < num_missed <= LONGEST_CATCH_UP or min(self._tokens[self._num_read :]) < 0
        if is_far or self._num_read < self._model.length:
            self._read()
        return True

    def _read(self) -> None:
        for _ in self._reading(lambda: False):
            pass

    def _reading(self, is_brief: Callable[[], bool]) -> Generator[None]:
        yield from reading_of(self._model, self._tokens[:-1], None, is_brief)
        self._num_read = self._model.length

    def _shorten(self, num_kept: int) -> None:
        first = max(0, len(self._tokens) - num_kept)
        while self._tokens[first] < 0:  # it may be in the middle of an image
            first += 1
        self._tokens = self._tokens[first:]
        self._num_read = self._model.count_known(self._tokens)


def confidence_of(logits: Logits, distribution: Distribution) -> float:
    """Return the draft model's confidence in its next token, from 0.5 to 1.

    At temperature 0 it is p1 / (p1 + p2) of the two most likely tokens. Above that, even a token
    of a broad distribution is accepted if the target's is as broad.
    """
    if len(distribution) > 1 or logits.size < 2:
        return 0.5 + 0.5 * distribution.largest_share
    best = distribution.best()
    highest = logits.item(best)
    logits[best] = -math.inf  # restored at once: the cheapest way to find the second
    second = logits.item(logits.argmax())
    logits[best] = highest
    lead = max(0.0, highest - second)
    return 1.0 / (1.0 + math.exp(-min(lead, 30.0)))


def make(materials: Materials) -> DraftModelDrafter:
    """Return a drafter that uses the draft model; there must be one."""
    if materials.draft_model is None:
        raise ValueError("no draft model")
    return DraftModelDrafter(materials.draft_model, materials.tokens, materials.end_tokens)
