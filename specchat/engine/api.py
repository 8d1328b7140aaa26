"""What an engine offers, in this process or in its own, and the one way to get one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from specchat.chat.turn import Turn
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.errors import InvalidOption

__all__ = ["Engine", "EngineFacts", "Loading", "ProgressCallback", "Stage"]

Stage: TypeAlias = Literal["target", "draft", "prompt"]
"""What is in progress: loading the target, loading the draft model, or reading a prompt."""

ProgressCallback: TypeAlias = Callable[[Stage, float], bool | None]
"""Called with what is in progress and the share that is done; False stops loading."""


@dataclass(frozen=True, slots=True)
class Loading:
    """What to load and how. Paths name GGUF files; None for `draft` loads no draft model.

    `ctx` is the context's length in tokens (0: the model's own, at most 8192, less where memory is
    short); `gpu_layers` the number of layers on GPUs (None: as many as fit); `threads` None takes
    the physical cores; `flash_attention` is "auto", "on" or "off"; the cache types are ggml's
    names, "f16" or "q8_0" for instance ("auto": f16, q8_0 where that makes all fit on GPUs).
    Several GPUs share the layers in parts of `tensor_split` (empty: as each has memory), by layers
    or rows as `split_mode` says; with "none" only `main_gpu` is used. `first_guess` is the share
    of drafted tokens, 0 to 1, that others report to be accepted with this pair (None: nobody does).
    """

    target: Path
    draft: Path | None = None
    ctx: int = 0
    gpu_layers: int | None = None
    draft_gpu_layers: int | None = None
    threads: int | None = None
    flash_attention: Literal["auto", "on", "off"] = "auto"
    cache_type_k: str = "auto"
    cache_type_v: str = "auto"
    use_mmap: bool = True
    use_mlock: bool = False
    batch: int = 512
    tensor_split: tuple[float, ...] = ()
    split_mode: Literal["layer", "row", "none"] = "layer"
    main_gpu: int = 0
    first_guess: float | None = None


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What an engine turned out to be once loaded.

    `speculation_off_reason` says in words why there is no speculation, `draft_off_reason` why no
    draft model is used; each is None when there can be. The longest draft is `longest_draft`
    tokens.
    `rollback` names how rejected tokens leave the target's and the draft's memory. The weights of
    each model take `target_bytes` and `draft_bytes`, both memories of the text `cache_bytes`.
    While it decodes `idle_processors` are left to others. `plan` says in words what is where;
    `notices` are for the user: what was done because memory was too short for more.
    """

    target: str
    draft: str | None
    context: int
    has_chat_template: bool
    rollback: tuple[str, ...]
    speculation_off_reason: str | None
    draft_off_reason: str | None
    longest_draft: int
    target_bytes: int = 0
    draft_bytes: int = 0
    cache_bytes: int = 0
    idle_processors: int = 0
    plan: str = ""
    notices: tuple[str, ...] = ()


class Engine(ABC):
    """A loaded pair that answers one request at a time.

    with Engine.load(target="target.gguf", draft="draft.gguf") as engine:
        for chunk in engine.generate("Once upon a time", max_tokens=128):
            print(chunk.text, end="", flush=True)
    """

    facts: EngineFacts
    stats: Statistics
    """The statistics of the answer in progress, or of the last one."""

    @staticmethod
    def load(
        target: str | Path,
        draft: str | Path | None = None,
        *,
        process: bool = False,
        on_progress: ProgressCallback | None = None,
        **options: Any,
    ) -> Engine:
        """Load a pair; the options are the fields of `Loading`. `process` gives it its own process.

        Raises ModelNotFound, ModelWontLoad, IncompatibleDraft, InvalidOption or Cancelled.
        """
        loading = Engine.loading(target, draft, **options)
        if process:
            from specchat.engine.remote_engine import RemoteEngine

            return RemoteEngine(loading, on_progress)
        from specchat.engine.local_engine import LocalEngine

        return LocalEngine(loading, on_progress)

    @staticmethod
    def loading(target: str | Path, draft: str | Path | None = None, **options: Any) -> Loading:
        """Return what to load and how; InvalidOption names an option that nobody knows."""
        known = {option.name for option in fields(Loading)}
        for name in options:
            if name not in known:
                raise InvalidOption(f"there is no option {name!r}: known are {', '.join(known)}")
        return Loading(Path(target), Path(draft) if draft else None, **options)

    @abstractmethod
    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        on_progress: ProgressCallback | None = None,
        **options: Any,
    ) -> Iterator[Chunk]:
        """Continue a text, given as such or as token ids; yield what each step adds.

        The options are the fields of `GenerateOptions`. Closing the iterator stops the answer.
        Raises ContextFull, InvalidOption or EngineFailed.
        """

    @abstractmethod
    def chat(
        self,
        messages: Sequence[Turn],
        *,
        on_progress: ProgressCallback | None = None,
        **options: Any,
    ) -> Iterator[Chunk]:
        """Answer a conversation, rendered by the target's own chat template.

        Where the last message is the assistant's, it is continued.
        """

    @abstractmethod
    def stop(self) -> None:
        """Stop the answer in progress, from any thread; it ends with finish "cancelled"."""

    @abstractmethod
    def forget(self) -> None:
        """Forget every text: the models' memories, and what drafters remember of texts.

        What was measured stays: costs of passes, and how much is accepted.
        """

    def kill(self) -> None:
        """End a process of the engine's own that does not stop, from any thread; else only stop."""
        self.stop()

    @abstractmethod
    def close(self) -> None:
        """Give everything back; closing twice does nothing."""

    def __enter__(self) -> Self:
        """Use the engine in a with statement."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close it."""
        self.close()
