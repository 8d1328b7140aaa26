"""Plans to load a pair, in groups: of the first that fits anything, the quickest plan is taken.

Everything is on the GPU if it fits. If not, plans hold fewer texts at once, and keep fewer states
of a hybrid for drafts. Then the experts of some blocks, or whole layers of the target, or the draft
model, go to the CPU, whichever makes a step quickest; or the context is shortened, the KV cache
stored as q8_0, or a prediction head dropped, where that gains much more. Plans for the CPU alone
come last.
"""

from dataclasses import dataclass, replace
from typing import Any

from specchat.options.declarations import LONGEST_DRAFT, LoadOptions
from specchat.planning.cache_types import why_unfit
from specchat.planning.context_shape import USUAL_TYPE, context_length
from specchat.planning.memory import Need, Sizes
from specchat.planning.placement import ALL_BLOCKS, FEWEST, NOTHING, NOUNS, OnHost, wanted
from specchat.planning.token_time import Reads

SHORTER_CONTEXTS = (4096, 2048)
SAVING_TYPE = "q8_0"
SHORT_ROLLBACK = 3
"""The drafted tokens of a hybrid that keeps a state for each one, where memory is short."""
MOST = -1
"""Stands for as many layers as fit."""
USUAL_DRAFT = 3
"""The draft length assumed when the time of steps is compared."""
NO_READS = Reads()


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to load a pair.

    `gpu_layers` counts the layers on GPUs, the output being one; `draft_gpu_layers` is None without
    the draft model. Parts of blocks of the target's layers on GPUs are `on_host`. It can roll back
    up to `rollback_length` tokens, and its memory holds `num_texts`. `is_repacked` allows copying
    weights on the CPU into a faster layout; otherwise they stay in the mapped file and need no
    memory of their own.

    The other fields are set once a plan is found to fit. `needs` is the memory of each device, the
    host first; `reads` is what decoding a token reads there before there is a text. `shares` is
    each GPU's share of the layers if there are several. `is_on_gpus` is True if nothing runs on the
    CPU. `summary` and `notice` are for the user: the whole plan, and what it gives up for memory
    (None for nothing).
    """

    gpu_layers: int
    draft_gpu_layers: int | None
    ctx: int
    cache_type: str
    on_host: OnHost = NOTHING
    rollback_length: int = LONGEST_DRAFT
    num_texts: int = 1
    is_repacked: bool = True
    needs: tuple[Need, ...] = ()
    reads: Reads = NO_READS
    shares: tuple[float, ...] = ()
    is_on_gpus: bool = False
    summary: str = ""
    notice: str | None = None

    @property
    def is_placed(self) -> bool:
        """Whether parts of layers on GPUs are on the host."""
        return bool(self.on_host)

    @property
    def way(self) -> str:
        """What was chosen where memory is short, in words; how many layers or blocks follows."""
        part = NOUNS[self.on_host.part] if self.on_host else "layers"
        draft = {None: "no draft", 0: "draft on the CPU"}.get(self.draft_gpu_layers, "draft")
        return f"{part}, {draft}, context {self.ctx} in {self.cache_type}"


def plans_to_try(
    target: Sizes,
    draft: Sizes | None,
    options: LoadOptions,
    *,
    has_gpus: bool,
    draft_has_gpus: bool = True,
) -> list[list[Plan]]:
    """Return the groups of plans for a pair, the best first, on a machine with or without GPUs.

    Workers are GPUs for the target alone.
    """
    on_gpus = options if draft_has_gpus else replace(options, draft_gpu_layers=0)
    groups = _on_gpus(target, draft, on_gpus) if has_gpus else []
    if not (has_gpus and options.gpu_layers):
        groups += [[plan] for plan in _on_host(target, draft, options)]
    if target.layout.steps_back:
        groups[1:] = _each_with(groups, rollback_length=SHORT_ROLLBACK)
    holds_one = draft is not None and draft.kind.shares_memory
    most_texts = 1 if holds_one else options.at_once
    best = groups[0][0]
    groups = [*([replace(best, num_texts=count)] for count in range(most_texts, 1, -1)), *groups]
    is_mapped = options.mmap and not options.mlock
    return groups + _each_with(groups, is_repacked=False) if is_mapped else groups


def _each_with(groups: list[list[Plan]], **values: Any) -> list[list[Plan]]:
    return [[replace(plan, **values) for plan in group] for group in groups]


def _on_gpus(target: Sizes, draft: Sizes | None, options: LoadOptions) -> list[list[Plan]]:
    """Return the plan with all layers on GPUs, then those that give something up for memory.

    A head goes before layers of the target, or what each token reads of them, leave the GPU.
    """
    contexts, types = _contexts(target, options), _cache_types(target, draft, options)
    on_gpu, is_head = _draft_layers(draft, options), draft is not None and draft.kind.is_head
    elsewhere = None if is_head else _draft_layers(draft, options, 0)
    drafts = dict.fromkeys([on_gpu, elsewhere])
    whole, others = _placements(target, options)
    shorter = [(contexts[:2][-1], cache_type) for cache_type in types]
    return [
        [Plan(whole[0][0], on_gpu, contexts[0], types[0], whole[0][1])],
        [
            Plan(layers, draft_layers, ctx, cache_type, on_host)
            for ctx, cache_type in dict.fromkeys([(contexts[0], types[0]), *shorter])
            for placements, usable in ((whole, drafts), (others, [None] if is_head else drafts))
            for layers, on_host in placements
            for draft_layers in usable
        ],
    ]


def _placements(
    target: Sizes, options: LoadOptions
) -> tuple[list[tuple[int, OnHost]], list[tuple[int, OnHost]]]:
    """Return the layers on GPUs and what of them is on the host: where a token reads most on GPUs.

    Then where it reads more on the host. It reads all weights but a mixture's experts.
    """
    layers = target.num_layers + 1 if options.gpu_layers is None else options.gpu_layers
    named, has_experts = wanted(options.on_cpu), bool(target.blocks_with("experts"))
    whole, others = [(layers, NOTHING if named is None else named)], list[tuple[int, OnHost]]()
    if named is None and has_experts:
        whole.append((layers, OnHost("experts", FEWEST)))
    if options.gpu_layers is None:
        others.append((MOST, whole[0][1]))
        if named is None and has_experts:
            others.append((MOST, OnHost("experts", ALL_BLOCKS)))
    return whole, others


def _on_host(target: Sizes, draft: Sizes | None, options: LoadOptions) -> list[Plan]:
    """Return the plans for the host alone, the last ones without the draft."""
    cache_type = _cache_types(target, draft, options)[0]
    return [
        Plan(0, draft_layers, ctx, cache_type)
        for draft_layers in dict.fromkeys((_draft_layers(draft, options, 0), None))
        for ctx in _contexts(target, options)
    ]


def _draft_layers(
    draft: Sizes | None, options: LoadOptions, usual: int | None = None
) -> int | None:
    """Return the number of the draft's layers on GPUs: the user's, or `usual` (None means all)."""
    if draft is None:
        return None
    whole = draft.num_layers + 1
    named = usual if options.draft_layers is None else options.draft_layers
    return whole if named is None else min(named, whole)


def _contexts(target: Sizes, options: LoadOptions) -> list[int]:
    """Return the context sizes to try, the largest first."""
    usual = context_length(options.ctx, target.layout)
    if options.ctx:
        return [usual]
    return [usual, *(shorter for shorter in SHORTER_CONTEXTS if shorter < usual)]


def _cache_types(target: Sizes, draft: Sizes | None, options: LoadOptions) -> list[str]:
    """Return the types of the KV cache to try, the most exact first."""
    if options.cache_type != "auto":
        return [options.cache_type]
    models = [model for model in (target, draft) if model]
    may_save = options.flash_attention != "off" and not any(
        why_unfit(model, SAVING_TYPE, flash=True) for model in models
    )
    return [USUAL_TYPE, SAVING_TYPE] if may_save else [USUAL_TYPE]
