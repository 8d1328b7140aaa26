"""MiniMax M3: each tag of a call has a mark before it; an argument's tag is its name.

<mm:think>reasoning</mm:think>answer]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name="NAME">]<]minimax[>[<KEY>value]<]minimax[>[</KEY>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>
"""

import re
from dataclasses import dataclass, field, replace
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
from specchat.formats.call_reading import argument_types, sections, typed_value
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


@dataclass(slots=True)
class _Element:
    """A tag with its text or its inner tags."""

    key: str
    text: str = ""
    inside: "list[_Element]" = field(default_factory=list)

    def value(self, kind: Any = None) -> Any:
        """Return a list for <item> tags, an object for other inner tags, or the parsed text."""
        if not self.inside:
            return typed_value(self.text, kind)
        if all(each.key == ITEM for each in self.inside):
            return [each.value() for each in self.inside]
        return {each.key: each.value() for each in self.inside}


def read_calls(raw: str, tools: Tools) -> list[Call] | None:
    """Return the calls in a text. Raises ValueError if tags are not nested properly."""
    found = []
    for opening, body in sections(raw, CALL, f"{SPACE}</invoke>"):
        types = argument_types(tools, opening["name"])
        arguments = {
            element.key: element.value(types.get(element.key)) for element in _elements(body)
        }
        found.append(Call(opening["name"], arguments))
    return found or None


def _elements(body: str) -> list[_Element]:
    """Return the outermost tags of a text: for `<a>1</a><b><item>2</item></b>`, `a` and `b`."""
    open_tags = [_Element("")]
    for piece in body.split(SPACE)[1:]:
        tag = TAG.match(piece)
        if tag is None:
            raise ValueError(piece)
        if not tag["end"]:
            open_tags.append(_Element(tag["key"], piece[tag.end() :]))
        elif len(open_tags) > 1 and open_tags[-1].key == tag["key"]:
            closed = open_tags.pop()
            open_tags[-1].inside.append(closed)
        else:
            raise ValueError(piece)
    if len(open_tags) > 1:
        raise ValueError(body)
    return open_tags[0].inside
