"""Loading a pair as planned, or as the next smaller plan says where memory is short."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from specchat.engine.api import Loading, ProgressCallback, Stage
from specchat.errors import OutOfMemory
from specchat.gguf.reader import read_whole_model
from specchat.llama.context import Context
from specchat.llama.context_options import ModelOptions
from specchat.llama.device_list import list_devices
from specchat.llama.library import AbortFlag
from specchat.llama.model import LoadProgress, Model
from specchat.llama.tokenizer import require_compatible
from specchat.options import LONGEST_DRAFT, LoadOptions, values
from specchat.planning.device import Device, gpus_of
from specchat.planning.host_resources import num_processors
from specchat.planning.machine import keep_gpus
from specchat.planning.memory import Sizes
from specchat.planning.plan import Plan, Planner

__all__ = ["LoadedPair", "load_pair"]


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
    target = Sizes(read_whole_model(loading.target))
    draft = Sizes(read_whole_model(loading.draft)) if loading.draft else None
    devices = _devices()
    gpus = gpus_of(devices)
    keep_gpus(gpus)
    planner = Planner(target, draft, devices, loading)
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

    def _options(self, stage: Stage) -> ModelOptions:
        """Return how to load one model of the pair.

        The draft model evaluates token by token, so states of the last pass are of no use to it.
        """
        loading, plan, is_draft = self._loading, self._plan, stage == "draft"
        planned = {
            "ctx": plan.ctx,
            "gpu_layers": plan.draft_gpu_layers if is_draft else plan.gpu_layers,
            "cache_type_k": plan.key_type,
            "cache_type_v": plan.value_type,
            "tensor_split": plan.shares,
            "rollback_length": 0 if is_draft else LONGEST_DRAFT,
            "is_repacked": plan.is_repacked,
        }
        return ModelOptions(**{**values(loading, LoadOptions), **planned})
