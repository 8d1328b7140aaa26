"""A pair in memory: its contexts, and the facts about it."""

import platform
from collections.abc import Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace

from specchat.drafter_registry import resolve
from specchat.drafting.token_map import CellsFor, no_cells
from specchat.engine.api import EngineFacts, Loading
from specchat.engine.pair_files import PairFiles
from specchat.engine.remote_workers import RemoteWorkers
from specchat.errors import Cancelled, EngineFailed, OutOfMemory
from specchat.images.text_only import TEXT_ONLY
from specchat.llama.device_list import list_devices
from specchat.llama.draft_context import DraftContext
from specchat.llama.library import AbortFlag, api
from specchat.llama.memory_snapshot import MemorySnapshot
from specchat.llama.model import Model
from specchat.llama.rollback import Rollback
from specchat.llama.text_memory import TextMemory
from specchat.llama.tree_context import TreeContext
from specchat.planning.context_shape import ModelOptions
from specchat.planning.device import Device, gpus_of, used_and_total
from specchat.planning.host_resources import available_bytes, num_processors, num_threads
from specchat.planning.memory import devices_of_layers
from specchat.planning.notices import notices_of_pair
from specchat.planning.plan import Plan
from specchat.planning.planner import why_chains

TO_REBUILD = "`specchat doctor` prints how to rebuild it"
SPARE_SHARE = 0.25
"""A pair's spare contexts may take this share of the memory that is available."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedPair:
    """A pair's contexts and the plan they were made by.

    `loading` lacks a draft that cannot be run and workers that are not used. `devices` are those of
    the plan: the host, workers' and GPUs. `draft_context` is None without a draft, or without
    memory for it. The memories of further texts and of their drafts are `beside` those of the
    first. `draft_cells` returns a draft model's cells for those of the target's images.
    `target_options` and `draft_options` are those that the plan gave each model. With
    `chooses_threads`, the user left their number to specchat.
    """

    loading: Loading
    files: PairFiles
    workers: RemoteWorkers
    plan: Plan
    devices: tuple[Device, ...]
    target_options: ModelOptions
    context: TreeContext
    draft_options: ModelOptions | None = None
    draft_context: DraftContext | None = None
    beside: Sequence[tuple[TextMemory, DraftContext | None]] = ()
    chooses_threads: bool = False
    draft_cells: CellsFor = no_cells

    @contextmanager
    def with_empty_memory(self, ctx: int, abort: AbortFlag) -> Iterator["LoadedPair"]:
        """Yield this pair or, if its contexts hold a text, one with contexts of `ctx` tokens.

        Raises OutOfMemory if there is no memory for those, and Cancelled if stopped meanwhile.
        """
        with ExitStack() as stack:
            pair = self._spare(ctx, abort, stack) if self._holds_text else self
            if pair is self:
                stack.callback(self.empty)
            if abort.is_set():  # how to roll back was tried, perhaps in vain
                raise Cancelled("measuring was stopped")
            yield pair

    @property
    def _holds_text(self) -> bool:
        return any(context.length for context in (self.context, *(text for text, _ in self.beside)))

    def empty(self) -> None:
        """Forget every text."""
        for context in self._contexts:
            context.prefill([])
        for text, draft in self.beside:
            text.prefill([])
            if draft:
                draft.prefill([])

    def clear(self, kept: Collection[TextMemory]) -> None:
        """Forget every text but the `kept` ones, and whatever the memory of the others held.

        Of what is forgotten or masked, llama.cpp still multiplies numbers by zero: NaN would come
        back in every later answer. It clears a context as a whole, so copies of the others are put
        back after that, as far as there is room for them.
        """
        memories = [(self.context, self.draft_context), *self.beside]
        copies: list[tuple[DraftContext | TextMemory, MemorySnapshot]] = []
        with suppress(MemoryError):
            for text, draft in memories:
                if text in kept and text.num_evaluated:
                    copies += [(each, each.snapshot()) for each in (text, draft) if each]
        self.empty()
        api.llama_memory_clear(api.llama_get_memory(self.context.handle), True)
        for each, copy in copies:
            with suppress(EngineFailed):  # it is empty then
                each.restore(copy)

    def _spare(self, ctx: int, abort: AbortFlag, stack: ExitStack) -> "LoadedPair":
        """Return this pair with small contexts in place of its own, otherwise of the same shape."""
        target, draft = self.context, self.draft_context
        shape = replace(target.shape, ctx=min(ctx, target.capacity))
        needed = 0
        for context in self._contexts:
            sizes = context.model.sizes
            (need,) = sizes.needs(shape, devices_of_layers(sizes.num_layers, 0, ()))
            needed += need.cache + need.work
        free = available_bytes()
        if free is not None and needed > SPARE_SHARE * free:
            raise OutOfMemory("there is no memory to measure passes in: start a new chat")
        spare = TreeContext(target.model, self.target_options, abort, shape)
        stack.enter_context(spare)
        spare_draft: DraftContext | None = None
        if draft and self.draft_options:
            options = replace(self.draft_options, ctx=shape.ctx)
            spare_draft = make_draft_context(draft.model, options, spare, abort, stack)
        return replace(self, context=spare, draft_context=spare_draft, beside=())

    @property
    def draft_kind(self) -> str:
        """The kind of model beside the target, loaded or not: a key of MODELS, or ""."""
        return self.files.kind.model_kind if self.files.kind else ""

    @property
    def gpus(self) -> tuple[str, ...]:
        """The names of the plan's GPUs, those of workers first."""
        return tuple([device.label for device in self.devices[1:]])

    @property
    def is_repacked(self) -> bool:
        """Whether the target's weights may be repacked on the CPU."""
        return self.target_options.is_repacked

    @property
    def uses_gpus(self) -> bool:
        """Whether layers of either model are on GPUs."""
        return bool(self.plan.gpu_layers or self.plan.draft_gpu_layers)

    @property
    def num_threads(self) -> int:
        """The number of threads that decode: with all layers on GPUs, one waits for them."""
        return 1 if self.plan.is_on_gpus else num_threads(self.loading.target, self.loading.threads)

    @property
    def may_change_threads(self) -> bool:
        """Whether the number of threads is specchat's to change, and changes no bit of an answer.

        llama.cpp's flash attention on a CPU adds up as many parts of a long context as there are
        threads. On ARM its kernels for two rows at once are used by the rows that a thread gets.
        """
        is_on_x86 = platform.machine().lower() in ("x86_64", "amd64")
        is_on_cpu = is_on_x86 and not (self.uses_gpus or self.plan.is_on_gpus)
        return self.chooses_threads and is_on_cpu and not self.context.shape.flash

    def use_threads(self, count: int) -> None:
        """Decode with this number of threads from the next pass on."""
        for context in (*self._contexts, *self._drafts_beside):
            context.use_threads(count)

    @property
    def facts(self) -> EngineFacts:
        """The facts about the loaded pair."""
        contexts = self._contexts
        target, *drafts = (context.model.sizes for context in contexts)
        has_own_file = bool(drafts) and not drafts[0].is_part_of(target)
        common = self.files.common_vocabulary if drafts else None
        speculation_off_reason = _no_rollback_reason(self.context)
        gpus = gpus_of(list_devices()) if self.uses_gpus else []
        gpu_used, gpu_total = used_and_total([*gpus, *self._remote_devices_in_use])
        return EngineFacts(
            target=target.header.name,
            draft=drafts[0].header.name if drafts else None,
            draft_kind=self.draft_kind,
            context=self.context.capacity,
            has_chat_template=target.header.chat_template is not None,
            speculation_off_reason=speculation_off_reason,
            draft_off_reason=speculation_off_reason or self._draft_off_reason,
            longest_draft=self.context.longest_draft,
            target_bytes=target.header.num_bytes,
            draft_bytes=drafts[0].header.num_bytes if drafts else 0,
            cache_bytes=sum(context.num_bytes for context in (*contexts, *self._drafts_beside)),
            target_file_bytes=target.header.file_bytes,
            draft_file_bytes=drafts[0].header.file_bytes if has_own_file else 0,
            target_file=self.loading.target.name,
            idle_processors=max(0, num_processors() - self.num_threads),
            gpu=", ".join(self.gpus) if self.uses_gpus else "",
            gpu_used=gpu_used,
            gpu_total=gpu_total,
            plan=self.plan.summary,
            notices=tuple(self._notices),
            common_tokens=common.share if common else None,
            most_branches=self.context.most_branches,
            chains_reason=self._chains_reason,
            images_off_reason=self._images_off_reason,
        )

    @property
    def rollback_kinds(self) -> Sequence[Rollback]:
        """How tokens are removed from the memory of each model, for each text."""
        texts = [text.rollback_kind for text, _ in self.beside]
        contexts = (*self._contexts, *self._drafts_beside)
        return [*texts, *(context.rollback_kind for context in contexts)]

    @property
    def _notices(self) -> Iterator[str]:
        """What the user should know about the pair, one line each."""
        if self.plan.is_placed:
            yield self.plan.summary
        if self.plan.notice:
            yield self.plan.notice
        if self.draft_context and self.files.common_vocabulary:
            yield f"the draft model has {self.files.common_vocabulary}"
        if self.draft_context and self.files.origin_notice:
            yield self.files.origin_notice
        if reason := self.files.no_head_reason:
            yield f"the prediction head is not used: {reason}; {TO_REBUILD}"
        models = [context.model for context in self._contexts]
        draft = models[1].header if self.draft_context else None
        capacity = self.context.capacity
        yield from notices_of_pair(models[0].header, draft, self.loading.ctx, capacity)
        yield from filter(None, dict.fromkeys(model.lock_notice for model in models))
        yield from self.workers.notices

    @property
    def _contexts(self) -> Sequence[DraftContext]:
        """The contexts that were made, the target's first."""
        return [self.context, self.draft_context] if self.draft_context else [self.context]

    @property
    def _drafts_beside(self) -> Sequence[DraftContext]:
        """The drafts of further texts."""
        return [draft for _, draft in self.beside if draft]

    @property
    def _remote_devices_in_use(self) -> list[Device]:
        """The devices of workers, with what this pair takes of them."""
        needs = self.plan.needs[1:]
        return [
            replace(device, free=max(0, device.free - need.total))
            for device, need in zip(self.workers.devices, needs, strict=False)
        ]

    @property
    def _chains_reason(self) -> str | None:
        if self.context.most_branches:
            return None
        reason = why_chains(self.context.model.sizes.layout, self.files.kind, self.loading)
        return reason or "the memory of the model cannot hold several texts"

    @property
    def _images_off_reason(self) -> str:
        if self.context.model.vision is None:
            return TEXT_ONLY
        from specchat.llama.mtmd_library import why_not  # who only writes does not wait for it

        return why_not()

    @property
    def _draft_off_reason(self) -> str | None:
        if self.draft_context:
            return _no_rollback_reason(self.draft_context)
        if self.files.kind:
            return f"not enough memory for the {self.files.kind.noun}"
        return self.files.no_head_reason or "no draft model is loaded"


def make_draft_context(
    model: Model, options: ModelOptions, target: TextMemory, abort: AbortFlag, stack: ExitStack
) -> DraftContext:
    """Return the context of a draft, as its kind makes it beside the target's."""
    context: DraftContext = resolve(model.sizes.kind.runs)(model, options, target, abort)
    stack.callback(context.close)
    return context


def _no_rollback_reason(context: DraftContext) -> str | None:
    if context.rollback_kind.can_speculate:
        return None
    return f"tokens cannot be removed from the memory of {context.model.header.name}"
