"""Gemma 4: reasoning in a channel, and calls whose strings have marks instead of quotes.

<|channel>thought
reasoning<channel|>answer<|tool_call>call:NAME{key:<|"|>text<|"|>,other:1}<tool_call|>
"""

import json
import re
from dataclasses import replace
from typing import Any

from specchat.formats.call_format import (
    ArgumentText,
    Call,
    CallFormat,
    CallText,
    Tools,
    for_types,
)
from specchat.formats.call_parsers import NAME_PATTERN
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.marks import Mark, Marks

CALL = re.compile(rf"(?<![\w.:-])call:\s*+({NAME_PATTERN})\s*+(?=\{{)")
TAKES_RESULTS = "OpenAI Chat Completions:"
"""A comment that identifies newer templates, which take tool results as messages."""
QUOTE = '<|"|>'
KEY = re.compile(r"\s*([^\s:{},]+)\s*:\s*")
BARE = re.compile(r"[^\s,}\]]+")
THOUGHT = (Mark("<|channel>thought", "reasoning"), Mark("<|channel>", "answer"))
CALLING = Mark("<|tool_call>", "call")
MARKS: Marks = {
    "start": (*THOUGHT, CALLING),
    "reasoning": (Mark("<channel|>", "answer"),),
    "answer": (*THOUGHT, CALLING, Mark("<channel|>", "answer")),
    "call": (Mark("<tool_call|>", "answer"),),
}
BEGIN, END = "<|tool_call>call:", "<tool_call|>"
CALLED = CallText(
    begin=BEGIN,
    between=f"}}{END}{BEGIN}",
    end=f"}}{END}",
    arguments=ArgumentText(
        first="{",
        following=",",
        none="{",
        before={**for_types(":"), "string": f":{QUOTE}"},
        after={**for_types(""), "string": QUOTE},
        is_sorted=True,
        is_nested=True,
    ),
)


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with the thought channel."""
    return replace(
        form,
        marks=MARKS,
        reasoning=Wrapping("<|channel>thought\n", "<channel|>"),
        content=Wrapping(),
        calls=CallFormat("<|tool_call>", END, CALLED, read_calls),
        arrange=None if TAKES_RESULTS in form.template else _arrange,
    )


def _arrange(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Merge tool results, and the answer after them, into the message with the calls.

    The first templates of this family expect them there.
    """
    found: list[dict[str, Any]] = []
    for message in messages:
        caller = found[-1] if found and found[-1].get("tool_calls") else None
        if caller and message["role"] == "tool":
            calls, results = caller["tool_calls"], caller.setdefault("tool_responses", [])
            name = calls[min(len(results), len(calls) - 1)]["function"]["name"]
            results.append({"name": name, "response": _parsed(message["content"])})
        elif caller and message["role"] == "assistant" and not message.get("tool_calls"):
            caller["content"] = message["content"]
        else:
            found.append(message)
    return found


def _parsed(content: str) -> Any:
    """Return a tool's result, parsed if it is JSON."""
    try:
        return json.loads(content)
    except ValueError:
        return content


def read_calls(raw: str, _: Tools) -> list[Call] | None:
    """Return the calls in a text. Raises ValueError if it cannot be parsed."""
    found, position = [], 0
    while match := CALL.search(raw, position):  # the next call is after the arguments of this one
        arguments, position = _value(raw, match.end())
        found.append(Call(match[1], arguments))
    return found or None


def _value(text: str, position: int) -> tuple[Any, int]:
    """Return the value that begins at a position, and where it ends."""
    if text.startswith(QUOTE, position):
        end = text.index(QUOTE, position + len(QUOTE))
        return text[position + len(QUOTE) : end], end + len(QUOTE)
    if text.startswith("{", position):
        return _members(text, position + 1)
    if text.startswith("[", position):
        return _elements(text, position + 1)
    bare = BARE.match(text, position)
    if bare is None:
        raise ValueError(text)
    return json.loads(bare[0]), bare.end()


def _members(text: str, position: int) -> tuple[dict[str, Any], int]:
    found: dict[str, Any] = {}
    while not text.startswith("}", _skip_separators(text, position)):
        key = KEY.match(text, _skip_separators(text, position))
        if key is None:
            raise ValueError(text)
        found[key[1].replace(QUOTE, "")], position = _value(text, key.end())
    return found, _skip_separators(text, position) + 1


def _elements(text: str, position: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while not text.startswith("]", _skip_separators(text, position)):
        value, position = _value(text, _skip_separators(text, position))
        found.append(value)
    return found, _skip_separators(text, position) + 1


def _skip_separators(text: str, position: int) -> int:
    """Return the next position after commas and white space; raises ValueError at the end."""
    while position < len(text) and (text[position].isspace() or text[position] == ","):
        position += 1
    if position >= len(text):
        raise ValueError(text)
    return position
