"""Loading a pair by its plan, or by a smaller plan if memory is short."""

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial

from specchat.drafter_registry import resolve
from specchat.engine.api import EngineFacts, Loading
from specchat.engine.worker_access import require_allowed
from specchat.errors import Cancelled, OutOfMemory
from specchat.gguf.common_vocabulary import CommonVocabulary, common_vocabulary
from specchat.gguf.draft_kinds import DraftKind
from specchat.gguf.header import Header
from specchat.gguf.model_files import read_pair
from specchat.gguf.origin import require_origin
from specchat.llama.context import Context
from specchat.llama.device_list import list_devices
from specchat.llama.draft_context import DraftContext
from specchat.llama.hidden_states import why_not_runnable
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.remote_devices import WorkerConnections
from specchat.llama.tree_context import TreeContext
from specchat.options.worker_address import worker_address
from specchat.planning.context_shape import ModelOptions
from specchat.planning.device import (
    Device,
    as_devices,
    gpus_of,
    keep_gpus,
    keep_workers,
    used_and_total,
)
from specchat.planning.host_resources import available_bytes, num_processors, num_threads
from specchat.planning.memory import Sizes, devices_of_layers
from specchat.planning.notices import notices_of_pair
from specchat.planning.plan import Plan
from specchat.planning.planner import Planner, require_whole_layers, why_chains
from specchat.requests.progress import ProgressReport
from specchat.workers.worker_probe import probe_worker, require_different
from specchat.workers.worker_watch import LostCallback, WorkerWatch, end_process

TO_REBUILD = "`specchat doctor` prints how to rebuild it"
SPARE_SHARE = 0.25
"""A pair's spare contexts may take this share of the memory that is available."""


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A pair's contexts and the plan they were made by.

    `draft_context` is None without a draft model, or memory for it; `gpus` names this machine's
    GPUs. `kind` is that of the draft, loaded or not, None without one. The target's weights may be
    repacked on the CPU if it `is_repacked`. Models of different vocabularies have a
    `common_vocabulary`. `no_head_reason` says why a head was left out, which `loading` then lacks;
    None if there was none to leave out. `options` are those of the models, the target's first.
    `remote` are the devices of workers; a request to the slowest takes `round_trip` seconds, and
    whether those in `unwatched` are alive cannot be known. Those in `unused` were named in vain,
    because no layers may leave the CPU.
    """

    loading: Loading
    plan: Plan
    gpus: tuple[str, ...]
    kind: DraftKind | None
    is_repacked: bool
    common_vocabulary: CommonVocabulary | None
    no_head_reason: str | None
    options: Sequence[ModelOptions]
    context: TreeContext
    draft_context: DraftContext | None = None
    remote: tuple[Device, ...] = ()
    round_trip: float = 0.0
    unwatched: tuple[str, ...] = ()
    unused: tuple[str, ...] = ()

    @contextmanager
    def with_empty_memory(self, ctx: int, abort: AbortFlag) -> Iterator["LoadedPair"]:
        """Yield this pair, or with small contexts of `ctx` tokens if its own hold a text.

        Raises OutOfMemory if there is no memory for those, and Cancelled if stopped meanwhile.
        """
        with ExitStack() as stack:
            pair = self._spare(ctx, abort, stack) if self.context.length else self
            if pair is self:
                stack.callback(self.empty)
            if abort.is_set():  # how to roll back was tried, perhaps in vain
                raise Cancelled("measuring was stopped")
            yield pair

    def empty(self) -> None:
        """Forget every text."""
        for context in filter(None, (self.context, self.draft_context)):
            context.prefill([])

    def _spare(self, ctx: int, abort: AbortFlag, stack: ExitStack) -> "LoadedPair":
        """Return this pair with small contexts of their own, of the same shape otherwise."""
        first, draft = self.context, self.draft_context
        small = min(ctx, first.capacity)
        models = [each.model for each in (first, draft) if each]
        shape = replace(first.shape, ctx=small)
        needed = 0
        for model in models:
            devices = devices_of_layers(model.sizes.num_layers, 0, ())
            (need,) = model.sizes.needs(shape, devices)
            needed += need.cache + need.work
        free = available_bytes()
        if free is not None and needed > SPARE_SHARE * free:
            raise OutOfMemory("there is no memory to measure passes in: start a new chat")
        target_options, *draft_options = self.options
        context = TreeContext(first.model, target_options, abort, shape)
        stack.enter_context(context)
        beside: DraftContext | None = None
        for options in draft_options if draft else ():
            beside = _draft_context(models[1], replace(options, ctx=small), context, abort, stack)
        return replace(self, context=context, draft_context=beside)

    @property
    def draft_kind(self) -> str:
        """The sort of model beside the target, loaded or not: a key of MODELS, or ""."""
        return self.kind.sort if self.kind else ""

    @property
    def uses_gpus(self) -> bool:
        """Whether layers of either model are on GPUs."""
        return bool(self.plan.gpu_layers or self.plan.draft_gpu_layers)

    @property
    def num_threads(self) -> int:
        """The threads that decode: with all layers on GPUs, one waits for them."""
        return 1 if self.plan.is_on_gpus else num_threads(self.loading.target, self.loading.threads)

    @property
    def facts(self) -> EngineFacts:
        """The facts about the loaded pair."""
        contexts: list[DraftContext] = [self.context]
        contexts += [self.draft_context] if self.draft_context else []
        sizes = [context.model.sizes for context in contexts]
        target, *drafts = (each.header for each in sizes)
        has_own_file = len(sizes) > 1 and not sizes[1].is_part_of(sizes[0])
        off = _no_rollback_reason(self.context)
        common = self.common_vocabulary if self.draft_context else None
        common_text = f"the draft model has {common}" if common else ""
        no_head_text = f"the prediction head is not used: {self.no_head_reason}; {TO_REBUILD}"
        no_head_text = no_head_text if self.no_head_reason else ""
        wanted, capacity = self.loading.ctx, self.context.capacity
        gpus = gpus_of(list_devices()) if self.uses_gpus else []
        gpu_used, gpu_total = used_and_total([*gpus, *self._remote_in_use])
        unwatched = ", ".join(self.unwatched)
        unwatched_text = (
            f"{unwatched} has no health port, so nothing notices when it hangs: run `specchat"
            " worker` there, and forward the port after it too"
        )
        unused_text = f"{', '.join(self.unused)} is not used: --gpu-layers is 0"
        others = [
            *notices_of_pair(target, drafts[0] if drafts else None, wanted, capacity),
            *dict.fromkeys(context.model.lock_notice for context in contexts),
            *[unwatched_text] * bool(self.unwatched),
            *[unused_text] * bool(self.unused),
        ]
        return EngineFacts(
            target=target.name,
            draft=drafts[0].name if drafts else None,
            draft_kind=self.draft_kind,
            context=self.context.capacity,
            has_chat_template=target.chat_template is not None,
            speculation_off_reason=off,
            draft_off_reason=off or self._draft_off_reason(),
            longest_draft=self.context.longest_draft,
            target_bytes=target.num_bytes,
            draft_bytes=drafts[0].num_bytes if drafts else 0,
            cache_bytes=sum(context.num_bytes for context in contexts),
            target_file_bytes=target.file_bytes,
            draft_file_bytes=drafts[0].file_bytes if has_own_file else 0,
            idle_processors=max(0, num_processors() - self.num_threads),
            gpu=", ".join(self.gpus) if self.uses_gpus else "",
            gpu_used=gpu_used,
            gpu_total=gpu_total,
            plan=self.plan.summary,
            notices=tuple(filter(None, (self.plan.notice, common_text, no_head_text, *others))),
            common_tokens=common.share if common else None,
            most_branches=self.context.most_branches,
            chains_reason=self._chains_reason(),
        )

    @property
    def _remote_in_use(self) -> list[Device]:
        """The devices of workers, with what this pair takes of them."""
        needs = self.plan.needs[1:]
        return [
            replace(device, free=max(0, device.free - need.total))
            for device, need in zip(self.remote, needs, strict=False)
        ]

    def _chains_reason(self) -> str | None:
        if self.context.most_branches:
            return None
        reason = why_chains(self.context.model.sizes.layout, self.kind, self.loading)
        return reason or "the memory of the model cannot hold several texts"

    def _draft_off_reason(self) -> str | None:
        if self.draft_context:
            return _no_rollback_reason(self.draft_context)
        if self.kind:
            return f"not enough memory for the {self.kind.noun}"
        return self.no_head_reason or "no draft model is loaded"


def load_pair(
    loading: Loading,
    abort: AbortFlag,
    stack: ExitStack,
    report: ProgressReport,
    on_lost: LostCallback = end_process,
) -> LoadedPair:
    """Load a pair onto the devices of this machine and of workers; `stack` closes what is loaded.

    A head that this build of llama.cpp cannot run is left out with a notice, even if the user named
    it. A draft that does not fit in memory is treated alike: the text is the same without it.
    `on_lost` is called if a worker stops answering, from then on until the pair is closed. Raises
    as `Engine.load` does; OutOfMemory if even the smallest plan is too large.
    """
    require_whole_layers(loading)
    loading = replace(loading, threads=num_threads(loading.target, loading.threads))
    header, of_draft, no_head_reason = _headers_of(loading)
    loading = replace(loading, draft=None) if no_head_reason else loading
    target, draft = Sizes(header), Sizes(of_draft) if of_draft else None
    kind, common = draft.kind if draft else None, None
    if of_draft and kind and not kind.is_head:
        common = common_vocabulary(header, of_draft)
    unused = tuple(loading.workers) if loading.gpu_layers == 0 else ()
    loading = replace(loading, workers=()) if unused else loading
    addresses = [worker_address(each) for each in loading.workers]
    require_allowed(addresses)
    reports = [probe_worker(each) for each in addresses]
    require_different(reports)
    devices = list_devices()
    keep_gpus(gpus_of(devices))
    remote = [device for each in reports for device in as_devices(each)]
    unwatched = tuple([str(each.address) for each in reports if not each.has_health])
    planner = Planner(target, draft, [*devices, *remote], loading)
    names = tuple([gpu.label for gpu in planner.gpus])
    round_trip = max((each.round_trip for each in reports), default=0.0)
    if reports:
        keep_workers(remote)
        watch = stack.enter_context(WorkerWatch(reports, on_lost))
        stack.enter_context(WorkerConnections(reports, watch))
    plan = planner.first()
    while True:
        try:
            with ExitStack() as attempt:
                planned = planner.models(plan)
                contexts = _load_planned(planned, abort, attempt, report)
                stack.push(attempt.pop_all())
                options = [each for _, each in planned]
                is_repacked = options[0].is_repacked
                known = (loading, plan, names, kind, is_repacked, common, no_head_reason, options)
                return LoadedPair(*known, *contexts, tuple(remote), round_trip, unwatched, unused)
        except OutOfMemory:
            smaller = planner.after(plan)
            if smaller is None:
                raise
            notice = f"less memory was free than reported, so the plan is: {smaller.summary}"
            plan = replace(smaller, notice=notice)


def _load_planned(
    planned: Sequence[tuple[Sizes, ModelOptions]],
    abort: AbortFlag,
    stack: ExitStack,
    report: ProgressReport,
) -> tuple[TreeContext, DraftContext | None]:
    """Load the models of a plan, and return their contexts; the draft's kind says what makes its.

    A head in the target's file is loaded with that, and needs its own context all the same.
    """
    (target, options), *drafts = planned
    model = Model(target.header.path, options, partial(report, "target"), target)
    models = [stack.enter_context(model)]
    for draft, of_draft in drafts:
        if draft.is_part_of(target):
            models.append(model.part(draft))
        else:
            own = Model(draft.header.path, of_draft, partial(report, "draft"), draft)
            models.append(stack.enter_context(own))
    context = TreeContext(model, options, abort)
    stack.enter_context(context)
    beside: DraftContext | None = None
    for (_, of_draft), own in zip(drafts, models[1:], strict=True):
        beside = _draft_context(own, of_draft, context, abort, stack)
    return context, beside


def _draft_context(
    model: Model, options: ModelOptions, target: Context, abort: AbortFlag, stack: ExitStack
) -> DraftContext:
    """Return the context of a draft, as its kind makes it beside the target's."""
    context: DraftContext = resolve(model.sizes.kind.runs)(model, options, target, abort)
    stack.callback(context.close)
    return context


def _headers_of(loading: Loading) -> tuple[Header, Header | None, str | None]:
    """Return the headers of a target and its draft, and why a head is left out (None: it is not).

    Raises as `read_pair` and `require_origin` do.
    """
    header, draft = read_pair(loading.target, loading.draft, with_head=loading.head)
    if draft is None:
        return header, None, None
    require_origin(header, draft)
    reason = why_not_runnable(draft)
    return header, None if reason else draft, reason


def _no_rollback_reason(context: DraftContext) -> str | None:
    if context.rollback_kind.can_speculate:
        return None
    return f"tokens cannot be removed from the memory of {context.model.header.name}"
