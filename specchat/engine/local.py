"""The engine in this process."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np

from specchat.chat.template import Message, render
from specchat.decoding.loop import Chunk, Request, decode
from specchat.decoding.ports import Drafter, Rows
from specchat.decoding.statistics import Statistics
from specchat.drafting.registry import Materials, choose_drafter, make_drafter
from specchat.engine.api import Engine, EngineFacts, Loading, Stage, Tell
from specchat.engine.options import LONGEST_DRAFT, GenerateOptions
from specchat.errors import EngineFailed, InvalidOption
from specchat.llama.context import Context
from specchat.llama.model import Model, TellLoaded
from specchat.llama.native import AbortFlag
from specchat.llama.options import LoadOptions
from specchat.llama.vocabulary import require_compatible

__all__ = ["LocalEngine"]


class LocalEngine(Engine):
    """A pair loaded into this process. It answers one request at a time, from one thread."""

    def __init__(self, loading: Loading, tell: Tell | None = None) -> None:
        """Load the pair; nothing stays behind when that fails."""
        self.stats = Statistics()
        self._abort = AbortFlag()
        self._is_busy = False
        self._is_closed = False
        with ExitStack() as stack:
            target = stack.enter_context(_model(loading, loading.target, "target", tell))
            draft = None
            if loading.draft:
                draft = stack.enter_context(_model(loading, loading.draft, "draft", tell))
                require_compatible(target.vocabulary, draft.vocabulary)
            self.context = stack.enter_context(
                Context(target, _options(loading, "target"), self._abort)
            )
            self._draft_context = (
                stack.enter_context(
                    Context(draft, _options(loading, "draft", self.context.capacity), self._abort)
                )
                if draft
                else None
            )
            self._resources = stack.pop_all()
        self.model = target
        self._draft = draft
        self._drafters: dict[str, Drafter] = {}
        self.facts = self._facts()

    def generate(
        self, prompt: str | Sequence[int], *, tell: Tell | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Continue a text or token ids."""
        self._require_idle()
        chosen = GenerateOptions.of(options)
        tokens = (
            self.model.vocabulary.tokenize(prompt, add_special=True, parse_special=False)
            if isinstance(prompt, str)
            else self._checked(prompt)
        )
        return self._decode(tokens, chosen, tell)

    def chat(
        self, messages: Sequence[Message], *, tell: Tell | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Answer a conversation."""
        self._require_idle()
        chosen = GenerateOptions.of(options)
        return self._decode(self.tokenize_chat(messages), chosen, tell)

    def tokenize_chat(self, messages: Sequence[Message]) -> list[int]:
        """Return a conversation as tokens, by the target's chat template."""
        template = self.model.chat_template
        if template is None:
            raise InvalidOption(f"{self.facts.target} has no chat template: ask with --raw")
        vocabulary = self.model.vocabulary
        bos, eos = vocabulary.special_text("bos"), vocabulary.special_text("eos")
        text = render(template, messages, bos=bos, eos=eos)
        adds_bos = vocabulary.bos() is not None and not (bos and text.startswith(bos))
        return vocabulary.tokenize(text, add_special=adds_bos, parse_special=True)

    def rescore(
        self, prompt: Sequence[int], answer: Sequence[int], num_at_once: int
    ) -> Iterator[Rows]:
        """Evaluate an answer anew, from an empty memory, so many tokens at once.

        Yields the logits each of the answer's tokens was to be chosen from, shape (n, vocabulary)
        a pass; the last pass may hold fewer.
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

    def close(self) -> None:
        """Free the models and their memory."""
        self._is_closed = True
        self._resources.close()

    def _decode(
        self, tokens: Sequence[int], options: GenerateOptions, tell: Tell | None
    ) -> Iterator[Chunk]:
        """Prepare an answer; a stop asked for from here on is meant for it."""
        self._require_idle()
        self._abort.clear()
        self.stats = Statistics()
        tell_prompt = None
        if tell is not None:
            told = tell

            def tell_prompt(done: int, total: int) -> None:
                told("prompt", done / max(1, total))

        name = choose_drafter(options.drafter, self._materials)
        self.stats.drafter = name
        self.stats.draft_length = 0 if name == "none" else options.num_to_draft
        request = self._request(tokens, options)
        chunks = decode(self.context, self._drafter(name), request, self.stats, tell_prompt)
        return self._answer(chunks)

    def _answer(self, chunks: Iterator[Chunk]) -> Iterator[Chunk]:
        """Yield the chunks of an answer, keeping others out meanwhile."""
        self._require_idle()
        self._is_busy = True
        try:
            for chunk in chunks:
                yield chunk
                self._require_open()
        finally:
            self._is_busy = False

    def _require_open(self) -> None:
        if self._is_closed:
            raise EngineFailed("the engine is closed: load it again")

    def _require_idle(self) -> None:
        self._require_open()
        if self._is_busy:
            raise EngineFailed("the engine is busy with another answer: stop that one first")

    def _drafter(self, name: str) -> Drafter:
        """Return the drafter of that name; what it learned of a conversation stays with it."""
        if name not in self._drafters:
            self._drafters[name] = make_drafter(name, self._materials)
            self._resources.callback(self._drafters[name].close)
        return self._drafters[name]

    def _request(self, tokens: Sequence[int], options: GenerateOptions) -> Request:
        vocabulary = self.model.vocabulary
        seed = secrets.randbits(63) if options.seed is None else options.seed
        for_target, for_draft = np.random.SeedSequence(seed).spawn(2)
        return Request(
            tokens=tokens,
            sampling=options.sampling(),
            draw=np.random.default_rng(for_target).random,
            draft_draw=np.random.default_rng(for_draft).random,
            draft_length=options.num_to_draft,
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
        reason = self.facts.speculation_off
        return Materials(
            draft_model=None if reason else self._draft_context,
            vocabulary=size,
            end_tokens=vocabulary.end_tokens,
            why_no_model=reason,
            why_no_rollback="" if self.context.rollback_kind.can_speculate else reason,
        )

    def _checked(self, tokens: Sequence[int]) -> list[int]:
        size = self.model.vocabulary.size
        wrong = [token for token in tokens if not 0 <= token < size]
        if wrong:
            raise InvalidOption(f"token {wrong[0]} is not in the vocabulary (0 to {size - 1})")
        return list(tokens)

    def _facts(self) -> EngineFacts:
        contexts = [self.context, *([self._draft_context] if self._draft_context else [])]
        models = [self.model, *([self._draft] if self._draft else [])]
        stuck = [
            model.name
            for model, context in zip(models, contexts, strict=True)
            if not context.rollback_kind.can_speculate
        ]
        reason = f"the memory of {stuck[0]} cannot take tokens back" if stuck else ""
        if not reason and self._draft is None:
            reason = "no draft model is loaded"
        return EngineFacts(
            target=self.model.name,
            draft=self._draft.name if self._draft else None,
            context=self.context.capacity,
            has_chat_template=self.model.chat_template is not None,
            rollback=tuple(context.rollback_kind.name for context in contexts),
            speculation_off=reason,
        )


def _model(loading: Loading, path: Path, stage: Stage, tell: Tell | None) -> Model:
    """Load one model of the pair, telling how far it is."""
    tell_loaded: TellLoaded | None = None
    if tell is not None:
        told = tell

        def tell_loaded(share: float) -> bool:
            return told(stage, share) is not False

    return Model(path, _options(loading, stage), tell_loaded)


def _options(loading: Loading, stage: Stage, ctx: int | None = None) -> LoadOptions:
    """Return how to load one model of the pair.

    The draft model evaluates token by token, so states of the last pass alone are of no use to it.
    """
    is_draft = stage == "draft"
    return LoadOptions(
        ctx=loading.ctx if ctx is None else ctx,
        gpu_layers=loading.draft_gpu_layers if is_draft else loading.gpu_layers,
        flash_attention=loading.flash_attention,
        cache_type_k=loading.cache_type_k,  # type: ignore[arg-type]  # LoadOptions checks it
        cache_type_v=loading.cache_type_v,  # type: ignore[arg-type]
        threads=loading.threads,
        use_mmap=loading.use_mmap,
        use_mlock=loading.use_mlock,
        batch=loading.batch,
        rollback_length=0 if is_draft else LONGEST_DRAFT,
    )
