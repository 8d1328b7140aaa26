"""Plans to load a pair, the best first: what is given up for memory, and in which order.

The draft model goes onto the GPU first. To keep the whole target there, a shorter context and a KV
cache in q8_0 come next; after that, layers of the target stay on the CPU.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from specchat.options import LoadOptions
from specchat.planning.context_shape import context_length
from specchat.planning.memory import Need, Sizes

SHORTER_CONTEXTS = (4096, 2048)
SAVING_TYPE, USUAL_TYPE = "q8_0", "f16"
BLOCK_LENGTH = 32
"""The rows of a cache in q8_0 must be a multiple of this long."""
MOST = -1
"""Means as many layers as fit."""
USUAL_DRAFT = 3
"""The draft length assumed when comparing what GPU memory gains."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to load a pair.

    `gpu_layers` counts the layers on GPUs, the output being one; `draft_gpu_layers` is None without
    the draft model. `is_repacked` allows copying weights on the CPU into a faster form; else they
    stay in the file and need no memory of their own.

    The rest is known once a plan is found to fit. `needs` is the memory of each device, the host
    first; `shares` is each GPU's part of the layers, for several GPUs. `is_on_gpus` is True if no
    layer runs on the CPU. `summary` and `notice` are for the user: the whole plan, and what it
    gives up for memory (None for nothing).
    """

    gpu_layers: int
    draft_gpu_layers: int | None
    ctx: int
    key_type: str
    value_type: str
    is_repacked: bool = True
    needs: tuple[Need, ...] = ()
    shares: tuple[float, ...] = ()
    is_on_gpus: bool = False
    summary: str = ""
    notice: str | None = None


class Choices:
    """The plans to try for one pair, on a machine with or without GPUs."""

    def __init__(
        self, target: Sizes, draft: Sizes | None, options: LoadOptions, *, has_gpus: bool
    ) -> None:
        """Store the pair's sizes and the user's options."""
        self._target, self._draft, self._options = target, draft, options
        self._has_gpus = has_gpus

    def __iter__(self) -> Iterator[Plan]:
        """Yield the plans, the best first."""
        is_mapped = self._options.mmap and not self._options.mlock
        for is_repacked in (True, False) if is_mapped else (True,):
            for plan in (*self._on_gpus(), *self._on_host()):
                yield replace(plan, is_repacked=is_repacked)

    def _on_gpus(self) -> Iterator[Plan]:
        """Yield the plans with the whole target on GPUs, then with as much as fits."""
        if not self._has_gpus:
            return
        whole = self._target.num_layers + 1
        named = self._options.gpu_layers
        draft_whole = self._draft_layers(self._draft.num_layers + 1) if self._draft else None
        contexts = self.contexts[:2]
        smaller = [(contexts[-1], types) for types in self.types]
        for ctx, types in dict.fromkeys([(contexts[0], self.types[0]), *smaller]):
            yield Plan(whole if named is None else named, draft_whole, ctx, *types)
        if named is None:
            places = (draft_whole, self._draft_layers(0))
            for draft_layers in dict.fromkeys(places if self._draft_goes_first else places[::-1]):
                yield Plan(MOST, draft_layers, contexts[0], *self.types[0])

    @property
    def _draft_goes_first(self) -> bool:
        """Return True if GPU memory gains more speed for the draft than for the target.

        What counts is how often a step reads a byte: with k drafted tokens, k times for the draft
        and once for the target, so the draft goes first. But a token reads only a share of a
        mixture of experts, and the k + 1 tokens of the target's pass up to k + 1 such shares:
        the draft goes first if k * (its share) > min(1, (k + 1) * (share of the target)).
        """
        if self._draft is None:
            return True
        of_target = (USUAL_DRAFT + 1) * self._target.header.active_share
        return USUAL_DRAFT * self._draft.header.active_share > min(1.0, of_target)

    def _on_host(self) -> Iterator[Plan]:
        """Yield the plans for the host alone, the last ones without the draft."""
        if self._has_gpus and self._options.gpu_layers:
            return
        for draft_layers in dict.fromkeys((self._draft_layers(0), None)):
            for ctx in self.contexts:
                yield Plan(0, draft_layers, ctx, *self.types[0])

    def _draft_layers(self, count: int) -> int | None:
        """Return the draft's layers on GPUs: the user's number, or else `count`; None for none."""
        if self._draft is None:
            return None
        named = self._options.draft_layers
        return min(count if named is None else named, self._draft.num_layers + 1)

    @cached_property
    def contexts(self) -> list[int]:
        """The context sizes to try, the largest first."""
        if self._options.ctx:
            return [self._options.ctx]
        usual = context_length(0, self._target.header.training_context)
        return [usual, *(shorter for shorter in SHORTER_CONTEXTS if shorter < usual)]

    @cached_property
    def types(self) -> list[tuple[str, str]]:
        """The types of cached keys and values to try, the most exact first."""
        options = self._options
        named = (options.cache_type_k, options.cache_type_v)
        usual, usual_values = (USUAL_TYPE if kind == "auto" else kind for kind in named)
        types = [(usual, usual_values)]
        fits_blocks = all(
            layer.num_keys % BLOCK_LENGTH == layer.num_values % BLOCK_LENGTH == 0
            for model in (self._target, self._draft)
            if model
            for layer in model.layout.layers
        )
        if named == ("auto", "auto") and options.flash_attention != "off" and fits_blocks:
            types.append((SAVING_TYPE, SAVING_TYPE))
        return types
