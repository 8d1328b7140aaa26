"""The ways to load a pair, the best first: what may be given up for memory, and in which order."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from specchat.options import LoadOptions
from specchat.planning.context_shape import context_length
from specchat.planning.memory import Sizes

__all__ = ["MOST", "USUAL_TYPE", "Choice", "Choices"]

SHORTER_CONTEXTS = (4096, 2048)
SAVING_TYPE, USUAL_TYPE = "q8_0", "f16"
BLOCK_LENGTH = 32
"""Rows of a cache in q8_0 are as long as a multiple of it."""
MOST = -1
"""Stands for as many layers as fit."""
USUAL_DRAFT = 3
"""Tokens drafted in a step, for judging what a model's place is worth."""


@dataclass(frozen=True, slots=True)
class Choice:
    """One way to load a pair; the fields are those of `Plan`."""

    gpu_layers: int
    draft_gpu_layers: int | None
    ctx: int
    key_type: str
    value_type: str
    is_repacked: bool = True


class Choices:
    """What may be chosen for one pair; `has_gpus` says whether there is more than the host."""

    def __init__(
        self, target: Sizes, draft: Sizes | None, options: LoadOptions, *, has_gpus: bool
    ) -> None:
        """Take the pair's sizes and what the user named."""
        self._target, self._draft, self._options = target, draft, options
        self._has_gpus = has_gpus

    def __iter__(self) -> Iterator[Choice]:
        """Yield ways to load the pair, the best first."""
        for is_repacked in (
            (True, False) if self._options.mmap and not self._options.mlock else (True,)
        ):
            for choice in (*self._on_gpus(), *self._on_host()):
                yield replace(choice, is_repacked=is_repacked)

    def _on_gpus(self) -> Iterator[Choice]:
        """Yield those that use GPUs: all of the target there, then as much as fits."""
        if not self._has_gpus:
            return
        whole = self._target.num_layers + 1
        named = self._options.gpu_layers
        draft_whole = self._draft_layers(self._draft.num_layers + 1) if self._draft else None
        contexts = self.contexts[:2]
        smaller = [(contexts[-1], types) for types in self.types]
        for ctx, types in dict.fromkeys([(contexts[0], self.types[0]), *smaller]):
            yield Choice(whole if named is None else named, draft_whole, ctx, *types)
        if named is None:
            places = (draft_whole, self._draft_layers(0))
            for draft_layers in dict.fromkeys(places if self._draft_goes_first else places[::-1]):
                yield Choice(MOST, draft_layers, contexts[0], *self.types[0])

    @property
    def _draft_goes_first(self) -> bool:
        """Say whether a byte of GPU memory brings more with the draft in it than with the target.

        A byte read from the GPU and not from the host saves the same time whosever it is, so what
        counts is how often a step reads it. In a step of k drafted tokens that is k times for the
        draft and once for the target: the draft goes first wherever k is more than 1, however large
        it is. Of a mixture of experts a token reads a share only, and the k + 1 tokens of the
        target's pass up to k + 1 such shares. So a draft that is a mixture may be worth less:
        it goes first if k * (share of the draft) > min(1, (k + 1) * (share of the target)).
        """
        if self._draft is None:
            return True
        of_target = (USUAL_DRAFT + 1) * _share_read(self._target)
        return USUAL_DRAFT * _share_read(self._draft) > min(1.0, of_target)

    def _on_host(self) -> Iterator[Choice]:
        """Yield those that use the machine's own memory, at last without the draft."""
        if self._has_gpus and self._options.gpu_layers:
            return
        for draft_layers in dict.fromkeys((self._draft_layers(0), None)):
            for ctx in self.contexts:
                yield Choice(0, draft_layers, ctx, *self.types[0])

    def _draft_layers(self, count: int) -> int | None:
        """Return how many of the draft's layers are on GPUs: what the user says, or so many."""
        if self._draft is None:
            return None
        named = self._options.draft_layers
        return min(count if named is None else named, self._draft.num_layers + 1)

    @cached_property
    def contexts(self) -> list[int]:
        """The lengths a context may have, the longest first."""
        if self._options.ctx:
            return [self._options.ctx]
        usual = context_length(0, self._target.header.training_context)
        return [usual, *(shorter for shorter in SHORTER_CONTEXTS if shorter < usual)]

    @cached_property
    def types(self) -> list[tuple[str, str]]:
        """The types the cache's keys and values may have, the most exact first."""
        options = self._options
        named = (options.cache_type_k, options.cache_type_v)
        usual = tuple(USUAL_TYPE if kind == "auto" else kind for kind in named)
        types = [(usual[0], usual[1])]
        models = [self._target, *([self._draft] if self._draft else [])]
        layers = [layer for model in models for layer in model.layout.layers]
        fits_blocks = all(
            layer.num_keys % BLOCK_LENGTH == layer.num_values % BLOCK_LENGTH == 0
            for layer in layers
        )
        if named == ("auto", "auto") and options.flash_attention != "off" and fits_blocks:
            types.append((SAVING_TYPE, SAVING_TYPE))
        return types


def _share_read(model: Sizes) -> float:
    """Return the share of a model's weights that one token reads: of a mixture, few experts."""
    num_experts, num_used = (model.header.own(f"expert_{which}count") for which in ("", "used_"))
    return num_used / num_experts if 0 < num_used < num_experts else 1.0
