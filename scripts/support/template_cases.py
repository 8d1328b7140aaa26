"""The conversations and texts that chat templates are checked with, and how results are compared.

What llama-server makes of them is recorded in RECORD, so that the tests need no server.
"""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

from specchat.formats.chat_message import ChatMessage

TEXTS = Path(__file__).with_name("template_texts.toml")
RECORD = Path(__file__).with_name("llama_server_templates.json")

BOS = "<s>"
AUTO = "auto"
QUESTION: list[ChatMessage] = [{"role": "user", "content": "How much is seven and five?"}]
CONVERSATION: list[ChatMessage] = [
    {"role": "system", "content": "Answer in one line, and name your sources."},
    {"role": "user", "content": "Which river runs through Vienna?"},
    {"role": "assistant", "content": "The Danube (see any map of Austria)."},
    {"role": "user", "content": "And through Graz?"},
]
TOOL_CALL: dict[str, Any] = {
    "id": "call00001",
    "type": "function",
    "function": {"name": "find_trains", "arguments": '{"origin": "Bern", "seats": 2}'},
}
RESULT: list[ChatMessage] = [
    *QUESTION,
    {"role": "assistant", "content": "", "reasoning_content": "Trains.", "tool_calls": [TOOL_CALL]},
    {
        "role": "tool",
        "content": "There are two.",
        "tool_call_id": "call00001",
        "name": "find_trains",
    },
]
REASONED: list[ChatMessage] = [
    *QUESTION,
    {"role": "assistant", "content": "It is twelve.", "reasoning_content": "Seven and five."},
    {"role": "user", "content": "And six and five?"},
]
DATES = ("%Y-%m-%d", "%d %b %Y", "%b %d %Y", "%B %d, %Y")
"""How templates write today's date."""


@dataclass(frozen=True, slots=True)
class Asked:
    """A conversation to render, at a word of `--think`, and whether tools are offered."""

    messages: Sequence[ChatMessage]
    think: str = AUTO
    has_tools: bool = False
    needed: tuple[str, ...] = ()
    """Texts without which a prompt is not the conversation."""

    def lacking(self, prompt: str) -> list[str]:
        """Return what a prompt should have and has not."""
        return [each for each in self.needed if each not in prompt]


HISTORIES = {
    "tools": Asked(QUESTION, has_tools=True, needed=("seven and five", "book_room")),
    "tool result": Asked(RESULT, has_tools=True, needed=("Trains.", "Bern", "Two.")),
    "earlier reasoning": Asked(REASONED, needed=("It is twelve.",)),
}
"""Prompts that are compared at the template's usual level of thinking."""


@dataclass(slots=True)
class Message:
    """An answer in its parts; `calls` has names and arguments."""

    reasoning: str = ""
    answer: str = ""
    calls: list[list[Any]] = field(default_factory=list)

    def trimmed(self) -> tuple[str, str, list[list[Any]]]:
        """Return the parts without white space at their edges."""
        return self.reasoning.strip(), self.answer.strip(), self.calls


@dataclass(frozen=True, slots=True)
class Text:
    """What a model utters after a prompt with this word of `--think`."""

    kind: str
    think: str
    text: str

    @property
    def has_tools(self) -> bool:
        """Whether the prompt offers tools."""
        return "call" in self.kind

    @property
    def beginnings(self) -> list[str]:
        """The text up to each of its characters."""
        return [self.text[:length] for length in range(1, len(self.text) + 1)]


@dataclass(frozen=True, slots=True)
class Family:
    """The texts of a template, its switches by the words of `--think`, and the end of a turn.

    `control` are further tokens that llama.cpp looks for to know what ends a turn.
    """

    eos: str
    texts: tuple[Text, ...]
    switches: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    control: tuple[str, ...] = ()

    @property
    def prompts(self) -> Mapping[str, Asked]:
        """What is rendered, by words of `--think` and names of HISTORIES."""
        needed = tuple(each["content"] for each in CONVERSATION)
        thinks = (AUTO, *self.switches)
        words = {think: Asked(CONVERSATION, think, needed=needed) for think in thinks}
        return words | HISTORIES

    def variables(self, think: str) -> Mapping[str, Any]:
        """Return the template's variables for a word of `--think`."""
        return {} if think == AUTO else self.switches[think]


@cache
def _written() -> dict[str, Any]:
    return tomllib.loads(TEXTS.read_text("utf-8"))


@cache
def families() -> Mapping[str, Family]:
    """Return the family of each template by its name."""
    fixed = {"reasoning": _written()["reasoning"], "answer": _written()["answer"]}
    found = dict[str, Family]()
    for each in _written()["families"]:
        names = {**fixed, "one": each.get("one", ""), "two": each.get("two", "")}
        texts = tuple(
            Text(kind, think, _filled(text, names)) for kind, think, text in each["texts"]
        )
        control = tuple(each.get("control", ()))
        family = Family(each["eos"], texts, each.get("switches", {}), control)
        found |= dict.fromkeys(each["templates"], family)
    return found


def _filled(text: str, names: Mapping[str, str]) -> str:
    return re.sub(r"\{(reasoning|answer|one|two)\}", lambda found: names[found[1]], text)


@cache
def tools() -> list[dict[str, Any]]:
    """Return the tools that are offered, as OpenAI has them."""
    kinds = {str: "string", int: "integer"}
    found = []
    for call in _written()["calls"]:
        properties = {
            key: {"type": kinds[type(value)], "description": key}
            for key, value in call["arguments"].items()
        }
        parameters = {"type": "object", "properties": properties, "required": list(properties)}
        function = {"name": call["name"], "description": "Does it.", "parameters": parameters}
        found.append({"type": "function", "function": function})
    return found


def ideal(kind: str) -> Message:
    """Return what a text of a kind means."""
    number = 0 if "call" not in kind else 2 if kind == "calls" else 1
    calls = [[call["name"], call["arguments"]] for call in _written()["calls"][:number]]
    has_answer = kind in {"plain", "reasoned", "call after text"}
    reasoning = _written()["reasoning"] if "reasoned" in kind else ""
    return Message(reasoning, _written()["answer"] if has_answer else "", calls)


def without_date(text: str, now: datetime) -> str:
    """Return a prompt with today's date replaced, in whatever way it is written."""
    for written in DATES:
        text = text.replace(now.strftime(written), "<today>")
    return text


def digest(text: str) -> str:
    """Return the SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def packed(growing: Iterable[Message]) -> str:
    """Return how an answer grew with each character of its text, in few letters.

    `growing` yields the answer after each. `r` and `a` say that one character was added to
    the reasoning or the answer, `R` and `A` several, and `.` none. A number repeats a letter, or is
    how many were added; `&` joins what one character of the text added to both.
    """
    steps, before = list[str](), (0, 0)
    for message in growing:
        lengths = len(message.reasoning), len(message.answer)
        grown = (lengths[0] - before[0], lengths[1] - before[1])
        before = lengths
        if min(grown) < 0:
            raise ValueError(f"an answer shrank by {grown}: {message}")
        steps.append("&".join(_letter(*each) for each in zip("ra", grown, strict=True) if each[1]))
    runs = [(step or ".", len(list(equal))) for step, equal in groupby(steps)]
    return " ".join(f"{number}{step}" if len(step) == 1 else step * number for step, number in runs)


def _letter(letter: str, number: int) -> str:
    return letter if number == 1 else f"{number}{letter.upper()}"


def unpacked(steps: str, whole: Message) -> Iterator[Message]:
    """Yield the answer after each character, from what `packed` returned."""
    lengths = {"r": 0, "a": 0}
    for number, letter, joined in re.findall(r"(\d*)([raRA.])(&?)", steps):
        for _ in range(1 if letter.isupper() else int(number or 1)):
            if letter != ".":
                lengths[letter.lower()] += int(number or 1) if letter.isupper() else 1
            if not joined:
                reasoning, answer = whole.reasoning[: lengths["r"]], whole.answer[: lengths["a"]]
                yield Message(reasoning, answer)
