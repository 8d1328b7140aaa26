"""The engine in this process."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from typing import Any

import numpy as np

from specchat import drafters
from specchat.decoding.chunk import Chunk
from specchat.decoding.loop import Request, decode
from specchat.decoding.ports import Drafter, Rows
from specchat.decoding.statistics import Statistics
from specchat.drafting.registry import Materials, choose_drafter, make_drafter
from specchat.engine.api import (
    ChatRequest,
    Engine,
    GenerateRequest,
    Loading,
    ProgressCallback,
)
from specchat.engine.loader import LoadedPair, load_pair
from specchat.engine.prompts import fit_chat, tokenize_chat, tokenize_prompt
from specchat.errors import Cancelled, EngineFailed
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag, version
from specchat.options import GenerateOptions, LoadOptions, takes, values
from specchat.pacing.knowledge import Knowledge
from specchat.pacing.pacer import LearningPacer
from specchat.pacing.pacing_cache import PacingCache
from specchat.pacing.pass_costs import PassCosts
from specchat.pacing.pass_measurement import DRAFT_LENGTHS, TARGET_LENGTHS, measure_passes

__all__ = ["LocalEngine"]

MOST_SECONDS = 2.5
"""How long a new model may be measured while it is loaded."""


class LocalEngine(Engine):
    """A pair loaded into this process, which answers one request at a time, from one thread."""

    def __init__(self, loading: Loading, on_progress: ProgressCallback | None = None) -> None:
        """Load the pair; everything is freed if that fails."""
        self.stats = Statistics()
        self._abort = AbortFlag()
        self._is_busy = False
        self._is_closed = False
        self._drafters: dict[str, Drafter] = {}
        self._pacers: dict[tuple[str, bool], LearningPacer] = {}
        with ExitStack() as stack:
            pair = load_pair(loading, self._abort, stack, on_progress)
            self.model, self.context = pair.target, pair.context
            self._draft, self._draft_context = pair.draft, pair.draft_context
            self.facts = pair.facts
            self._cache = PacingCache(_subject(loading, pair)) if loading.learn else None
            self._knowledge = self._cache.read() if self._cache else Knowledge()
            self._measure(on_progress)
            self._expect(loading.first_guess)
            self._resources = stack.pop_all()

    @takes(GenerateRequest)
    def generate(self, request: GenerateRequest) -> Iterator[Chunk]:
        """Continue a text or token ids."""
        self._require_idle()
        tokens = tokenize_prompt(self.model, request.prompt)
        return self._decode(tokens, request, request.on_progress)

    @takes(ChatRequest)
    def chat(self, request: ChatRequest) -> Iterator[Chunk]:
        """Answer a conversation."""
        self._require_idle()
        messages, left_out = request.messages, 0
        if request.make_room:
            messages, left_out = fit_chat(
                self.model, messages, self.context.capacity, request.max_tokens
            )
        chunks = self._decode(tokenize_chat(self.model, messages), request, request.on_progress)
        self.stats.left_out = left_out
        return chunks

    def rescore(
        self, prompt: Sequence[int], answer: Sequence[int], num_at_once: int
    ) -> Iterator[Rows]:
        """Evaluate an answer again from an empty memory, `num_at_once` tokens per pass.

        Yields per pass the logits that its tokens are chosen from, shape (n, vocabulary).
        """
        self.context.prefill([])
        self.context.prefill(prompt[:-1])
        given = [prompt[-1], *answer[:-1]]
        for start in range(0, len(given), num_at_once):
            part = given[start : start + num_at_once]
            yield self.context.evaluate(part, len(part))

    def stop(self) -> None:
        """Stop the answer in progress."""
        self._abort.set()

    def forget(self) -> None:
        """Forget every text."""
        self._require_idle()
        for context in filter(None, (self.context, self._draft_context)):
            context.prefill([])
        self._close_drafters()

    def close(self) -> None:
        """Free the models and their memory."""
        self._is_closed = True
        self._close_drafters()
        self._resources.close()

    def _decode(
        self, tokens: Sequence[int], options: GenerateOptions, on_progress: ProgressCallback | None
    ) -> Iterator[Chunk]:
        """Prepare an answer; from here on a stop is meant for it."""
        self._require_idle()
        self._abort.clear()
        self.stats = Statistics()
        on_prompt = None
        if on_progress is not None:
            report = on_progress

            def on_prompt(done: int, total: int) -> None:
                report("prompt", done / max(1, total))

        name = choose_drafter(options.drafter, self._materials)
        pacer = self._pacer(name, options)
        self._describe(name, options)
        self._note_costs(len(tokens))
        request = self._request(tokens, options)
        chunks = decode(self.context, self._drafter(name), request, self.stats, on_prompt, pacer)
        return self._answer(chunks, pacer)

    def _describe(self, name: str, options: GenerateOptions) -> None:
        """Note in the statistics what is used, and why no more is."""
        self.stats.drafter = name
        origins = drafters.descriptor(name).origins
        self.stats.draft_length = options.pace if origins else 0
        if not origins:
            is_chosen = options.drafter == name
            reason = "switched off" if is_chosen else self.facts.speculation_off_reason
            self.stats.speculation_off_reason = reason
        elif options.draft_length == 0:
            self.stats.speculation_off_reason = "switched off: the draft length is 0"
        if not drafters.descriptor(name).needs_model:
            self.stats.draft_off_reason = (
                self.facts.draft_off_reason or "the draft model is switched off"
            )

    def _answer(self, chunks: Iterator[Chunk], pacer: LearningPacer | None) -> Iterator[Chunk]:
        """Yield the chunks of an answer, during which the engine is busy."""
        self._require_idle()
        self._is_busy = True
        uses_model = drafters.descriptor(self.stats.drafter).needs_model
        try:
            for chunk in chunks:
                if uses_model:
                    reason = pacer.why_not() if pacer else None
                    self.stats.draft_off_reason = (
                        f"the draft model gives no speedup here: {reason}" if reason else None
                    )
                if chunk.finish:
                    self._learned()
                yield chunk
                self._require_open()
        finally:
            self._is_busy = False

    def _learned(self) -> None:
        """Save what was learned from an answer."""
        self._note_costs(self.context.length)
        if self._cache:
            self._cache.write(self._knowledge)

    def _note_costs(self, depth: int) -> None:
        """Note in the statistics what passes cost at a depth."""
        target = self._knowledge.target
        self.stats.pass_costs = {
            count: target.seconds(count, depth)
            for count in range(1, self.context.longest_draft + 2)
        }

    def _pacer(self, name: str, options: GenerateOptions) -> LearningPacer | None:
        """Return the pacer that learns from answer to answer; None for a fixed draft length."""
        if options.pace != "auto":
            return None
        is_greedy = options.is_greedy
        origin = drafters.pass_origin(name)
        if (origin, is_greedy) not in self._pacers:
            pacer = LearningPacer(self._knowledge, is_greedy=is_greedy, pass_origin=origin)
            self._pacers[origin, is_greedy] = pacer
        return self._pacers[origin, is_greedy]

    def _measure(self, on_progress: ProgressCallback | None) -> None:
        """Measure what passes cost, unless it is known; raise Cancelled if that is stopped."""
        unknown = [each for each in self._measurements() if not each[1].is_known]
        for number, (context, costs, size, lengths, most_rows) in enumerate(unknown):

            def on_share(share: float, done: int = number) -> None:
                total = (done + share) / len(unknown)
                if on_progress is not None and on_progress("measuring", total) is False:
                    raise Cancelled("loading was stopped")

            on_share(0.0)
            measure_passes(context, costs, size, lengths, most_rows, MOST_SECONDS, on_share)
        if unknown and on_progress is not None:
            on_progress("measuring", 1.0)

    def _measurements(self) -> Iterator[tuple[Context, PassCosts, int, Sequence[int], int]]:
        """Yield each context with its costs, vocabulary size, pass lengths and rows to read."""
        most_rows = self.context.longest_draft + 1
        lengths = [length for length in TARGET_LENGTHS if length <= most_rows]
        size = self.model.vocabulary.size
        yield self.context, self._knowledge.target, size, lengths, most_rows
        if self._draft is not None and self._draft_context is not None:
            costs = self._knowledge.costs_of(drafters.pass_origin())
            yield self._draft_context, costs, self._draft.vocabulary.size, DRAFT_LENGTHS, 1

    def _expect(self, first_guess: float | None) -> None:
        """Expect the draft model's acceptance rate that others report, if none was learned here."""
        for is_greedy in (True, False) if first_guess is not None else ():
            acceptance = self._knowledge.acceptance_of(drafters.pass_origin(), is_greedy)
            if first_guess is not None and not acceptance.num_observed:
                acceptance.begin_with(first_guess)

    def _require_open(self) -> None:
        if self._is_closed:
            raise EngineFailed("the engine is closed: load it again")

    def _require_idle(self) -> None:
        self._require_open()
        if self._is_busy:
            raise EngineFailed("the engine is busy with another answer: stop that one first")

    def _drafter(self, name: str) -> Drafter:
        """Return the drafter of that name, with what it learned of a conversation."""
        if name not in self._drafters:
            self._drafters[name] = make_drafter(name, self._materials)
        return self._drafters[name]

    def _close_drafters(self) -> None:
        """Close all drafters."""
        while self._drafters:
            self._drafters.popitem()[1].close()

    def _request(self, tokens: Sequence[int], options: GenerateOptions) -> Request:
        vocabulary = self.model.vocabulary
        seed = secrets.randbits(63) if options.seed is None else options.seed
        for_target, for_draft = np.random.SeedSequence(seed).spawn(2)
        return Request(
            tokens=tokens,
            sampling=options,
            draw=np.random.default_rng(for_target).random,
            draft_draw=np.random.default_rng(for_draft).random,
            draft_length=min(options.num_to_draft, self.facts.longest_draft),
            max_tokens=options.max_tokens,
            end_tokens=() if options.ignore_end else vocabulary.end_tokens,
            stop_strings=options.stop,
            piece=vocabulary.piece,
            is_cancelled=self._abort.is_set,
        )

    @property
    def _materials(self) -> Materials:
        vocabulary = self.model.vocabulary
        size = min(vocabulary.size, self._draft.vocabulary.size) if self._draft else vocabulary.size
        return Materials(
            draft_model=None if self.facts.draft_off_reason else self._draft_context,
            vocabulary=size,
            end_tokens=vocabulary.end_tokens,
            no_model_reason=self.facts.draft_off_reason,
            no_rollback_reason=self.facts.speculation_off_reason,
        )


def _subject(loading: Loading, pair: LoadedPair) -> dict[str, Any]:
    """Return what identifies this pair and this way of loading it."""
    paths = [path for path in (loading.target, loading.draft) if path]
    options = values(loading, LoadOptions)
    del options["first_guess"], options["learn"]
    files = [[str(path.resolve()), path.stat().st_size] for path in paths]
    plan, shape = pair.plan, pair.context.shape
    planned = {
        "ctx": 0,
        "flash_attention": shape.flash,
        "ubatch": shape.ubatch,
        "gpus": pair.gpus if plan.gpu_layers or plan.draft_gpu_layers else (),
        "gpu_layers": plan.gpu_layers,
        "draft_gpu_layers": plan.draft_gpu_layers,
        "cache_type_k": plan.key_type,
        "cache_type_v": plan.value_type,
    }
    return {
        **options,
        **planned,
        "target": files[0],
        "draft": files[1:],
        "llama.cpp": version(),
    }
