"""An engine without a model, for tests of the benchmark."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import fields
from typing import Any

from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import ContextFull
from specchat.formats.chat_message import ChatMessage
from specchat.options.declarations import GenerateOptions
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.requests.answer_update import Update


def given_options(request: AnswerRequest) -> dict[str, Any]:
    """Return the options that differ from the usual ones, and always the drafter."""
    usual = ChatRequest(messages=[])
    named = {each.name: getattr(request, each.name) for each in fields(GenerateOptions)}
    given = {name: value for name, value in named.items() if value != getattr(usual, name)}
    return {"drafter": request.drafter, **given}


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
        """Answer three tokens, and record what was asked."""
        if isinstance(request, ChatRequest):
            self.messages.append(list(request.messages))
            prompt = request.messages[-1]["content"]
        else:
            prompt = str(request.prompt)
        if prompt == self._too_long:
            raise ContextFull("too long")
        self.options.append(given_options(request))
        self.asked.append((prompt, request.drafter, self.options[-1].get("temperature", -1.0)))
        return self._answer(request)

    def _answer(self, request: AnswerRequest) -> Generator[Update]:
        rate = 10.0 if request.drafter == "none" else 15.0
        statistics = Statistics(generated_tokens=3, decode_s=3 / rate, steps=3)
        is_stopped = 0 < self._stopped_from < len(self.asked)
        finish: Finish = "cancelled" if is_stopped else "length"
        yield Update((Chunk("abc", (1, 2, 3), finish=finish),), statistics, finish=finish)

    def stop(self) -> None:
        """Has stopped already."""

    def forget(self) -> None:
        """Note how many answers were given before."""
        self.forgotten.append(len(self.asked))

    def close(self) -> None:
        """Do nothing."""
