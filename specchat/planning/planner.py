"""Finds the plan that fits a pair into a machine's memory.

A plan sets the layers on GPUs and which parts of these stay on the CPU, the context size and the
type of the KV cache. It follows from the files' headers, the devices with their bandwidths, the
user's options, and what placements were measured to take. `plans_to_try` lists what may be given up
for memory, and `PlanRanking` says which of the plans that fit is the best.
"""

from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import ceil

from specchat.errors import ModelWontLoad
from specchat.gguf.draft_kinds import DraftKind
from specchat.gguf.projector import cells_at_once, planned_projector
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.options.declarations import LONGEST_DRAFT, LoadOptions
from specchat.planning.cache_types import require_cache_type
from specchat.planning.context_shape import (
    COPYING_BATCH,
    USUAL_BATCH,
    ModelOptions,
    shape_context,
    why_no_branches,
)
from specchat.planning.device import Device, host_of, planned_gpus
from specchat.planning.memory import HOST, Need, Sizes, devices_of_layers
from specchat.planning.model_layout import ModelLayout
from specchat.planning.placement import (
    FEWEST,
    NONE_KEPT,
    THIRDS,
    BlocksOnHost,
    OnHost,
)
from specchat.planning.plan import MOST, USUAL_DRAFT, Plan, plans_to_try
from specchat.planning.plan_ranking import MeasuredStep, PlanRanking
from specchat.planning.plan_words import PlanWords, gib
from specchat.planning.token_time import Reads

NEXT_SHARE = 0.85
"""The next smaller plan may take at most this share of the last plan's memory."""
SMALLEST_CONTEXT = 512
PROJECTOR_SHARE, PROJECTOR_WORK = 1.05, 256 * 2**20
"""The memory for a projector, by its weights, and for encoding an image of 1024 tokens with it."""
WORK_WITHOUT_FLASH = 2**30
"""What encoding takes beside that on a GPU without flash attention; on a CPU it always has it."""
OUTPUT = "output.weight"
INEXACT_REPACKED = frozenset({"q2_K", "q4_K", "q5_K", "q6_K"})
"""Types whose repacked weights round differently in passes of four or more tokens, on x86."""

NOT_MEASURED: Mapping[str, MeasuredStep] = {}


class Planner:
    """Makes plans for one pair on one machine."""

    def __init__(
        self,
        target: Sizes,
        draft: Sizes | None,
        devices: Sequence[Device],
        options: LoadOptions,
        measured: Mapping[str, MeasuredStep] = NOT_MEASURED,
    ) -> None:
        """List the plans; raise InvalidOption for a KV cache type that a model cannot have.

        `measured` has steps by the plan's `way`, as `specchat tune` finds them.
        """
        self._target, self._draft, self._options = target, draft, options
        require_cache_type(target, options)
        if draft is not None:
            require_cache_type(draft, options, "" if draft.kind.is_head else ", or --draft none")
        files = [options.projector]
        if draft is not None and not draft.kind.is_head:
            files.append(options.draft_projector)
        projectors = [header for header in map(planned_projector, files) if header]
        self._image_cells = max(map(cells_at_once, projectors), default=0)
        self._host = host_of(devices)
        self.gpus = planned_gpus(devices)
        self._num_remote = sum(bool(gpu.worker) for gpu in self.gpus)
        named = options.tensor_split[: len(self.gpus)] if len(self.gpus) > 1 else ()
        named += (0.0,) * (len(self.gpus) - len(named))
        self._shares = named if any(named) else tuple(float(gpu.free) for gpu in self.gpus)
        draft_has_gpus = self._draft_is_remote or len(self.gpus) > self._num_remote
        self._groups = plans_to_try(
            target, draft, options, has_gpus=bool(self.gpus), draft_has_gpus=draft_has_gpus
        )
        best = self._groups[0][0]
        self._depth = best.ctx // 2
        self._ranking = PlanRanking(self.devices, best, measured)
        self._words = PlanWords(
            target, draft, options, self._host, self.gpus, best, self._draft_is_remote
        )
        self._is_shared = any(gpu.kind == "integrated" for gpu in self.gpus)
        self._budgets = [self._host.budget, *(gpu.budget for gpu in self.gpus)]
        self.projector_bytes = sum(
            int(PROJECTOR_SHARE * each.num_bytes) + PROJECTOR_WORK for each in projectors
        )
        self._budgets[HOST] = max(0, self._budgets[HOST] - self.projector_bytes)
        stored = {STORED_TYPES[tensor.stored].name for tensor in target.header.tensors.values()}
        self._is_inexact = options.exact == "on" and not stored.isdisjoint(INEXACT_REPACKED)

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that plans use, the host first."""
        return (self._host, *self.gpus)

    def first(self) -> Plan:
        """Return the best plan that fits. Raises ModelWontLoad, saying what would fit."""
        plan = self._best(self._budgets)
        if plan is None and self._options.gpu_layers is not None:
            plan = self._planned(self._groups[0][0])  # the user decided
        if plan is None:
            raise ModelWontLoad(self.what_would_fit())
        return plan

    def after(self, plan: Plan) -> Plan | None:
        """Return the next smaller plan, for a machine with less memory than it reported."""
        host, *gpus = (int(NEXT_SHARE * need) for need in self._taken(plan))
        if any(gpus):  # a GPU had less; layers that leave it need the host's memory
            return self._best([self._budgets[HOST], *map(min, self._budgets[1:], gpus)])
        return self._best([min(self._budgets[HOST], host), *gpus])

    def models(self, plan: Plan) -> list[tuple[Sizes, ModelOptions]]:
        """Return the models of a plan with their options, the target first.

        A draft that evaluates one token per pass needs no states of the last pass.
        """
        copies = plan.on_host and self._copying_gpu
        chosen = {
            "ctx": plan.ctx,
            "batch": self._options.batch or (COPYING_BATCH if copies else USUAL_BATCH),
            "gpu_layers": plan.gpu_layers,
            "cache_type": plan.cache_type,
            "tensor_split": plan.shares,
            "rollback_length": plan.rollback_length,
            "is_repacked": plan.is_repacked and not self._is_inexact,
            "has_branches": self._chains_reason is None,
            "num_texts": plan.num_texts,
            "image_cells": self._image_cells,
        }
        options = ModelOptions(**self._options.values(LoadOptions) | chosen)
        options = self._with_kept(options, plan.on_host)
        if self._draft is None or plan.draft_gpu_layers is None:
            return [(self._target, options)]
        kind = self._draft.kind
        of_draft = replace(
            options,
            batch=kind.batch or self._options.batch,
            gpu_layers=plan.draft_gpu_layers,
            rollback_length=LONGEST_DRAFT if kind.drafts_blocks else 0,
            is_repacked=plan.is_repacked,
            with_head=kind.is_head,
            has_branches=False,
            num_texts=1,  # each text has a context of the draft
            image_cells=0,
            kept=NONE_KEPT,
        )
        if kind.shares_memory:
            of_draft = self._beside_target(plan, of_draft, 1 + self._draft.num_layers)
        elif self._num_remote and not self._draft_is_remote:
            of_draft = self._on_this_machine(of_draft)
        options = replace(options, with_head=self._draft.is_part_of(self._target))
        return [(self._target, options), (self._draft, of_draft)]

    def _with_kept(self, options: ModelOptions, on_host: OnHost) -> ModelOptions:
        """Return the target's options with the blocks that have a part on the host.

        They are the last ones of each GPU, the same share of each: the scarce memory of all is
        freed alike. Of the first of them a third or two may stay on its GPU.
        """
        devices = self._devices_of(self._target, options)
        blocks = self._target.blocks_with(on_host.part)
        on_gpus = [block for block in blocks if devices[block] != HOST]
        ranks: dict[int, float] = {}
        for device in set(devices):
            here = [block for block in on_gpus if devices[block] == device]
            ranks |= {block: place / len(here) for place, block in enumerate(here)}
        count = ceil(on_host.num_blocks)
        last = sorted(on_gpus, key=lambda block: (-ranks[block], -block))[:count]
        spared = round(THIRDS * (count - on_host.num_blocks)) if len(last) == count else 0
        return replace(options, kept=BlocksOnHost(on_host.part, tuple(last), spared))

    @property
    def _draft_is_remote(self) -> bool:
        """Whether layers of the draft may be on workers: only a head that is part of the target."""
        draft = self._draft
        return draft is not None and (draft.kind.shares_memory or draft.is_part_of(self._target))

    def _on_this_machine(self, options: ModelOptions) -> ModelOptions:
        """Return the options of a draft without layers on workers.

        A head without an output of its own takes the target's, wherever that is: then llama.cpp
        needs the workers' devices for the head's context, too.
        """
        assert self._draft is not None  # noqa: S101
        is_alone = not self._draft.kind.is_head or OUTPUT in self._draft.header.tensors
        local = self._shares[self._num_remote :]
        local = local if any(local) else (1.0,) * len(local)
        if is_alone:
            split = local if len(local) > 1 else ()
            return replace(options, workers=(), tensor_split=split)
        split = (0.0,) * self._num_remote + local if local else ()
        return replace(options, tensor_split=split)

    @property
    def _chains_reason(self) -> str | None:
        kind = self._draft.kind if self._draft is not None else None
        return why_chains(self._target.layout, kind, self._options)

    def _beside_target(self, plan: Plan, options: ModelOptions, whole: int) -> ModelOptions:
        """Return the options of a head that reads the target's cache, on its last layer's device.

        On another device, llama.cpp is reported to crash (llama.cpp#25522).
        """
        layers = plan.gpu_layers if self.gpus else 0
        *_, last, _ = devices_of_layers(self._target.num_layers, layers, self._shares)
        split = tuple([float(number == last) for number in range(1, len(self.gpus) + 1)])
        return replace(
            options,
            gpu_layers=0 if last == HOST else whole,
            tensor_split=split if len(split) > 1 else (),
        )

    def has_room_for_projector(self, plan: Plan) -> bool:
        """Return True if the first GPU here has room for a projector beside what a plan puts there.

        The model comes first: each token needs it, and an image is encoded once.
        """
        first = 1 + self._num_remote
        if first >= len(self._budgets) or not plan.gpu_layers:
            return False
        more = WORK_WITHOUT_FLASH if self._options.flash_attention == "off" else 0
        room = self._budgets[first] - self._needs(plan)[first].total
        return room >= self.projector_bytes + more

    def draft_bytes(self, plan: Plan) -> int:
        """Return the bytes that the draft takes in a plan, 0 if the plan is without it."""
        plans = plan, replace(plan, draft_gpu_layers=None)
        both, alone = (sum(need.total for need in self._needs(each)) for each in plans)
        return both - alone

    def what_would_fit(self) -> str:
        """Return one line saying that the pair does not fit, and what would."""
        smallest = self._groups[-1][-1]
        need = self._needs(replace(smallest, gpu_layers=0, draft_gpu_layers=None))[HOST]
        own = self.gpus[: self._num_remote] if self._is_shared else self.gpus
        room = self._budgets[HOST] + sum(gpu.budget for gpu in own)
        left = room - need.cache - need.work
        reason = (
            f"{self._target.header.path.name} does not fit: with a context of {smallest.ctx} tokens"
            f" it needs {gib(need.total)}, and {gib(room)} are free; "
        )
        if left > need.weights // 8:
            return reason + f"a quantization of at most {left / 1e9:.1f} GB would fit"
        if need.weights < room and self._options.ctx > SMALLEST_CONTEXT:
            return reason + "choose a shorter context with --ctx"
        return reason + "close other programs, or choose a smaller model"

    def near(self, share: float) -> list[Plan]:
        """Return the best plan and those of other ways that are predicted to be nearly as good.

        They lose at most `share` times as much. What was measured is left out of account.
        """
        plans = self._fitting(self._budgets)
        losses = {plan: self._ranking.predicted_loss(plan, self.step_reads(plan)) for plan in plans}
        best = dict[str, Plan]()
        for plan in sorted(plans, key=losses.__getitem__):
            best.setdefault(plan.way, plan)
        limit = share * min(losses.values(), default=0.0)
        return [plan for plan in best.values() if losses[plan] <= limit]

    def step_seconds(self, plan: Plan) -> float:
        """Return what a step is predicted to take, whatever was measured."""
        return self._ranking.seconds(self.step_reads(plan))

    def step_reads(self, plan: Plan) -> Reads:
        """Return what a step reads on each device, with a text that fills half the context.

        A plan of another context is taken to read the same text. With a draft a step is a pass over
        USUAL_DRAFT tokens and one more, and what drafts them.
        """
        (target, options), *drafts = self.models(plan)
        num_tokens = 1 if self._draft is None else USUAL_DRAFT + 1
        reads = self._reads(target, options, self._depth, num_tokens)
        for draft, of_draft in drafts:
            passes = 1 if draft.kind.drafts_blocks else USUAL_DRAFT
            reads += self._reads(draft, of_draft, self._depth) * passes
        return reads

    def _best(self, budgets: Sequence[int]) -> Plan | None:
        """Return the best plan that fits into budgets, the host's first."""
        return min(self._fitting(budgets), key=self._loss, default=None)

    def _fitting(self, budgets: Sequence[int]) -> list[Plan]:
        """Return the plans that fit of the first group that has any."""
        for group in self._groups:
            if fitting := list(filter(None, [self._fitted(plan, budgets) for plan in group])):
                return fitting
        return []

    def _fitted(self, choice: Plan, budgets: Sequence[int]) -> Plan | None:
        """Return a plan with as many layers and parts on GPUs as fit, None if it does not."""
        if choice.gpu_layers == MOST:
            if not (layers := self._most_layers(choice, budgets)):
                return None
            choice = replace(choice, gpu_layers=layers)
        if choice.on_host.num_blocks == FEWEST:
            choice = self._with_fewest(choice, budgets)
        plan = self._planned(choice)
        fits = all(need <= room for need, room in zip(self._taken(plan), budgets, strict=True))
        return plan if fits else None

    def _loss(self, plan: Plan) -> float:
        return self._ranking.loss(plan, self.step_reads(plan))

    def _reads(
        self, model: Sizes, options: ModelOptions, depth: int = 0, num_tokens: int = 1
    ) -> Reads:
        """Return what a pass reads on each device, the host first."""
        devices = self._devices_of(model, options)
        shape = shape_context(model.layout, options, is_on_gpu=bool(options.gpu_layers))
        reads = model.reads(shape, devices, options.kept, depth, num_tokens)
        unused = 1 + len(self.gpus) - len(reads.num_bytes)
        return replace(reads, num_bytes=reads.num_bytes + (0,) * unused)

    def _needs(self, choice: Plan) -> tuple[Need, ...]:
        """Return the memory of each device for all models, the host first."""
        total = [Need()] * (1 + len(self.gpus))
        for number, (model, options) in enumerate(self.models(choice)):
            layers = options.gpu_layers or 0
            shape = shape_context(model.layout, options, is_on_gpu=layers > 0)
            devices = self._devices_of(model, options)
            needs = model.needs(shape, devices, options.kept, self._copying_gpu)
            for device, need in enumerate(needs):
                total[device] += need
                num_contexts = choice.num_texts * model.kind.num_contexts(model.header)
                for _ in range(num_contexts - 1 if number else 0):
                    total[device] += Need(0, need.cache, need.work)
        return tuple(total)

    def _devices_of(self, model: Sizes, options: ModelOptions) -> tuple[int, ...]:
        """Return the device of each layer of a model, the host being 0."""
        layers = options.gpu_layers or 0 if self.gpus else 0
        if options.workers or not self._num_remote:
            return devices_of_layers(model.num_layers, layers, options.tensor_split or self._shares)
        num_local = len(self.gpus) - self._num_remote
        shares = options.tensor_split or (1.0,) * num_local  # then there is at most one
        devices = devices_of_layers(model.num_layers, layers, shares)
        return tuple([device and device + self._num_remote for device in devices])

    @property
    def _copying_gpu(self) -> int | None:
        """The GPU that long passes copy weights to, None without one on this machine."""
        return self._num_remote + 1 if len(self.gpus) > self._num_remote else None

    def _with_fewest(self, choice: Plan, budgets: Sequence[int]) -> Plan:
        """Return a plan with a part of as few blocks on the host as fits, or else of all.

        They are counted in thirds.
        """
        part = choice.on_host.part

        def placed(thirds: int) -> Plan:
            return replace(choice, on_host=OnHost(part, thirds / THIRDS))

        counts = range(1, THIRDS * len(self._target.blocks_with(part)))
        too_few = bisect_left(counts, True, key=lambda few: self._fit_gpus(placed(few), budgets))
        return placed(1 + too_few)

    def _most_layers(self, choice: Plan, budgets: Sequence[int]) -> int:
        """Return how many of the target's layers fit onto the GPUs."""

        def is_too_much(layers: int) -> bool:
            return not self._fit_gpus(replace(choice, gpu_layers=layers), budgets)

        return bisect_left(range(1, self._target.num_layers + 2), True, key=is_too_much)

    def _fit_gpus(self, choice: Plan, budgets: Sequence[int]) -> bool:
        """Return whether what a plan needs of each GPU is within its budget."""
        needs = self._needs(choice)
        return all(need.total <= room for need, room in zip(needs[1:], budgets[1:], strict=True))

    def _taken(self, plan: Plan) -> list[int]:
        """Return the bytes that a plan keeps occupied on each device, the host first.

        Weights that are only mapped do not count: the system can drop them from memory.
        """
        host, *gpus = plan.needs
        in_host = host.total if plan.is_repacked else host.total - host.weights
        on_gpus = [need.total for need in gpus]
        shared = sum(on_gpus[self._num_remote :]) if self._is_shared else 0
        return [in_host + shared, *on_gpus]

    def _planned(self, choice: Plan) -> Plan:
        """Return a plan with its memory needs, summary and notice."""
        models = self.models(choice)
        of_target = models[0][1]
        choice = replace(choice, on_host=of_target.kept.on_host)  # perhaps less than was asked for
        if len(models) > 1:
            choice = replace(choice, draft_gpu_layers=models[1][1].gpu_layers)
        needs = self._needs(choice)
        is_whole = [
            (options.gpu_layers or 0) > model.num_layers and not options.kept.blocks
            for model, options in models
        ]
        return replace(
            choice,
            gpu_layers=choice.gpu_layers if self.gpus else 0,
            needs=needs,
            reads=self._reads(self._target, of_target),
            shares=self._shares if len(self.gpus) > 1 else (),
            is_on_gpus=bool(self.gpus) and all(is_whole),
            summary=self._words.summary(choice, needs),
            notice=self._words.notice(choice),
        )


def why_chains(layout: ModelLayout, kind: DraftKind | None, options: LoadOptions) -> str | None:
    """Return why drafts for a target are chains, None if they may be trees.

    `kind` is that of the draft, None without one.
    """
    if reason := why_no_branches(layout):
        return reason
    if kind and kind.shares_memory:
        return f"the {kind.noun} shares the target's memory, which holds one text then"
    is_exact = options.exact == "on"
    return "--exact is on, and passes with branches are not measured" if is_exact else None
