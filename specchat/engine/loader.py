"""Loading a pair by its plan, or by a smaller plan if memory is short."""

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from specchat.engine.api import EngineFacts, Loading, ProgressCallback, Stage
from specchat.errors import OutOfMemory
from specchat.gguf.reader import read_whole_model
from specchat.llama.context import Context
from specchat.llama.device_list import list_devices
from specchat.llama.library import AbortFlag
from specchat.llama.model import Model, ModelOptions
from specchat.llama.tokenizer import require_compatible
from specchat.options import LONGEST_DRAFT, LoadOptions, values
from specchat.planning.device import Device, gpus_of, keep_gpus
from specchat.planning.host_resources import num_cores, num_processors
from specchat.planning.memory import Sizes
from specchat.planning.plan import Plan
from specchat.planning.planner import Planner


@dataclass(frozen=True, slots=True)
class LoadedPair:
    """A pair with its contexts and the plan it was loaded by.

    `draft` is None if there is none, or no memory for it; `gpus` names this machine's GPUs.
    """

    loading: Loading
    plan: Plan
    notices: tuple[str, ...]
    gpus: tuple[str, ...]
    target: Model
    context: Context
    draft: Model | None
    draft_context: Context | None

    @property
    def facts(self) -> EngineFacts:
        """The facts about the loaded pair."""
        contexts = [context for context in (self.context, self.draft_context) if context]
        off = _no_rollback_reason(self.target, self.context)
        num_threads = self.loading.threads or num_cores()
        num_used = 1 if self.plan.is_on_gpus else num_threads  # with GPUs, one thread waits
        return EngineFacts(
            target=self.target.name,
            draft=self.draft.name if self.draft else None,
            context=self.context.capacity,
            has_chat_template=self.target.chat_template is not None,
            rollback=tuple([context.rollback_kind.name for context in contexts]),
            speculation_off_reason=off,
            draft_off_reason=off or self._draft_off_reason(),
            longest_draft=self.context.longest_draft,
            target_bytes=self.target.num_bytes,
            draft_bytes=self.draft.num_bytes if self.draft else 0,
            cache_bytes=sum(context.num_bytes for context in contexts),
            idle_processors=max(0, num_processors() - num_used),
            plan=self.plan.summary,
            notices=self.notices,
        )

    def _draft_off_reason(self) -> str | None:
        if self.draft and self.draft_context:
            return _no_rollback_reason(self.draft, self.draft_context)
        missing = "not enough memory for the draft model"
        return missing if self.loading.draft else "no draft model is loaded"


def load_pair(
    loading: Loading,
    abort: AbortFlag,
    stack: ExitStack,
    on_progress: ProgressCallback | None = None,
) -> LoadedPair:
    """Load a pair onto this machine's devices; `stack` closes what is loaded.

    Raises as `Engine.load` does; OutOfMemory if even the smallest plan is too large.
    """
    target = Sizes(read_whole_model(loading.target))
    draft = Sizes(read_whole_model(loading.draft)) if loading.draft else None
    devices = _devices()
    gpus = gpus_of(devices)
    keep_gpus(gpus)
    planner = Planner(target, draft, devices, loading)
    plan = planner.first()
    notices = (plan.notice,) if plan.notice else ()
    while True:
        try:
            with ExitStack() as attempt:
                loader = _Loader(loading, plan, abort, on_progress, attempt)
                models = loader.load(target, draft)
                stack.push(attempt.pop_all())
                names = tuple([gpu.label for gpu in gpus])
                return LoadedPair(loading, plan, notices, names, *models)
        except OutOfMemory:
            smaller = planner.after(plan)
            if smaller is None:
                raise
            plan = smaller
            notices = (f"there was less memory than expected, so: {plan.summary}",)


def _devices() -> list[Device]:
    """Return this machine's devices; tests replace it."""
    return list_devices()


@dataclass(frozen=True, slots=True)
class _Loader:
    """Loads a pair by one plan; `stack` closes what is loaded."""

    loading: Loading
    plan: Plan
    abort: AbortFlag
    on_progress: ProgressCallback | None
    stack: ExitStack

    def load(
        self, target_sizes: Sizes, draft_sizes: Sizes | None
    ) -> tuple[Model, Context, Model | None, Context | None]:
        """Load the pair; OutOfMemory if a device has less memory than the plan needs."""
        target = self._model(self.loading.target, "target", target_sizes)
        draft = None
        if self.loading.draft and draft_sizes and self.plan.draft_gpu_layers is not None:
            draft = self._model(self.loading.draft, "draft", draft_sizes)
            require_compatible(target.vocabulary, draft.vocabulary)
        context = self._context(target, "target")
        return target, context, draft, self._context(draft, "draft") if draft else None

    def _model(self, path: Path, stage: Stage, sizes: Sizes) -> Model:
        def on_loaded(share: float) -> bool:
            return self.on_progress is None or self.on_progress(stage, share) is not False

        return self.stack.enter_context(Model(path, self._options(stage), on_loaded, sizes))

    def _context(self, model: Model, stage: Stage) -> Context:
        return self.stack.enter_context(Context(model, self._options(stage), self.abort))

    def _options(self, stage: Stage) -> ModelOptions:
        """Return how to load one model of the pair.

        The draft model evaluates one token per pass, so it needs no states of the last pass.
        """
        loading, plan, is_draft = self.loading, self.plan, stage == "draft"
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


def _no_rollback_reason(model: Model, context: Context) -> str | None:
    """Return why a model cannot be used for speculation; None if it can."""
    if context.rollback_kind.can_speculate:
        return None
    return f"tokens cannot be removed from the memory of {model.name}"
