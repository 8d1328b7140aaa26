"""Loading a pair by its plan, or by a smaller plan if memory is short."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TypeAlias

from specchat.drafting.token_map import CellsFor, no_cells
from specchat.engine.api import Loading
from specchat.engine.loaded_pair import LoadedPair, make_draft_context
from specchat.engine.pair_files import PairFiles, read_pair_files
from specchat.engine.remote_workers import find_workers
from specchat.errors import OutOfMemory
from specchat.gguf.header import Header
from specchat.llama.context import Context
from specchat.llama.device_list import list_devices
from specchat.llama.draft_context import DraftContext
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model
from specchat.llama.text_memory import TextMemory
from specchat.llama.tree_context import TreeContext
from specchat.planning.context_shape import ModelOptions
from specchat.planning.device import gpus_of, keep_gpus
from specchat.planning.host_resources import num_threads
from specchat.planning.measured_times import planner_here
from specchat.planning.memory import Sizes
from specchat.requests.progress import ProgressReport
from specchat.workers.worker_watch import LostCallback, end_process

Beside: TypeAlias = Sequence[tuple[TextMemory, DraftContext | None]]


def load_pair(
    loading: Loading,
    abort: AbortFlag,
    stack: ExitStack,
    report: ProgressReport,
    on_lost: LostCallback = end_process,
) -> LoadedPair:
    """Load a pair onto the devices of this machine and of workers; `stack` closes what is loaded.

    A head that this build of llama.cpp cannot run is left out with a notice, even if the user named
    it. A draft that does not fit in memory is treated likewise: the text is the same without it.
    `on_lost` is called if a worker stops answering, from then on until the pair is closed. Raises
    as `Engine.load` does; OutOfMemory if even the smallest plan is too large.
    """
    files = read_pair_files(loading)
    workers = find_workers(loading)
    chooses_threads = loading.threads is None
    loading = replace(
        loading,
        threads=num_threads(loading.target, loading.threads),
        draft=None if files.no_head_reason else loading.draft,
        workers=() if workers.unused else loading.workers,
    )
    devices = list_devices()
    keep_gpus(gpus_of(devices))
    planner = planner_here(files.target, files.draft, [*devices, *workers.devices], loading)
    workers.connect(stack, on_lost)
    plan = planner.first()
    while True:
        models = planner.models(plan)
        (_, target_options), *drafts = models
        try:
            context, draft_context, beside = _load_models(models, abort, stack, report)
        except OutOfMemory:
            smaller = planner.after(plan)
            if smaller is None:
                raise
            notice = f"less memory was free than reported, so the plan is: {smaller.summary}"
            plan = replace(smaller, notice=notice)
            continue
        is_on_gpu = planner.has_room_for_projector(plan)
        draft_cells = _join_projectors(loading, files, context, draft_context, abort, is_on_gpu)
        return LoadedPair(
            loading=loading,
            files=files,
            workers=workers,
            plan=plan,
            devices=planner.devices,
            target_options=target_options,
            context=context,
            draft_options=drafts[0][1] if drafts else None,
            draft_context=draft_context,
            beside=beside,
            chooses_threads=chooses_threads,
            draft_cells=draft_cells,
        )


def _join_projectors(
    loading: Loading,
    files: PairFiles,
    context: TreeContext,
    draft_context: DraftContext | None,
    abort: AbortFlag,
    is_on_gpu: bool,
) -> CellsFor:
    """Let the target read images and, with a projector of its own, its draft model, too.

    Returns the function that returns the draft model's cells for the target's.
    """
    if files.projector is None:
        return no_cells
    from specchat.llama.kept_images import KeptImages
    from specchat.llama.shared_images import SharedImages  # who only writes waits for neither
    from specchat.llama.vision import Vision

    images = KeptImages()

    def vision(projector: Header, model: Model) -> Vision:
        return Vision(
            projector,
            model,
            abort,
            images,
            threads=num_threads(loading.target, loading.threads),
            is_on_gpu=is_on_gpu,
            has_flash_attention=loading.flash_attention != "off",
        )

    context.model.vision = own = vision(files.projector, context.model)
    if files.draft_projector is None or not isinstance(draft_context, Context):
        return no_cells
    draft_context.model.vision = of_draft = vision(files.draft_projector, draft_context.model)
    context.model.vision = both = SharedImages(own, of_draft, draft_context.native.chunk)
    return both.draft_cells


def _load_models(
    models: Sequence[tuple[Sizes, ModelOptions]],
    abort: AbortFlag,
    stack: ExitStack,
    report: ProgressReport,
) -> tuple[TreeContext, DraftContext | None, Beside]:
    """Load the models of a plan; return the contexts of the target and of its draft, if any.

    The memories of further texts, each with a draft of its own, come last.

    Before an error is raised, everything is freed, in reverse order: a draft's context may read its
    target's, and each context needs its model's weights.
    """
    (target_sizes, target_options), *drafts = models
    with ExitStack() as attempt:
        target = _load_model(target_sizes, target_options, attempt, partial(report, "target"))
        draft_models: list[tuple[Model, ModelOptions]] = []
        for sizes, options in drafts:
            if sizes.is_part_of(target_sizes):  # it was loaded with its target
                draft_models.append((target.part(sizes), options))
            else:
                draft = _load_model(sizes, options, attempt, partial(report, "draft"))
                draft_models.append((draft, options))
        context = TreeContext(target, target_options, abort)
        attempt.enter_context(context)
        num_texts = context.shape.num_texts
        draft_context: DraftContext | None = None
        for draft, options in draft_models:
            draft_context = make_draft_context(draft, options, context, abort, attempt)
        texts = [TextMemory(context.native, number) for number in range(1, num_texts)]
        beside: Beside = [(text, None) for text in texts]
        for draft, options in draft_models:
            beside = [
                (text, make_draft_context(draft, options, text, abort, attempt)) for text in texts
            ]
        stack.push(attempt.pop_all())
    return context, draft_context, beside


def _load_model(
    sizes: Sizes,
    options: ModelOptions,
    stack: ExitStack,
    on_progress: Callable[[float], object],
) -> Model:
    return stack.enter_context(Model(sizes.header.path, options, on_progress, sizes))
