"""The loop: draft, verify in one target pass, accept a prefix, add a token of the target's own."""

import sys
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import TypeAlias

from numpy.random import default_rng

from specchat.decoding.chunk import Alternative, Chunk, Finish
from specchat.decoding.distribution import LARGEST_TABLE, Distribution, Random
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.noise import Noise
from specchat.decoding.own_probabilities import OwnProbabilities
from specchat.decoding.ports import Drafter, DraftTask, LanguageModel, Pacer, PromptProgress, Rows
from specchat.decoding.proposal import DraftToken
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
from specchat.drafter_registry import TARGET
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
    the last, so the generator may be closed at any chunk. Raises ContextFull if the prompt does not
    fit.
    """
    answer = _Answer(target, request, statistics, pacer or FixedPacer())
    answer.require_room()
    try:
        yield from answer.begun()
        if answer.finish is None:
            answer.read_prompt(drafter, on_progress)
        while answer.finish is None:
            yield answer.step(drafter)
    except Cancelled:
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
        self._num_begun = sum(len(step.tokens) for step in request.begun)
        self._tokens = [*request.tokens, *(each for step in request.begun for each in step.tokens)]
        self._num_left = request.max_tokens or sys.maxsize
        self._sampler = Sampler(request.sampling)
        self._own = OwnProbabilities()
        self._text = TextAssembler(request.piece, request.stop_strings, request.end_tokens)

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
            if self._text.is_stopped:
                self.finish = "stop"
            yield step._replace(
                text="".join(texts), texts=texts, finish=self.finish, seconds=0.0,
                reasoning="", tool_calls=(), pieces=(),
            )  # fmt: skip

    def read_prompt(self, drafter: Drafter, on_progress: PromptProgress | None) -> None:
        """Evaluate all of the prompt but its last token, and begin the drafter's answer."""
        request, statistics, tokens = self._request, self._statistics, self._tokens
        num_tokens = len(tokens)
        statistics.prompt_tokens = num_tokens
        began = perf_counter()
        try:
            num_cached = self._target.count_known(tokens)
            if 0 < request.num_shared < num_tokens - 1 and num_cached < request.num_shared:
                num_cached = self._target.prefill(tokens[: request.num_shared], on_progress)
            else:
                num_cached = num_tokens
            num_read = self._target.prefill(tokens[:-1], on_progress)
            statistics.cached_tokens = min(num_cached, num_read)
            is_soon = self._pacer.expects_drafting(num_tokens)
            is_ever = request.draft_length > 0 and request.max_tokens != 1
            task = DraftTask(tokens, request.sampling, self._draw_draft, is_soon, is_ever)
            drafter.begin(task)
        finally:
            statistics.prompt_s += perf_counter() - began

    def step(self, drafter: Drafter) -> Chunk:
        """Draft, verify the draft in one target pass, and emit the accepted tokens and one more."""
        depth, began = len(self._tokens) - 1, perf_counter()
        room = self._target.capacity - depth
        if (is_cancelled := self._request.is_cancelled()) or room == 0:
            return self.ended("cancelled" if is_cancelled else "context")
        # -1 for the last token, evaluated with the draft, and -1 for the target's own token
        self._pacer.begin_step(depth, min(self._request.draft_length, room - 1, self._num_left - 1))
        draft = drafter.propose(self._pacer)
        drafted = perf_counter()
        if draft:
            self._target.mark()
        tokens = [each.token for each in draft]
        rows = self._target.evaluate([self._tokens[-1], *tokens], len(tokens) + 1)
        evaluated = perf_counter()
        verdict, chances = self._verify(draft, tokens, rows)
        chunk = self._emit(draft, tokens, verdict, rows)
        drafter.observe(chunk.tokens, min(verdict.num_accepted, len(chunk.tokens)))
        single = self._pacer.end_step(chunk.tokens, perf_counter() - drafted)
        self._statistics.time_step(chunk, single, began, drafted, evaluated)
        return chunk._replace(seconds=self._statistics.decode_s, chances=chances)

    def _draw_draft(self, distribution: Distribution, index: int) -> int:
        """Draw a drafted token: its index counts from the end of what the answer begins with."""
        return self._request.draw(distribution, self._num_begun + index)

    def _verify(
        self, draft: Sequence[DraftToken], tokens: list[int], rows: Rows
    ) -> tuple[Verdict, Chances]:
        """Verify the draft by the target's logits after the last token and each of the draft's."""
        past = self._sampler.window(self._tokens)  # empty unless penalties look back

        @cache
        def target_at(index: int) -> Distribution:
            history = [*past, *tokens[:index]] if past else ()
            return self._sampler.distribution(rows[index], history)

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

    def _alternatives(self, tokens: Sequence[int], rows: Rows) -> Alternatives:
        """Return the most likely tokens in the place of each emitted one, if asked for."""
        count = self._request.num_alternatives
        return tuple(
            [
                tuple([(each, self._text.piece(each), share) for each, share in found])
                for token, row in zip(tokens, rows if count else (), strict=False)
                for found in [self._own.likeliest(row, token, count)]
            ]
        )

    def _emit(
        self, draft: Sequence[DraftToken], proposed: list[int], verdict: Verdict, rows: Rows
    ) -> Chunk:
        """Emit the accepted tokens and the target's own, up to the end; roll back the rest."""
        run = (*proposed[: verdict.num_accepted], verdict.token)
        texts = self._texts_until_end(run)
        tokens, num_kept = run[: len(texts)], min(verdict.num_accepted, len(texts))
        self._tokens += tokens
        self._num_left -= len(tokens)
        proposers = [each.origin for each in draft]
        self._statistics.count_step(len(draft), num_kept, len(tokens), proposers)
        alternatives = self._alternatives(tokens, rows)
        if draft:  # a rollback may evaluate tokens again, which overwrites the rows
            self._target.rollback(len(self._tokens) - 1)
        origins = (*proposers[:num_kept], TARGET.name)[: len(tokens)]
        rejected = tuple([self._text.piece(token) for token in proposed[num_kept:]])
        return Chunk(
            "".join(texts), tokens, origins, texts, tuple(proposed), rejected, self.finish,
            alternatives=alternatives, stop_string=self._text.stop_string,
        )  # fmt: skip

    def _texts_until_end(self, run: Sequence[int]) -> tuple[str, ...]:
        """Return the text of each token up to the one that ends the answer; set the reason."""
        texts: list[str] = []
        for token in run:
            texts.append(self._text.push(token))
            if self._text.is_stopped or len(texts) == self._num_left:
                self.finish = "stop" if self._text.is_stopped else "length"
                texts[-1] += self._text.finish()
                break
        return tuple(texts)

    def ended(self, finish: Finish) -> Chunk:
        """End the answer after the last step; the chunk holds no tokens."""
        self.finish = finish
        return Chunk(text=self._text.finish(), finish=finish)
