"""Tools for models whose chat template does not offer them, or shows no calls that can be read.

The system prompt describes the tools and how to call one: as the template writes calls, or else in
the generic form, which is that of Hermes and Qwen2.5 with one call in an answer:

<tool_call>
{"name": "NAME", "arguments": {"KEY": "TEXT"}}
</tool_call>

Results are messages of the user, within <tool_response> tags.
"""

import json
from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from specchat.formats.call_format import (
    ANY_ID,
    ANY_INDEX,
    ANY_NAME,
    KEY_AGAIN,
    CallFormat,
    CallText,
)
from specchat.formats.chat_message import ChatMessage
from specchat.formats.messages import with_object

BEGIN, END = "<tool_call>", "</tool_call>"
RESULT = "<tool_response>\n{}\n</tool_response>"
CALLED = CallText(begin=f'{BEGIN}\n{{"name": "', named='", "arguments": ', end=f"}}\n{END}")
GENERIC = CallFormat(BEGIN, END, CALLED, is_generic=True)

NAME, ARGUMENTS = "<function-name>", "<args-json-object>"
KEY, VALUE = "<argument-name>", "<argument-value>"
PLACED = {KEY_AGAIN: KEY, ANY_NAME: NAME, ANY_ID: "<call-id>", ANY_INDEX: "0"}
DESCRIPTION = """# Tools

You may call a function to assist with the user query.

You are provided with function signatures within <tools></tools> XML tags:
<tools>
{}
</tools>

To call a function, answer only with its name and arguments, written like this:
{}"""


def description_of_tools(tools: Sequence[Mapping[str, Any]], text: CallText) -> str:
    """Return the part of a system prompt that describes tools, and the text of calls."""
    listed = "\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools)
    return DESCRIPTION.format(listed, _shown(text))


def _shown(text: CallText) -> str:
    """Return a call with words in place of its name and arguments."""
    written, given = text.named + ARGUMENTS, text.arguments
    if given is not None:
        value = given.quotes + VALUE + given.quotes
        written = given.first + KEY + given.before["string"] + value + given.after["string"]
    shown = text.begin + NAME + written + text.end
    for place, word in PLACED.items():
        shown = shown.replace(place, word)
    return shown


def calls_as_text(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages with calls in the generic form, and tool results as messages of the user."""
    found: list[ChatMessage] = []
    for is_result, group in groupby(messages, lambda message: message["role"] == "tool"):
        if is_result:
            content = "\n".join(RESULT.format(message["content"]) for message in group)
            found.append({"role": "user", "content": content})
        else:
            found += map(_with_written_calls, group)
    return found


def _with_written_calls(message: ChatMessage) -> ChatMessage:
    each = message.copy()
    calls = each.pop("tool_calls", [])
    each["content"] = "\n".join(filter(None, [each["content"], *map(_written, calls)]))
    return each


def _written(call: Mapping[str, Any]) -> str:
    function = with_object(call)["function"]
    name, given = (json.dumps(function[key], ensure_ascii=False) for key in ("name", "arguments"))
    return f"{CALLED.begin[:-1]}{name}{CALLED.named[1:]}{given}{CALLED.end}"
