"""An engine without a model, for tests of the benchmark."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from typing import Any

from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import ContextFull
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.progress import ProgressCallback
from specchat.requests.update import Update


class FakeEngine(Engine):
    """Answers at once and records its requests; "auto" is 1.5 times as fast as plain decoding."""

    def __init__(
        self, too_long: str = "", *, stopped_from: int = 0, has_chat_template: bool = False
    ) -> None:
        """Set a prompt that is too long, and the number of the first answer that is stopped."""
        self.options: list[dict[str, Any]] = []
        self.messages: list[list[ChatMessage]] = []
        self.asked: list[tuple[str, str, float]] = []
        self.forgotten: list[int] = []
        self.stats = Statistics()
        self.facts = EngineFacts("t", None, 512, has_chat_template, None, None, 32)
        self._too_long = too_long
        self._stopped_from = stopped_from

    def begin(self, request: AnswerRequest) -> Generator[Update]:
        """Do nothing: the methods that call this are replaced."""
        raise NotImplementedError

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        on_progress: ProgressCallback | None = None,
        **options: Any,
    ) -> Iterator[Chunk]:
        """Answer three tokens."""
        if prompt == self._too_long:
            raise ContextFull("too long")
        self.options.append(options)
        self.asked.append((str(prompt), options["drafter"], options.get("temperature", -1.0)))
        rate = 10.0 if options["drafter"] == "none" else 15.0
        self.stats = Statistics(generated_tokens=3, decode_s=3 / rate, steps=3)
        is_stopped = 0 < self._stopped_from < len(self.asked)
        yield Chunk("abc", (1, 2, 3), finish="cancelled" if is_stopped else "length")

    def chat(
        self,
        messages: Sequence[ChatMessage],
        *,
        on_progress: ProgressCallback | None = None,
        **options: Any,
    ) -> Iterator[Chunk]:
        """Answer the last message and record all of them."""
        self.messages.append(list(messages))
        return self.generate(messages[-1]["content"], on_progress=on_progress, **options)

    def stop(self) -> None:
        """Has stopped already."""

    def forget(self) -> None:
        """Note how many answers were given before."""
        self.forgotten.append(len(self.asked))

    def close(self) -> None:
        """Do nothing."""
