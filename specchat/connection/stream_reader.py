"""Reads what each event of a stream adds to an answer: text, reasoning, tool calls, and its end."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from typing import Any

from specchat.decoding.chunk import Chunk, Finish, Piece, ToolCall
from specchat.drafter_registry import TARGET
from specchat.formats.answer_reader import AnswerReader, Part
from specchat.formats.chat_format import ChatFormat
from specchat.formats.marks import usual_marks

DONE = "[DONE]"
FINISHES: dict[str, Finish] = {
    "stop": "stop",
    "tool_calls": "stop",
    "function_call": "stop",
    "content_filter": "stop",
    "length": "length",
}
"""How an answer ended, by `finish_reason`; any other value counts as the model's own end."""
REASONING_FIELDS = ("reasoning_content", "reasoning", "thinking")
ABORTED = frozenset({"abort", "error", "cancelled"})
"""Reasons for which an answer is not complete."""
CLOSING = "</think>"
MOST_CALLS = 128
SURROGATE = re.compile(r"[\ud800-\udfff]")
"""A half of a character, which JSON can hold and UTF-8 cannot."""


@dataclass(slots=True)
class _Call:
    """A tool call in the making."""

    id: str = ""
    name: str = ""
    arguments: str = ""


def _tag_reader() -> AnswerReader:
    """Return a reader that splits off the reasoning where a server leaves its tags in the text."""
    form = ChatFormat("")
    return AnswerReader(replace(form, marks=usual_marks(form)), reads_calls=False)


class Repetition:
    """Removes the beginning of an answer that a server repeats when it continues one."""

    def __init__(self, begun: str) -> None:
        self._begun, self._held = begun, ""

    def rest(self, text: str) -> str:
        """Return the next part of a text without the repetition; nothing while it may go on."""
        if not self._begun:
            return text
        self._held += text
        if self._begun.startswith(self._held) and len(self._held) < len(self._begun):
            return ""
        new, self._held = self._held.removeprefix(self._begun), ""
        self._begun = ""
        return new

    def end(self) -> str:
        """Return what is held back."""
        held, self._held = self._held, ""
        return held


@dataclass(slots=True)
class StreamReader:
    """Reads one answer of the chat API, or of the text API with `is_chat` false.

    `begun` is the text of the answer so far, if the server repeats it.
    """

    is_chat: bool = True
    begun: InitVar[str] = ""
    finish: Finish | None = None
    stop_string: str = ""
    has_closing_tag: bool = False
    """Whether a tag that ends reasoning is in the answer."""
    is_aborted: bool = False
    is_in_call: bool = False
    """Whether the last event was a part of a tool call."""
    num_broken_calls: int = 0
    """Calls whose arguments cannot be read."""
    _calls: dict[int, _Call] = field(default_factory=dict)
    _tags: AnswerReader = field(default_factory=_tag_reader)
    _repetition: Repetition = field(init=False)
    _recent: str = ""
    """The end of the answer so far, where a tag may have begun."""

    def __post_init__(self, begun: str) -> None:
        """Expect a repetition of the answer so far, if the server repeats it."""
        self._repetition = Repetition(begun)

    def read(self, event: Mapping[str, Any]) -> Chunk | None:
        """Return what an event adds; None if it adds no text."""
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, Mapping):
            return None
        if isinstance(reason := choice.get("finish_reason"), str):
            self.finish = FINISHES.get(reason, "stop")
            self.is_aborted = reason in ABORTED
            stop = choice.get("stop_reason")
            self.stop_string = stop if isinstance(stop, str) else ""
        if not self.is_chat:
            return self._chunk([("answer", _text(choice.get("text")))])
        delta = choice.get("delta", choice.get("message"))
        if not isinstance(delta, Mapping):
            return None
        calls = delta.get("tool_calls")
        self.is_in_call = bool(calls)
        self._take_calls(calls)
        reasoning = next(
            (text for name in REASONING_FIELDS if (text := _text(delta.get(name)))), ""
        )
        content = self._repetition.rest(_text(delta.get("content")))
        return self._chunk([("reasoning", reasoning), *self._tags.read(content)])

    def end(self) -> Chunk | None:
        """Return what was held back, and the tool calls; None if there is nothing."""
        calls = tuple(
            ToolCall(call.name, call.arguments or "{}", call.id)
            for _, call in sorted(self._calls.items())
            if call.name and _is_json(call.arguments or "{}")
        )
        self.num_broken_calls = len(self._calls) - len(calls)
        rest = [*self._tags.read(self._repetition.end()), *self._tags.finish()]
        chunk = self._chunk(rest) or Chunk("")
        return chunk._replace(tool_calls=calls) if calls or chunk.pieces else None

    def _chunk(self, parts: Sequence[Part]) -> Chunk | None:
        reasoning, answer = (
            "".join(text for kind, text in parts if kind == wanted)
            for wanted in ("reasoning", "answer")
        )
        pieces = tuple(Piece(text, TARGET.name, kind) for kind, text in parts if text)
        recent = self._recent + answer
        self.has_closing_tag |= CLOSING in recent
        self._recent = recent[-len(CLOSING) :]
        return Chunk(answer, reasoning=reasoning, pieces=pieces) if pieces else None

    def _take_calls(self, calls: object) -> None:
        for call in calls if isinstance(calls, list) else ():
            if not isinstance(call, Mapping):
                continue
            index = call.get("index", len(self._calls))
            known_id = self._calls[index].id if index in self._calls else ""
            if known_id and _text(call.get("id")) not in {"", known_id}:  # all have the same index
                index = len(self._calls)
            if not isinstance(index, int) or not 0 <= index < MOST_CALLS:
                continue
            collected = self._calls.setdefault(index, _Call())
            function = call.get("function")
            collected.id = collected.id or _text(call.get("id"))
            if isinstance(function, Mapping):
                collected.name = collected.name or _text(function.get("name"))
                collected.arguments += _text(function.get("arguments"))


def _text(value: object) -> str:
    """Return a text, or the texts of a list of parts; "" for anything else."""
    if isinstance(value, str):
        return SURROGATE.sub("\ufffd", value)
    if isinstance(value, list):
        return "".join(_text(part.get("text")) for part in value if isinstance(part, Mapping))
    return ""


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True
