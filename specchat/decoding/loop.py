"""The loop: draft, verify in one target pass, accept a prefix, add a token of the target's own."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import TypeAlias

from numpy.random import default_rng

from specchat.decoding.chunk import Alternative, Chunk, Finish
from specchat.decoding.constraint import Constraint, Walk
from specchat.decoding.distribution import LARGEST_TABLE, Distribution, Random
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.noise import Noise
from specchat.decoding.own_probabilities import OwnProbabilities
from specchat.decoding.ports import Drafter, DraftTask, LanguageModel, Pacer, PromptProgress, Rows
from specchat.decoding.proposal import DraftToken, forced_token
from specchat.decoding.sampling import Sampler
from specchat.decoding.statistics import Statistics
from specchat.decoding.text_assembler import TextAssembler
from specchat.decoding.verification import (
    TargetAt,
    Verdict,
    Verifier,
    verify_by_argmax,
    verify_by_block,
    verify_by_noise,
)
from specchat.drafter_registry import GRAMMAR, TARGET
from specchat.errors import Cancelled, ContextFull, InvalidOption
from specchat.options.declarations import Sampling

Chances: TypeAlias = tuple[tuple[float, float], ...]
Alternatives: TypeAlias = tuple[tuple[Alternative, ...], ...]
SHORTER_OR_LARGER = "shorten it or choose a larger context with --ctx"


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to decode: the prompt, how to sample, when to stop, and how much to draft.

    With the `noise` of a seed, the text depends on prompt, sampling and target alone; without it,
    tokens are drawn with `random`. The next prompt is expected to share the first `num_shared`
    tokens, so the target can prepare to roll back to there; 0 if unknown.

    The answer begins with the tokens of `begun`, steps of an earlier answer, and goes on as if it
    had been decoded up to there. Steps record up to `num_alternatives` likely tokens for each one.

    The answer is what `constraint` allows. Tokens that it forces are emitted at once and read with
    the next draft, in passes of at most `longest_pass` tokens; None for any number.
    """

    tokens: Sequence[int]
    sampling: Sampling
    random: Random = field(default_factory=lambda: default_rng().random)
    noise: Noise | None = None
    draft_length: int = 3
    max_tokens: int | None = None
    end_tokens: Collection[int] = ()
    stop_strings: Sequence[str] = ()
    piece: Callable[[int], bytes] = field(default=lambda _: b"")
    is_cancelled: Callable[[], bool] = lambda: False
    verifier: Verifier | None = None
    num_shared: int = 0
    if_too_long: str = SHORTER_OR_LARGER
    begun: Sequence[Chunk] = ()
    num_alternatives: int = 0
    constraint: Constraint | None = None
    longest_pass: int | None = None

    def __post_init__(self) -> None:
        """Raise InvalidOption for a value out of range."""
        if not self.tokens:
            raise InvalidOption("the prompt is empty: give at least one token")
        if self.draft_length < 0:
            raise InvalidOption(f"draft_length must be 0 or more, not {self.draft_length}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidOption(f"max_tokens must be 1 or more, not {self.max_tokens}")

    def draw(self, distribution: Distribution, index: int) -> int:
        """Draw a token for an index of the answer; at temperature 0 take the most probable one."""
        if self.noise and len(distribution) > 1:
            return self.noise.draw(distribution, index)
        return distribution.sample(self.random)

    def verifier_at(self, index: int) -> Verifier:
        """Return the verifier of a draft whose first token has this index in the answer.

        That is argmax at temperature 0. Above that, noise gives the same text with any draft;
        without a seed, block verification accepts the most.
        """
        if self.verifier or self.sampling.is_greedy:
            return self.verifier or verify_by_argmax
        return verify_by_noise(self.noise, index) if self.noise else verify_by_block


def decode(
    target: LanguageModel,
    drafter: Drafter,
    request: Request,
    statistics: Statistics,
    on_progress: PromptProgress | None = None,
    pacer: Pacer | None = None,
) -> Iterator[Chunk]:
    """Decode one answer, yielding a chunk per step and updating the statistics.

    The steps that the answer begins with come first and do not count in the statistics. The pacer
    decides how much of the request's draft length is used; without one, all of it is.

    Whenever a new chunk is yielded, the target's memory holds the prompt and all emitted tokens but
    the last one that was not forced and those after it, so the generator may be closed at any
    chunk; if reading the prompt was stopped, it holds a part of that. Raises ContextFull if the
    prompt does not fit.
    """
    answer = _Answer(target, request, statistics, pacer or FixedPacer())
    answer.require_room()
    for chunk in _chunks(answer, drafter, on_progress):
        if chunk.finish:  # nobody may ask for more after the last chunk
            statistics.is_valid = answer.is_valid
        yield chunk


def _chunks(
    answer: "_Answer", drafter: Drafter, on_progress: PromptProgress | None
) -> Iterator[Chunk]:
    """Yield the chunks of an answer."""
    try:
        yield from answer.begun()
        if answer.finish is None:
            opening = answer.opening()
            try:
                answer.read_prompt(drafter, on_progress)
            finally:  # it is counted, and must come whether or not the prompt was read
                if opening:
                    yield opening
        while answer.finish is None:
            yield answer.step(drafter)
    except Cancelled:
        if answer.finish is None:
            yield answer.ended("cancelled")


class _Answer:
    """The state of one answer while it is decoded."""

    def __init__(
        self, target: LanguageModel, request: Request, statistics: Statistics, pacer: Pacer
    ) -> None:
        self.finish: Finish | None = None
        self._target = target
        self._request = request
        self._statistics = statistics
        self._pacer = pacer
        self._num_before = sum(len(step.tokens) for step in request.begun)
        self._tokens = [*request.tokens, *(each for step in request.begun for each in step.tokens)]
        self._num_left = request.max_tokens or sys.maxsize
        self._sampler = Sampler(request.sampling)
        self._own = OwnProbabilities()
        self._text = TextAssembler(request.piece, request.stop_strings, request.end_tokens)
        self._walk = Walk(request.constraint, frozenset(request.end_tokens))
        self._num_unread = 1  # emitted tokens that the next pass reads

    @property
    def is_valid(self) -> bool | None:
        """Whether the answer is what its constraint allows as a whole; None without one."""
        return self._walk.is_complete

    def require_room(self) -> None:
        """Raise ContextFull if the prompt, with the answer so far, exceeds the context."""
        num_tokens, capacity = len(self._tokens), self._target.capacity
        if num_tokens > capacity:
            error = ContextFull(
                f"the prompt has {num_tokens} tokens and the context holds {capacity}:"
                f" {self._request.if_too_long}"
            )
            error.num_tokens, error.capacity = num_tokens, capacity
            raise error

    def begun(self) -> Iterator[Chunk]:
        """Yield the steps that the answer begins with, their texts assembled anew.

        Only their last token may end the answer.
        """
        for step in self._request.begun:
            texts = tuple([self._text.push(token) for token in step.tokens])
            for token in step.tokens:
                self._walk.follow(token)
            if self._text.is_stopped or self._walk.is_over:
                self.finish = "stop"
            yield step._replace(
                text="".join(texts), texts=texts, finish=self.finish, seconds=0.0,
                reasoning="", tool_calls=(), pieces=(),
            )  # fmt: skip

    def read_prompt(self, drafter: Drafter, on_progress: PromptProgress | None) -> None:
        """Evaluate all of the prompt but its last token, and begin the drafter's answer."""
        request, statistics, tokens = self._request, self._statistics, self._tokens
        num_tokens = len(tokens)
        statistics.prompt_tokens = num_tokens - statistics.forced
        began = perf_counter()
        try:
            num_cached = self._target.count_known(tokens)
            if 0 < request.num_shared < num_tokens - 1 and num_cached < request.num_shared:
                num_cached = self._target.prefill(tokens[: request.num_shared], on_progress)
            else:
                num_cached = num_tokens
            num_forced = self._num_forced_last() if request.longest_pass else 0
            num_read = self._target.prefill(tokens[: -1 - num_forced], on_progress)
            self._read_exactly(num_forced)
            statistics.cached_tokens = min(num_cached, num_read)
            is_soon = self._pacer.expects_drafting(num_tokens)
            is_ever = request.draft_length > 0 and request.max_tokens != 1
            sampling, draw = request.sampling, self._draw_draft
            task = DraftTask(tokens, sampling, draw, is_soon, is_ever, self._walk)
            drafter.begin(task)
        finally:
            statistics.prompt_s += perf_counter() - began
            if statistics.forced:
                statistics.time_to_first_token_s = statistics.prompt_s

    def _num_forced_last(self) -> int:
        """Return how many forced tokens end the steps that the answer begins with.

        None if it has no others: the prompt's passes have read these.
        """
        origins = [name for step in self._request.begun for name in step.origins]
        count = next(
            (place for place, name in enumerate(reversed(origins)) if name != GRAMMAR.name), 0
        )
        is_last = self._num_before == len(origins)  # no opening follows
        return count if is_last else 0

    def _read_exactly(self, num_forced: int) -> None:
        """Read the last forced tokens of an interrupted answer as it would have gone on to."""
        self._num_unread = 1 + num_forced
        longest = self._request.longest_pass or self._num_unread
        while self._num_unread > 1:
            depth = len(self._tokens) - self._num_unread
            size = min(longest, self._num_unread - 1)
            self._target.evaluate(self._tokens[depth : depth + size], 0)
            self._num_unread -= size

    def opening(self) -> Chunk | None:
        """Emit the tokens that must begin the answer, if any; the prompt's passes read them."""
        tokens, texts = self._forced()
        self._num_before += len(tokens)
        if not tokens:
            return None
        origins = (GRAMMAR.name,) * len(tokens)
        return Chunk(
            "".join(texts), tokens, origins, texts, finish=self.finish,
            alternatives=self._certain(tokens), stop_string=self._text.stop_string,
        )  # fmt: skip

    def step(self, drafter: Drafter) -> Chunk:
        """Draft, verify the draft in one target pass, and emit the accepted tokens and one more."""
        began = perf_counter()
        room = self._target.capacity - len(self._tokens) + 1
        if (is_cancelled := self._request.is_cancelled()) or room == 0:
            return self.ended("cancelled" if is_cancelled else "context")
        num_unread = self._read_ahead()
        depth = len(self._tokens) - num_unread
        # -1 for the last token, evaluated with the draft, and -1 for the target's own token
        limit = min(self._request.draft_length, room - 1, self._num_left - 1)
        if self._request.longest_pass and num_unread > 1:
            limit = min(limit, self._request.longest_pass - num_unread)
        self._pacer.begin_step(depth, limit, num_unread - 1)
        draft = self._extended(self._cut(drafter.propose(self._pacer)), limit)
        drafted = perf_counter()
        if draft:
            self._target.mark()
        tokens = [each.token for each in draft]
        rows = self._target.evaluate([*self._tokens[depth:], *tokens], len(tokens) + 1)
        evaluated = perf_counter()
        verdict, chances = self._verify(draft, tokens, rows)
        chunk = self._emit(draft, tokens, verdict, rows)
        num_own = len(chunk.tokens) - self._num_unread + 1
        drafter.observe(chunk.tokens, min(verdict.num_accepted, num_own))
        single = self._pacer.end_step(chunk.tokens[:num_own], perf_counter() - drafted)
        num_read, num_decoded = num_unread + len(tokens), num_unread - 1 + num_own
        times = (began, drafted, evaluated)
        self._statistics.time_step(num_read, num_decoded, single, *times)
        return chunk._replace(seconds=self._statistics.decode_s, chances=chances)

    def _cut(self, draft: Sequence[DraftToken]) -> Sequence[DraftToken]:
        """Cut a draft before a token that may not come, unless that was drawn.

        A drawn one has to be rejected, so that what was not drawn gets its share of the correction.
        """
        length = self._walk.num_allowed([each.token for each in draft])
        is_certain = length < len(draft) and len(draft[length].distribution) == 1
        return draft[:length] if is_certain else draft

    def _extended(self, draft: Sequence[DraftToken], limit: int) -> Sequence[DraftToken]:
        """Append the tokens that must follow a draft, up to `limit` in all.

        They are accepted if the draft is, and the target's own token then follows them. Without
        them its place would be that of the first one, which comes in any case.
        """
        if not draft:
            return draft
        run = self._walk.forced_after([each.token for each in draft])
        return [*draft, *map(forced_token, run[: max(0, limit - len(draft))])]

    def _read_ahead(self) -> int:
        """Read forced tokens that are too many for one pass; return how many are left for it."""
        longest = self._request.longest_pass
        while longest and self._num_unread > longest:
            depth = len(self._tokens) - self._num_unread
            self._target.evaluate(self._tokens[depth : depth + longest], 0)
            self._num_unread -= longest
        return self._num_unread

    def _draw_draft(self, distribution: Distribution, index: int) -> int:
        """Draw a drafted token: its index counts from the first step."""
        return self._request.draw(distribution, self._num_before + index)

    def _verify(
        self, draft: Sequence[DraftToken], tokens: list[int], rows: Rows
    ) -> tuple[Verdict, Chances]:
        """Verify the draft by the target's logits after the last token and each of the draft's."""
        past = self._sampler.window(self._tokens)  # empty unless penalties look back

        @cache
        def target_at(index: int) -> Distribution:
            history = [*past, *tokens[:index]] if past else ()
            if run := self._walk.forced_after(tokens[:index]):
                return Distribution.certain(run[0])  # whatever the options make of it
            mask = self._walk.mask_after(tokens[:index])
            return self._sampler.distribution(rows[index], history, mask)

        verify = self._request.verifier_at(len(self._tokens) - len(self._request.tokens))
        verdict = verify(draft, target_at, self._request.random)
        self._pacer.learn(draft, target_at, verdict)
        return verdict, self._chances(draft[: verdict.num_accepted + 1], target_at)

    def _chances(self, compared: Sequence[DraftToken], target: TargetAt) -> Chances:
        """Return the target's and the drafter's probability of the tokens that were compared.

        Empty at temperature 0, and with many candidates, where finding the token would take time.
        """
        pairs = [(target(index), each) for index, each in enumerate(compared)]
        if self._request.sampling.is_greedy or any(
            max(len(wanted), len(each.distribution)) > LARGEST_TABLE for wanted, each in pairs
        ):
            return ()
        return tuple(
            [(p.probability(own), proposed.probability(own)) for p, (own, proposed, _) in pairs]
        )

    def _forced_places(self, run: Sequence[int]) -> list[bool]:
        """Return for each token that follows the answer whether it must, if that is asked for."""
        if not self._request.num_alternatives:
            return []
        return [bool(self._walk.forced_after(run[:place])) for place in range(len(run))]

    def _alternatives(
        self, tokens: Sequence[int], certain: Sequence[bool], rows: Rows
    ) -> Alternatives:
        """Return the most likely tokens in the place of each emitted one, if asked for.

        In that of a forced one, whoever drafted it, it is the only one.
        """
        count, piece = self._request.num_alternatives, self._text.piece
        found: list[tuple[Alternative, ...]] = []
        for index, token in enumerate(tokens if count else ()):
            if certain[index]:
                found += self._certain([token])
            else:
                likely = self._own.likeliest(rows[index], token, count)
                found.append(tuple([(each, piece(each), share) for each, share in likely]))
        return tuple(found)

    def _certain(self, tokens: Sequence[int]) -> Alternatives:
        """Return tokens as the only ones in their places, if alternatives are asked for."""
        if not self._request.num_alternatives:
            return ()
        return tuple([((token, self._text.piece(token), 1.0),) for token in tokens])

    def _emit(
        self, draft: Sequence[DraftToken], proposed: list[int], verdict: Verdict, rows: Rows
    ) -> Chunk:
        """Emit the accepted tokens and the target's own, up to the end; roll back the rest.

        Tokens that must follow are emitted with them.
        """
        run = (*proposed[: verdict.num_accepted], verdict.token)
        certain = self._forced_places(run)
        texts = self._texts_until_end(run)
        tokens, num_kept = run[: len(texts)], min(verdict.num_accepted, len(texts))
        self._tokens += tokens
        proposers = [each.origin for each in draft]
        self._count(proposers, num_kept, len(tokens))
        origins = (*proposers[:num_kept], TARGET.name)[: len(tokens)]
        alternatives = self._alternatives(tokens, certain, rows)
        if draft:  # a rollback may evaluate tokens again, which overwrites the rows
            self._target.rollback(len(self._tokens) - 1)
        wrong = [each.token for each in draft[num_kept:] if each.origin != GRAMMAR.name]
        rejected = tuple(map(self._text.piece, wrong))
        forced, more_texts = self._forced() if self.finish is None else ((), ())
        self._num_unread = 1 + len(forced)
        if forced:
            names = (GRAMMAR.name,) * len(forced)
            alternatives += self._certain(forced)
            tokens, texts, origins = tokens + forced, texts + more_texts, origins + names
        return Chunk(
            "".join(texts), tokens, origins, texts, (*proposed[:num_kept], *wrong), rejected,
            self.finish, alternatives=alternatives, stop_string=self._text.stop_string,
        )  # fmt: skip

    def _count(self, proposers: Sequence[str], num_kept: int, num_emitted: int) -> None:
        """Count a step, and the forced tokens of its draft apart."""
        drafted = [name for name in proposers if name != GRAMMAR.name]
        num_forced = list(proposers[:num_kept]).count(GRAMMAR.name)
        num_accepted, num_own = num_kept - num_forced, num_emitted - num_forced
        self._statistics.count_step(len(drafted), num_accepted, num_own, drafted)
        self._statistics.count_forced(num_forced)

    def _forced(self) -> tuple[tuple[int, ...], tuple[str, ...]]:
        """Add the tokens that must follow now to the answer; return them and their texts."""
        room = self._target.capacity + 1 - len(self._tokens)
        forced = self._walk.forced()[:room]
        texts = self._texts_until_end(forced)
        tokens = tuple(forced[: len(texts)])
        self._tokens += tokens
        self._statistics.count_forced(len(tokens))
        return tokens, texts

    def _texts_until_end(self, run: Sequence[int]) -> tuple[str, ...]:
        """Return the text of each token up to the one that ends the answer; set the reason."""
        texts: list[str] = []
        for token in run:
            texts.append(self._text.push(token))
            self._walk.follow(token)
            self._num_left -= 1
            is_stopped = self._text.is_stopped or self._walk.is_over
            if is_stopped or not self._num_left:
                self.finish = "stop" if is_stopped else "length"
                texts[-1] += self._text.finish()
                break
        return tuple(texts)

    def ended(self, finish: Finish) -> Chunk:
        """End the answer after the last step; the chunk holds no tokens."""
        self.finish = finish
        return Chunk(text=self._text.finish(), finish=finish)
