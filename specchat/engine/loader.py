"""Loading a pair as planned, or as the next smaller plan says where memory is short."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from specchat.engine.api import Loading, ProgressCallback, Stage
from specchat.engine.generate_options import LONGEST_DRAFT
from specchat.errors import InvalidOption, OutOfMemory
from specchat.gguf.reader import read_whole_model
from specchat.llama.context import Context
from specchat.llama.context_options import CACHE_TYPES, LoadOptions
from specchat.llama.device_list import list_devices
from specchat.llama.library import AbortFlag
from specchat.llama.model import LoadProgress, Model
from specchat.llama.tokenizer import require_compatible
from specchat.planning.choices import LoadConstraints
from specchat.planning.device import Device, gpus_of
from specchat.planning.host_resources import num_processors
from specchat.planning.machine import keep_gpus
from specchat.planning.memory import Sizes
from specchat.planning.plan import Plan, Planner

__all__ = ["LoadedPair", "constraints_of", "load_pair"]

AUTO = "auto"


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A pair with its contexts, the plan it was loaded by, and notices for the user.

    Without the draft where there is none, or no memory for it. `gpus` are the ones there are.
    """

    target: Model
    context: Context
    draft: Model | None
    draft_context: Context | None
    plan: Plan
    notices: tuple[str, ...]
    num_threads: int
    gpus: tuple[str, ...]

    @property
    def idle_processors(self) -> int:
        """How many processors decoding leaves to others; on GPUs it takes the one that waits."""
        return max(0, num_processors() - (1 if self.plan.is_on_gpus else self.num_threads))


def load_pair(
    loading: Loading,
    abort: AbortFlag,
    stack: ExitStack,
    on_progress: ProgressCallback | None = None,
) -> LoadedPair:
    """Load a pair onto this machine's devices; what is loaded is closed with `stack`.

    Raises as `Engine.load` does; OutOfMemory when even the smallest plan was too large.
    """
    constraints = constraints_of(loading)
    target = Sizes(read_whole_model(loading.target))
    draft = Sizes(read_whole_model(loading.draft)) if loading.draft else None
    devices = _devices()
    gpus = gpus_of(devices)
    keep_gpus(gpus)
    planner = Planner(target, draft, devices, constraints)
    plan = planner.first()
    notices = (plan.given_up,) if plan.given_up else ()
    while True:
        loader = _Loader(loading, plan, abort, on_progress, tuple([gpu.label for gpu in gpus]))
        try:
            with ExitStack() as attempt:
                loaded = loader.load(attempt, target, draft, notices)
                stack.push(attempt.pop_all())
                return loaded
        except OutOfMemory:
            smaller = planner.after(plan)
            if smaller is None:
                raise
            plan = smaller
            notices = (f"there was less memory than expected, so: {plan.words}",)


def _devices() -> list[Device]:
    """Return the devices there are; tests put others in its place."""
    return list_devices()


class _Loader:
    """Loads a pair by one plan."""

    def __init__(
        self,
        loading: Loading,
        plan: Plan,
        abort: AbortFlag,
        on_progress: ProgressCallback | None,
        gpus: tuple[str, ...],
    ) -> None:
        self._loading, self._plan, self._gpus = loading, plan, gpus
        self._abort, self._on_progress = abort, on_progress

    def load(
        self,
        stack: ExitStack,
        target_sizes: Sizes,
        draft_sizes: Sizes | None,
        notices: tuple[str, ...],
    ) -> LoadedPair:
        """Load it; OutOfMemory where a device gives less than the plan needs."""
        loading, draft, draft_context = self._loading, None, None
        target = stack.enter_context(self._model(loading.target, "target", target_sizes))
        if loading.draft and draft_sizes and self._plan.draft_gpu_layers is not None:
            draft = stack.enter_context(self._model(loading.draft, "draft", draft_sizes))
            require_compatible(target.vocabulary, draft.vocabulary)
        context = stack.enter_context(Context(target, self._options("target"), self._abort))
        if draft:
            options = self._options("draft")
            draft_context = stack.enter_context(Context(draft, options, self._abort))
        num_threads = self._options("target").num_threads
        return LoadedPair(
            target, context, draft, draft_context, self._plan, notices, num_threads, self._gpus
        )

    def _model(self, path: Path, stage: Stage, sizes: Sizes) -> Model:
        """Load one model of the pair, telling how far it is."""
        on_loaded: LoadProgress | None = None
        if self._on_progress is not None:
            report = self._on_progress

            def on_loaded(share: float) -> bool:
                return report(stage, share) is not False

        return Model(path, self._options(stage), on_loaded, sizes)

    def _options(self, stage: Stage) -> LoadOptions:
        """Return how to load one model of the pair.

        The draft model evaluates token by token, so states of the last pass are of no use to it.
        """
        loading, plan, is_draft = self._loading, self._plan, stage == "draft"
        return LoadOptions(
            ctx=plan.ctx,
            gpu_layers=plan.draft_gpu_layers if is_draft else plan.gpu_layers,
            flash_attention=loading.flash_attention,
            cache_type_k=plan.key_type,  # type: ignore[arg-type]  # LoadOptions checks it
            cache_type_v=plan.value_type,  # type: ignore[arg-type]
            threads=loading.threads,
            use_mmap=loading.use_mmap,
            use_mlock=loading.use_mlock,
            batch=loading.batch,
            rollback_length=0 if is_draft else LONGEST_DRAFT,
            tensor_split=plan.shares,
            split_mode=loading.split_mode,
            main_gpu=loading.main_gpu,
            is_repacked=plan.is_repacked,
        )


def constraints_of(loading: Loading) -> LoadConstraints:
    """Return what the user named; InvalidOption where a value is out of its range."""
    for kind in (loading.cache_type_k, loading.cache_type_v):
        if kind != AUTO and kind not in CACHE_TYPES:
            raise InvalidOption(
                f"a cache type must be auto or one of {', '.join(CACHE_TYPES)}, not {kind}"
            )
    if loading.first_guess is not None and not 0 <= loading.first_guess <= 1:
        raise InvalidOption(f"a first guess must be a share from 0 to 1, not {loading.first_guess}")
    LoadOptions(gpu_layers=loading.draft_gpu_layers)
    LoadOptions(
        ctx=loading.ctx,
        gpu_layers=loading.gpu_layers,
        flash_attention=loading.flash_attention,
        threads=loading.threads,
        batch=loading.batch,
        tensor_split=loading.tensor_split,
        split_mode=loading.split_mode,
        main_gpu=loading.main_gpu,
    )
    return LoadConstraints(
        ctx=loading.ctx,
        gpu_layers=loading.gpu_layers,
        draft_gpu_layers=loading.draft_gpu_layers,
        key_type=loading.cache_type_k,
        value_type=loading.cache_type_v,
        flash_attention=loading.flash_attention,
        batch=loading.batch,
        longest_draft=LONGEST_DRAFT,
        shares=loading.tensor_split,
        split_mode=loading.split_mode,
        main_gpu=loading.main_gpu,
        use_mmap=loading.use_mmap and not loading.use_mlock,
    )
