"""The loop: draft, verify in one target pass, accept a prefix, add a token of the target's."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from specchat.decoding.chunk import Chunk, Finish, Origin
from specchat.decoding.distribution import Distribution, Random
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.ports import Drafter, LanguageModel, Pacer, PromptProgress, Task
from specchat.decoding.proposal import NOTHING, Proposal
from specchat.decoding.sampling import Sampler
from specchat.decoding.sampling_options import Sampling
from specchat.decoding.statistics import Statistics
from specchat.decoding.text_assembler import TextAssembler
from specchat.decoding.verification import Verdict, Verifier, verify_by_argmax, verify_by_block
from specchat.drafters import TARGET
from specchat.errors import Cancelled, ContextFull, InvalidOption

__all__ = ["Request", "decode", "never"]


def never() -> bool:
    """Say no: nobody cancels."""
    return False


@dataclass(frozen=True, slots=True)
class Request:
    """One answer to be decoded: the prompt, how to sample, when to stop, and how much to draft."""

    tokens: Sequence[int]
    sampling: Sampling
    draw: Random
    draft_draw: Random
    draft_length: int = 3
    max_tokens: int | None = None
    end_tokens: Collection[int] = ()
    stop_strings: Sequence[str] = ()
    piece: Callable[[int], bytes] = field(default=lambda _: b"")
    is_cancelled: Callable[[], bool] = never
    verifier: Verifier | None = None

    def __post_init__(self) -> None:
        """Refuse values out of range."""
        if not self.tokens:
            raise InvalidOption("the prompt is empty: give at least one token")
        if self.draft_length < 0:
            raise InvalidOption(f"draft_length must be 0 or more, not {self.draft_length}")
        if self.max_tokens is not None and self.max_tokens < 1:
            raise InvalidOption(f"max_tokens must be 1 or more, not {self.max_tokens}")

    @property
    def best_verifier(self) -> Verifier:
        """The verifier that keeps the most: argmax at temperature 0, block verification above."""
        return self.verifier or (verify_by_argmax if self.sampling.is_greedy else verify_by_block)


def decode(
    target: LanguageModel,
    drafter: Drafter,
    request: Request,
    statistics: Statistics,
    on_progress: PromptProgress | None = None,
    pacer: Pacer | None = None,
) -> Iterator[Chunk]:
    """Decode one answer, a chunk a step, filling in the statistics on the way.

    The pacer decides how much of the request's draft length is used; without one, all of it.

    Whenever a chunk is yielded the target's memory holds the prompt and all emitted tokens but the
    last, so the generator may be closed at any of them. Raises ContextFull for a prompt that does
    not fit.
    """
    answer = _Answer(target, request, statistics, pacer or FixedPacer())
    try:
        answer.read_prompt(drafter, on_progress)
        while answer.finish is None:
            yield answer.step(drafter)
    except Cancelled:
        yield answer.cancelled()


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
        self._tokens = list(request.tokens)
        self._sampler = Sampler(request.sampling)
        self._verify = request.best_verifier
        self._text = TextAssembler(request.piece, request.stop_strings)
        self._started = perf_counter()

    def read_prompt(self, drafter: Drafter, on_progress: PromptProgress | None) -> None:
        """Bring the prompt, but for its last token, into the target's and the drafter's memory."""
        target, tokens, statistics = self._target, self._request.tokens, self._statistics
        if len(tokens) > target.capacity:
            raise ContextFull(
                f"the prompt has {len(tokens)} tokens and the context holds {target.capacity}:"
                " shorten it or choose a larger context with --ctx"
            )
        statistics.prompt_tokens = len(tokens)
        statistics.cached_tokens = target.prefill(tokens[:-1], on_progress)
        request, is_soon = self._request, self._pacer.expects_drafting(len(tokens))
        is_ever = request.draft_length > 0 and request.max_tokens != 1
        drafter.begin(Task(tokens, request.sampling, request.draft_draw, is_soon, is_ever))
        statistics.prompt_s = perf_counter() - self._started

    def step(self, drafter: Drafter) -> Chunk:
        """Draft, verify and commit; the chunk says what came of it."""
        room = self._target.capacity - self._target.length
        if self._request.is_cancelled():
            return self.cancelled()
        if room == 0:
            return self._ended("context")
        started = perf_counter()
        try:
            proposal = self._propose(drafter, room)
            proposed = perf_counter()
            verdict = self._verified(proposal)
            chunk = self._commit(proposal, verdict)
            took = perf_counter() - proposed
            self._pacer.end_step(chunk.tokens, took)
            self._count_plain(chunk, took)
            drafter.observe(chunk.tokens, min(verdict.num_accepted, len(chunk.tokens)))
        finally:  # a step that is stopped took its time too
            self._statistics.decode_s += perf_counter() - started
        if self._statistics.steps == 1:
            self._statistics.time_to_first_token_s = perf_counter() - self._started
        return chunk

    def cancelled(self) -> Chunk:
        """End the answer where it is, on the user's word."""
        return self._ended("cancelled")

    def _count_plain(self, chunk: Chunk, took: float) -> None:
        """Count what plain decoding would have taken; a pacer that learns knows that best."""
        statistics = self._statistics
        single = self._pacer.plain_seconds or statistics.pass_costs.get(1, 0.0)
        statistics.count_plain(len(chunk.proposed), len(chunk.tokens), took, single)

    def _propose(self, drafter: Drafter, room: int) -> Proposal:
        """Let the drafter propose what can be used: no more than may be emitted or remembered."""
        limit = min(self._request.draft_length, room - 1)
        if self._request.max_tokens is not None:
            limit = min(limit, self._request.max_tokens - self._num_generated - 1)
        self._pacer.begin_step(self._target.length, max(0, limit))
        if limit < 1:
            return NOTHING
        started = perf_counter()
        proposal = drafter.propose(self._pacer)
        self._statistics.draft_s += perf_counter() - started
        return proposal

    def _verified(self, proposal: Proposal) -> Verdict:
        """Evaluate the last token and the draft in one target pass, and verify the draft."""
        drafted = [token for token, _, _ in proposal.draft]
        if drafted:
            self._target.mark()
        started = perf_counter()
        rows = self._target.evaluate([self._tokens[-1], *drafted], len(drafted) + 1)
        self._statistics.verify_s += perf_counter() - started
        past = self._sampler.window(self._tokens)  # empty unless penalties look back
        known: list[Distribution] = []

        def target_at(position: int) -> Distribution:
            while len(known) <= position:
                place = len(known)
                history = [*past, *drafted[:place]] if past else past
                known.append(self._sampler.distribution(rows[place], history))
            return known[position]

        verdict = self._verify(proposal.draft, target_at, self._request.draw)
        self._pacer.learn(proposal.draft, target_at, verdict)
        return verdict

    def _commit(self, proposal: Proposal, verdict: Verdict) -> Chunk:
        """Emit the accepted run up to where the answer ends, and roll back the rest."""
        proposed = tuple([drafted.token for drafted in proposal.draft])
        tokens = (*proposed[: verdict.num_accepted], verdict.token)
        texts = self._texts_until_end(tokens)
        tokens = tokens[: len(texts)]
        self._tokens += tokens
        self._target.rollback(len(self._tokens) - 1)
        kept = proposal.draft[: min(verdict.num_accepted, len(tokens))]
        self._statistics.count_step(len(proposed), len(kept), len(tokens))
        origins: list[Origin] = [drafted.origin for drafted in kept]
        if len(origins) < len(tokens):
            origins.append(TARGET.name)
        text = "".join(texts)
        rejected = tuple([self._piece(token) for token in proposed[len(kept) :]])
        return Chunk(text, tokens, tuple(origins), tuple(texts), proposed, rejected, self.finish)

    def _piece(self, token: int) -> str:
        """Return the text of a token that is shown, not emitted."""
        return self._request.piece(token).decode("utf-8", "replace")

    def _texts_until_end(self, run: Sequence[int]) -> list[str]:
        """Return the text of each token up to the one that ends the answer; note why it ends."""
        texts: list[str] = []
        for token in run:
            is_end = token in self._request.end_tokens
            texts.append("" if is_end else self._text.push(token))
            if is_end or self._text.is_stopped:
                self.finish = "stop"
            elif self._num_generated + len(texts) == self._request.max_tokens:
                self.finish = "length"
            if self.finish:
                texts[-1] += self._text.finish()
                break
        return texts

    @property
    def _num_generated(self) -> int:
        return len(self._tokens) - len(self._request.tokens)

    def _ended(self, finish: Finish) -> Chunk:
        self.finish = finish
        return Chunk(text=self._text.finish(), finish=finish)
