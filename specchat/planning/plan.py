"""Plans to load a pair, the best first, and the order in which they give things up for memory.

The draft model goes onto the GPU first. If the whole target does not fit beside it, plans hold
fewer texts at once, keep fewer states of a hybrid for drafts, leave the experts of some blocks on
the CPU, which costs little, shorten the context, then store the KV cache as q8_0, then drop a
prediction head, and at last leave layers of the target on the CPU.
"""

from dataclasses import dataclass, replace

from specchat.options.declarations import LONGEST_DRAFT, LoadOptions
from specchat.planning.cache_types import why_unfit
from specchat.planning.context_shape import USUAL_TYPE, context_length
from specchat.planning.memory import Need, Sizes
from specchat.planning.placement import ALL_BLOCKS, FEWEST, NOTHING, OnHost, wanted

SHORTER_CONTEXTS = (4096, 2048)
SAVING_TYPE = "q8_0"
SHORT_ROLLBACK = 3
"""The drafted tokens of a hybrid that keeps a state for each one, where memory is short."""
MOST = -1
"""Stands for as many layers as fit."""
USUAL_DRAFT = 3
"""The draft length assumed when comparing the gain of GPU memory for draft and target."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One way to load a pair.

    `gpu_layers` counts the layers on GPUs, the output being one; `draft_gpu_layers` is None without
    the draft model. Parts of blocks of layers on GPUs are `on_host`, and those of the draft model
    `draft_on_host`. The target can roll back up to `rollback_length` tokens, and its memory holds
    `num_texts`. `is_repacked` allows copying weights on the CPU into a faster layout; otherwise
    they stay in the mapped file and need no memory of their own.

    The other fields are set once a plan is found to fit. `needs` is the memory of each device, the
    host first; `shares` is each GPU's share of the layers if there are several. `is_on_gpus` is
    True if nothing runs on the CPU. `summary` and `notice` are for the user: the whole plan, and
    what it gives up for memory (None for nothing).
    """

    gpu_layers: int
    draft_gpu_layers: int | None
    ctx: int
    cache_type: str
    on_host: OnHost = NOTHING
    draft_on_host: OnHost = NOTHING
    rollback_length: int = LONGEST_DRAFT
    num_texts: int = 1
    is_repacked: bool = True
    needs: tuple[Need, ...] = ()
    shares: tuple[float, ...] = ()
    is_on_gpus: bool = False
    summary: str = ""
    notice: str | None = None

    @property
    def is_placed(self) -> bool:
        """Whether parts of layers on GPUs are on the host."""
        return bool(self.on_host or self.draft_on_host)


def plans_to_try(
    target: Sizes,
    draft: Sizes | None,
    options: LoadOptions,
    *,
    has_gpus: bool,
    draft_has_gpus: bool = True,
) -> list[Plan]:
    """Return the plans for a pair, the best first, on a machine with or without GPUs.

    Workers are GPUs for the target alone.
    """
    on_gpus = options if draft_has_gpus else replace(options, draft_gpu_layers=0)
    plans = _on_gpus(target, draft, on_gpus) if has_gpus else []
    if not (has_gpus and options.gpu_layers):
        plans += _on_host(target, draft, options)
    if target.layout.steps_back:
        plans[1:] = [replace(plan, rollback_length=SHORT_ROLLBACK) for plan in plans]
    most_texts = 1 if draft is not None and draft.kind.shares_memory else options.at_once
    best = [replace(plans[0], num_texts=count) for count in range(most_texts, 1, -1)]
    plans = [*best, *plans]
    is_mapped = options.mmap and not options.mlock
    return plans + [replace(plan, is_repacked=False) for plan in plans if is_mapped]


def _on_gpus(target: Sizes, draft: Sizes | None, options: LoadOptions) -> list[Plan]:
    """Return the plans with all layers on GPUs, then those with as many layers as fit."""
    contexts, types = _contexts(target, options), _cache_types(target, draft, options)
    named = options.gpu_layers
    layers = target.num_layers + 1 if named is None else named
    draft_layers = _draft_layers(draft, options)
    smaller = [(contexts[:2][-1], cache_type) for cache_type in types]
    whole = dict.fromkeys([(contexts[0], types[0]), *smaller])
    few, most = _parts_on_host(target, options)
    plans = [
        Plan(layers, draft_layers, ctx, cache_type, on_host)
        for ctx, cache_type in whole
        for on_host in few
    ]
    is_head = draft is not None and draft.kind.is_head
    if is_head:  # dropped before layers of the target leave the GPU
        plans += [replace(plan, draft_gpu_layers=None) for plan in plans]
    if named is None:
        choices = [None] if is_head else [draft_layers, _draft_layers(draft, options, 0)]
        in_order = choices if _draft_goes_first(target, draft) else choices[::-1]
        plans += [
            Plan(MOST, layers, contexts[0], types[0], most) for layers in dict.fromkeys(in_order)
        ]
    is_apart = draft is not None and not draft.is_part_of(target)
    draft_on_host = (wanted(options.draft_on_cpu) or NOTHING) if is_apart else NOTHING
    return [replace(plan, draft_on_host=draft_on_host) for plan in plans]


def _parts_on_host(target: Sizes, options: LoadOptions) -> tuple[list[OnHost], OnHost]:
    """Return what stays on the host while all layers are on GPUs, the best first, and otherwise.

    A token reads all weights but the experts, so only these leave the GPU before the context is
    shortened. Each block whose experts are on the host waits twice for the other device: over the
    network that takes too long.
    """
    named = wanted(options.on_cpu)
    if named is not None:
        return [named], named
    if options.workers or not target.blocks_with("experts"):
        return [NOTHING], NOTHING
    return [NOTHING, OnHost("experts", FEWEST)], OnHost("experts", ALL_BLOCKS)


def _on_host(target: Sizes, draft: Sizes | None, options: LoadOptions) -> list[Plan]:
    """Return the plans for the host alone, the last ones without the draft."""
    cache_type = _cache_types(target, draft, options)[0]
    return [
        Plan(0, draft_layers, ctx, cache_type)
        for draft_layers in dict.fromkeys((_draft_layers(draft, options, 0), None))
        for ctx in _contexts(target, options)
    ]


def _draft_goes_first(target: Sizes, draft: Sizes | None) -> bool:
    """Return True if GPU memory gains more speed for the draft than for the target.

    The gain grows with how often a step reads a byte. With k drafted tokens that is k times for the
    draft and once for the target, so usually the draft goes first. A token reads only a share of a
    mixture's experts, and the k + 1 tokens of the target's pass read up to k + 1 such shares.
    """
    if draft is None:
        return True
    return USUAL_DRAFT * draft.read_share(1) > target.read_share(USUAL_DRAFT + 1)


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
