"""What an engine offers, in this process or in its own, and the one way to get one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

from specchat.chat.turn import Turn
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.options import GenerateOptions, LoadOptions, takes, values

__all__ = [
    "ChatRequest",
    "Engine",
    "EngineFacts",
    "GenerateRequest",
    "LoadRequest",
    "Loading",
    "ProgressCallback",
    "Stage",
]

Stage: TypeAlias = Literal["target", "draft", "prompt"]
"""What is in progress: loading the target, loading the draft model, or reading a prompt."""

ProgressCallback: TypeAlias = Callable[[Stage, float], bool | None]
"""Called with what is in progress and the share that is done; False stops loading."""


@dataclass(frozen=True, slots=True)
class Loading(LoadOptions):
    """What to load, and how. Without `draft` there is no draft model."""

    target: Path
    draft: Path | None = None


@dataclass(frozen=True, slots=True)
class LoadRequest(LoadOptions):
    """The keywords of `Engine.load`; `process` loads the pair into a process of its own."""

    target: str | Path
    draft: str | Path | None = None
    process: bool = field(default=False, kw_only=True)
    on_progress: ProgressCallback | None = field(default=None, kw_only=True)

    @property
    def loading(self) -> Loading:
        """What to load, and how."""
        draft = Path(self.draft) if self.draft else None
        return Loading(Path(self.target), draft, **values(self, LoadOptions))


@dataclass(frozen=True, slots=True)
class GenerateRequest(GenerateOptions):
    """The keywords of `Engine.generate`; `prompt` is a text or token ids."""

    prompt: str | Sequence[int]
    on_progress: ProgressCallback | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class ChatRequest(GenerateOptions):
    """The keywords of `Engine.chat`; a last message of the assistant's is continued."""

    messages: Sequence[Turn]
    on_progress: ProgressCallback | None = field(default=None, kw_only=True)


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

    @classmethod
    @takes(LoadRequest)
    def load(cls, request: LoadRequest) -> Engine:
        """Load a pair: `target` and `draft` are GGUF files, the options those of `LoadOptions`.

        Raises ModelNotFound, ModelWontLoad, IncompatibleDraft, InvalidOption or Cancelled.
        """
        if request.process:
            from specchat.engine.remote_engine import RemoteEngine

            return RemoteEngine(request.loading, request.on_progress)
        from specchat.engine.local_engine import LocalEngine

        return LocalEngine(request.loading, request.on_progress)

    @staticmethod
    def loading(target: str | Path, draft: str | Path | None = None, **options: Any) -> Loading:
        """Return what to load and how; InvalidOption names an option that nobody knows."""
        return LoadRequest.of({"target": target, "draft": draft, **options}).loading

    @abstractmethod
    @takes(GenerateRequest)
    def generate(self, request: GenerateRequest) -> Iterator[Chunk]:
        """Continue a text; yield what each step adds.

        The options are those of `GenerateOptions`. Closing the iterator stops the answer. Raises
        ContextFull, InvalidOption or EngineFailed.
        """

    @abstractmethod
    @takes(ChatRequest)
    def chat(self, request: ChatRequest) -> Iterator[Chunk]:
        """Answer a conversation, rendered by the target's own chat template."""

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
