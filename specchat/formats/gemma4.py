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
TOKEN = re.compile(r'<\|"\|>(.*?)<\|"\|>|([{}[\]:])|([^\s:{},]++)\s*+:|([^\s,}\]]+)', re.DOTALL)
"""A string, a bracket or colon, a key with its colon, or another value."""
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
        text, position = _as_json(raw, match.end())
        found.append(Call(match[1], json.loads(text)))
    return found or None


def _as_json(text: str, position: int) -> tuple[str, int]:
    """Return the object that begins at a position as JSON, and where it ends."""
    written, depth = "", 0
    for token in TOKEN.finditer(text, position):
        string, mark, key, other = token.groups()
        if written and written[-1] not in "{[:" and mark not in {"}", "]", ":"}:
            written += ","
        named = f"{json.dumps(key.replace(QUOTE, ''))}:" if key else ""
        written += named or mark or other or json.dumps(string)
        depth += (mark in {"{", "["}) - (mark in {"}", "]"})
        if depth == 0:
            return written, token.end()
    raise ValueError(text)
