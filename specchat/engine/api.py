"""The interface of engines: what to load, the facts about it, and what an engine can do."""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Self

from specchat.decoding.chunk import Alternative, Chunk
from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import PLAIN
from specchat.errors import EngineFailed
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import Image
from specchat.images.text_only import TEXT_ONLY
from specchat.options.declarations import (
    AUTO_THINK,
    THINK_NUMBER,
    LoadOptions,
)
from specchat.options.option_fields import takes
from specchat.requests.answer_request import (
    AnswerRequest,
    ChatRequest,
    GenerateRequest,
    request_for,
)
from specchat.requests.answer_update import Update
from specchat.requests.progress import ProgressCallback
from specchat.requests.prompt_size import PromptSize

CLOSED = "the engine is closed: load it again"


@dataclass(frozen=True, slots=True)
class Loading(LoadOptions):
    """The pair to load, and the options for it; `draft` None means no draft model."""

    target: Path
    draft: Path | None = None


@dataclass(frozen=True, slots=True)
class LoadRequest(LoadOptions):
    """The keywords of `Engine.load`; `process` loads the pair into a process of its own.

    With workers it has one in any case.
    """

    target: str | Path
    draft: str | Path | None = None
    process: bool = field(default=False, kw_only=True)
    on_progress: ProgressCallback | None = field(default=None, kw_only=True)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """The facts about a loaded engine.

    `speculation_off_reason` says why the engine cannot speculate, `draft_off_reason` why it has no
    usable draft model; None if it can. `draft_kind` is the kind of model beside the target, a key
    of `drafter_registry.MODELS`; empty without one, or for a head that cannot run here. A draft has
    at most `longest_draft` tokens; up to `exact_draft` of them are verified with the bits of plain
    decoding (None: not measured), which makes passes take up to `exact_cost` times as long (None:
    no choice, or not measured). Drafts of answers that must repeat, with a seed or exact, have at
    most `repeatable_draft` tokens (0: no draft repeats; None: not measured). Beside a draft a tree
    has at most `most_branches`; where that is 0, `chains_reason` says why drafts are chains. The
    weights take `target_bytes` and `draft_bytes`, both KV caches together `cache_bytes`; the files
    have `target_file_bytes` and `draft_file_bytes` (0 for a head in the target's file), and the
    target's is called `target_file`. Decoding leaves `idle_processors` to other programs. `gpu`
    names the GPUs that hold layers, empty for none; of their memory all programs together use
    `gpu_used` of `gpu_total` bytes right after loading (0 if unknown). `plan` says which parts are
    on which device, `notices` what else a user should know. `common_tokens` is the share of its
    vocabulary that a draft model has in common with the target, None if the vocabularies are the
    same. `thinking` lists the values of `think` besides "auto", empty if the chat template has no
    such switch. With `keeps_reasoning` the template also sends the reasoning of earlier answers. If
    it `takes_turns`, an answer that was stopped continues after others with the same bits, and
    without reading anything again. If another program runs the model, `served_by` names it and its
    address, and facts known only to that program are missing here. Unless it `chooses_drafter`,
    requests cannot name a drafter, and unless it `ignores_end`, they cannot ask for an answer to
    continue past its end token.
    `knows_costs` says whether the costs of its passes were measured. Up to `at_once` answers can be
    begun together, which is faster than one after the other. `images_off_reason` says why it
    takes no images, empty if it does.
    """

    target: str
    draft: str | None
    context: int
    has_chat_template: bool
    speculation_off_reason: str | None
    draft_off_reason: str | None
    longest_draft: int
    exact_draft: int | None = None
    exact_cost: float | None = None
    repeatable_draft: int | None = 0
    draft_kind: str = ""
    target_bytes: int = 0
    draft_bytes: int = 0
    cache_bytes: int = 0
    target_file_bytes: int = 0
    draft_file_bytes: int = 0
    target_file: str = ""
    idle_processors: int = 0
    gpu: str = ""
    gpu_used: int = 0
    gpu_total: int = 0
    plan: str = ""
    notices: tuple[str, ...] = ()
    common_tokens: float | None = None
    thinking: tuple[str, ...] = ()
    keeps_reasoning: bool = False
    takes_turns: bool = False
    most_branches: int = 0
    chains_reason: str | None = None
    served_by: str = ""
    chooses_drafter: bool = True
    ignores_end: bool = True
    knows_costs: bool = False
    at_once: int = 1
    images_off_reason: str = TEXT_ONLY

    @property
    def takes_images(self) -> bool:
        """Whether requests may have images."""
        return not self.images_off_reason

    def lacks_exactness(self, options: Mapping[str, Any]) -> bool:
        """Return True if these options need exact drafts, and which are exact is not measured."""
        is_exact = options.get("is_exact") or self.speculation_off_reason is not None
        must_repeat = is_exact or options.get("seed") is not None
        return self.repeatable_draft is None and must_repeat and _is_drafted(options)

    def repeats(self, options: Mapping[str, Any]) -> bool:
        """Return True if the same options with a seed give the same text each time."""
        is_plain = self.speculation_off_reason is not None or not _is_drafted(options)
        return is_plain or bool(options.get("is_exact") or self.repeatable_draft)

    def takes_think(self, word: str) -> bool:
        """Return True if the model supports this value of `think`, or has no such switch."""
        if word.isdecimal() and THINK_NUMBER in self.thinking:
            return True
        values = {AUTO_THINK, *self.thinking} - {THINK_NUMBER}
        return not self.thinking or word.lower() in {value.lower() for value in values}


def _is_drafted(options: Mapping[str, Any]) -> bool:
    """Whether answers with these options have drafts, where speculation is possible."""
    return options.get("drafter") != PLAIN and options.get("draft_length") != 0


class Engine(ABC):
    """A loaded pair that answers one request at a time.

    with Engine.load(target="target.gguf", draft="draft.gguf") as engine:
        for chunk in engine.generate("Once upon a time", max_tokens=128):
            print(chunk.text, end="", flush=True)
    """

    facts: EngineFacts
    stats: Statistics = Statistics()
    """The statistics of the answer of `generate`, `chat` or `answer` in progress, or of the last
    one."""

    opener: ClassVar[Callable[[LoadRequest], "Engine"]]
    """Opens an engine for `load`; set by `sharing.loading`, which knows all kinds of engines."""

    _is_closed = _is_busy = False

    @classmethod
    @takes(LoadRequest)
    def load(cls, request: LoadRequest) -> "Engine":
        """Load a pair; `target` and `draft` are GGUF files, the options those of `LoadOptions`.

        Raises ModelNotFound, ModelWontLoad, IncompatibleDraft, InvalidOption or Cancelled.
        """
        return cls.opener(request)

    @takes(GenerateRequest)
    def generate(self, request: GenerateRequest) -> Iterator[Chunk]:
        """Continue a text; yield a chunk per step.

        The options are those of `GenerateOptions`. Closing the iterator stops the answer. Raises
        ContextFull, InvalidOption or EngineFailed.
        """
        return self._chunks(request)

    @takes(ChatRequest)
    def chat(self, request: ChatRequest) -> Iterator[Chunk]:
        """Answer a conversation, rendered by the target's own chat template."""
        return self._chunks(request)

    @abstractmethod
    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Check a request and yield the updates of its answer; later stops apply to it.

        Every update has chunks, the last one the finish; an error is raised. Progress before the
        first one, such as reading the prompt, goes to the request's `on_progress`. Closing the
        generator stops the answer.
        """

    def begin_together(self, requests: Sequence[AnswerRequest]) -> Generator[tuple[int, Update]]:
        """Begin up to `facts.at_once` answers, whose passes are made together.

        Yields the number of an answer, counted from 0, and an update of it, which is empty before a
        part of its prompt is read: that delays the others. An answer that fails has the error in
        its last update. Stopping stops all of them.
        """
        raise NotImplementedError

    def answer(self, messages: Sequence[ChatMessage], **options: Any) -> Iterator[Chunk]:
        """Answer as `chat` does; without a chat template, continue the text of the messages.

        Raises as `request_for` does.
        """
        has_template = self.facts.has_chat_template
        return self._chunks(request_for(messages, has_template=has_template, **options))

    def _chunks(self, request: AnswerRequest) -> Iterator[Chunk]:
        """Check a request and yield the chunks of its answer, whose statistics become `stats`."""
        updates = self.begin(request)

        def follow() -> Iterator[Chunk]:
            self.stats = Statistics()
            with closing(updates):
                for update in updates:
                    self.stats = update.statistics
                    yield from update.chunks

        return follow()

    def answer_as(self, kind: Any, messages: Sequence[ChatMessage], **options: Any) -> Any:
        """Answer as `answer` does, and return the answer as a value of a type.

        `kind` is a msgspec Struct, a dataclass, a TypedDict, an Enum, `list[...]` of one, or a
        pydantic model; or a JSON Schema as a dictionary. Raises InvalidAnswer if the answer was cut
        off or breaks what cannot be enforced, and InvalidOption for a type that cannot be enforced.
        """
        from specchat.structured.value_types import structure_of_type, value_of

        options["structure"] = structure_of_type(kind)
        text = "".join([chunk.text for chunk in self.answer(messages, **options)])
        return value_of(kind, text, self.stats.invalid_reason)

    @abstractmethod
    def stop(self) -> None:
        """Stop the answer in progress, from any thread; it ends with finish "cancelled"."""

    def pause(self) -> None:
        """Stop the answers in progress, which go on later, so that little is lost of them.

        Where the tokens of a pass that is stopped would be lost with many before them, the pass
        ends first. From any thread.
        """
        self.stop()

    def prepare(
        self, on_progress: ProgressCallback | None = None, *, only_exactness: bool = False
    ) -> bool:
        """Measure what is still unknown about the pair; return True if nothing is left to measure.

        It measures the costs of passes, unless `only_exactness` is wanted, and which of them are
        exact; `facts` then include that.
        Without it, answers learn the costs of their own passes, and `exact="on"` drafts nothing. No
        text is forgotten. If the callback returns False, or on `stop`, this ends after a pass at
        most, and the next call continues from there. Raises EngineFailed.
        """
        del on_progress, only_exactness
        return True

    def size(self, request: ChatRequest) -> PromptSize | None:
        """Return how much of the context a conversation would take, None if unknown."""
        del request
        return None

    def image_tokens(self, image: Image) -> list[int]:
        """Return an image as tokens, one for each cell that it takes, and those around it.

        From any thread, also while the engine answers. Raises InvalidOption for bytes that are no
        image, and for a model without a projector.
        """
        raise NotImplementedError

    def score(
        self,
        tokens: Sequence[int],
        count: int,
        *,
        first: int = 0,
        seconds: float = math.inf,
        is_stopped: Callable[[], bool] = lambda: False,
    ) -> list[tuple[Alternative, ...]]:
        """Return the model's likely alternatives to each of these tokens, that token included.

        The first token has none, because nothing precedes it. The memory holds this text
        afterwards. With a limit of some seconds, those of as many tokens from the `first` on are
        returned as are found in about that time, or in as long as it takes to go on with the text.
        Raises ContextFull, InvalidOption, or Cancelled on `stop` and once `is_stopped`.
        """
        raise NotImplementedError

    def keep(self, is_stopped: Callable[[], bool] = lambda: False) -> None:
        """Save the texts in memory on disk, if there is space, so that they need not be read again.

        Ends early once `is_stopped` returns True. Closing does the same, but only as far as it is
        quick.
        """
        del is_stopped

    @abstractmethod
    def forget(self) -> None:
        """Forget all texts in the models' memories and drafters; keep measurements."""

    def has_ended(self) -> bool:
        """Return True if the engine's own process has ended; may be called from any thread."""
        return False

    def check(self) -> None:  # noqa: B027  # there may be no process
        """Raise EngineFailed, which says why, if the engine's own process has ended."""

    def held_bytes(self) -> int:
        """Return the bytes of the host's memory that closing frees at once, 0 if unknown."""
        return 0

    def kill(self) -> None:
        """Kill the engine's own process, from any thread; without one, stop the answer."""
        self.stop()

    @abstractmethod
    def close(self) -> None:
        """Free everything; closing twice does nothing."""

    def _require_open(self) -> None:
        if self._is_closed:
            raise EngineFailed(CLOSED)

    def _require_idle(self) -> None:
        self._require_open()
        if self._is_busy:
            raise EngineFailed("the engine is busy with another answer: stop that one first")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
