"""MiniMax M3: each tag of a call has a mark before it; an argument's tag is its name.

<mm:think>reasoning</mm:think>answer]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name="NAME">]<]minimax[>[<KEY>value]<]minimax[>[</KEY>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from specchat.formats.call_format import (
    KEY_AGAIN,
    ArgumentText,
    Call,
    CallFormat,
    CallText,
    Tools,
    for_types,
)
from specchat.formats.call_parsers import argument_types, sections, typed_value
from specchat.formats.chat_format import ChatFormat
from specchat.formats.marks import Mark, usual_marks

SPACE = "]<]minimax[>["
CALL = re.compile(rf'{re.escape(SPACE)}<invoke name="(?P<name>[^"<]+)">')
TAG = re.compile(r"<(?P<end>/?)(?P<key>[\w.-]+)>")
ITEM = "item"
CALL_BEGIN = f'\n{SPACE}<invoke name="'
CALLED = CallText(
    begin=f"{SPACE}<tool_call>{CALL_BEGIN}",
    between=f"{SPACE}</invoke>{CALL_BEGIN}",
    end=f"{SPACE}</invoke>\n{SPACE}</tool_call>",
    arguments=ArgumentText(
        first=f'">{SPACE}<',
        following=f"{SPACE}<",
        none='">',
        before=for_types(">"),
        after=for_types(f"{SPACE}</{KEY_AGAIN}>"),
    ),
)
"""Objects and arrays as arguments are JSON here, which is read just as well as tags in tags."""


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with calls."""
    calls = CallFormat(f"{SPACE}<tool_call>", f"{SPACE}</tool_call>", CALLED, read_calls)
    with_calls = replace(form, calls=calls)
    marks = dict(usual_marks(with_calls))
    marks["start"] = (*marks["start"], Mark("</mm:think>", "answer"))  # closed at once
    again = Mark("<mm:think>", "reasoning")  # repeated although the prompt ends with it
    marks["reasoning"] = (*marks["reasoning"], again)
    return replace(with_calls, marks=marks)


def read_calls(raw: str, tools: Tools) -> list[Call] | None:
    """Return the calls in a text. Raises ValueError if tags are not nested properly."""
    found = []
    for opening, body in sections(raw, CALL, f"{SPACE}</invoke>"):
        types = argument_types(tools, opening["name"])
        arguments = dict(_members(iter(body.split(SPACE)[1:]), types))
        found.append(Call(opening["name"], arguments))
    return found or None


def _members(
    pieces: Iterator[str], types: Mapping[str, Any], outer: str = ""
) -> list[tuple[str, Any]]:
    """Return the tags up to the end of the outer one with their values.

    For `<a>1</a><b><item>2</item></b>`, they are `("a", 1)` and `("b", [2])`.
    """
    found: list[tuple[str, Any]] = []
    for piece in pieces:
        tag = TAG.match(piece)
        if tag is None or (tag["end"] and tag["key"] != outer):
            raise ValueError(piece)
        if tag["end"]:
            return found
        inner = _members(pieces, {}, tag["key"])
        if not inner:
            value = typed_value(piece[tag.end() :], types.get(tag["key"]))
        elif all(key == ITEM for key, _ in inner):
            value = [member for _, member in inner]
        else:
            value = dict(inner)
        found.append((tag["key"], value))
    if outer:
        raise ValueError(outer)
    return found
