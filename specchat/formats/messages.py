"""Checking messages, and rewriting them into forms that templates accept."""

import json
import re
from collections.abc import Mapping, Sequence
from itertools import groupby, takewhile
from typing import Any

from specchat.errors import InvalidOption
from specchat.formats.chat_message import ChatMessage

SYSTEM_ROLES = ("system", "developer")
OWN_VARIABLES = frozenset({"messages", "tools", "bos_token", "eos_token", "add_generation_prompt"})
"""Variables of a template that follow from the conversation and the model."""


def checked(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Return messages whose content is a string.

    As in OpenAI's API, the given content may also be missing, null, or a list of text parts. Raises
    InvalidOption for anything else, for other malformed fields, and if there are no messages.
    """
    if not messages:
        raise InvalidOption("messages must not be empty")
    return [_checked(message) for message in messages]


def _checked(message: Mapping[str, Any]) -> ChatMessage:
    found = {**message, "content": _text_of(message.get("content"))}
    for name in ("reasoning_content", "tool_calls"):
        if name in found and not found[name]:
            del found[name]
    for call in found.get("tool_calls", ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not {"name", "arguments"} <= function.keys():
            raise InvalidOption("messages: a tool call needs a function with name and arguments")
    if not isinstance(found.get("role"), str):
        raise InvalidOption("messages: each message needs a role")
    if not isinstance(found.get("reasoning_content", ""), str):
        raise InvalidOption("messages: reasoning_content must be text")
    return found  # type: ignore[return-value]


def checked_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return tools with all fields that templates read; as in OpenAI's API, only names are needed.

    Raises InvalidOption for a tool without a name.
    """
    return [_checked_tool(tool) for tool in tools]


def _checked_tool(tool: Any) -> dict[str, Any]:
    function = tool.get("function") if isinstance(tool, Mapping) else None
    if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
        raise InvalidOption("tools: each tool needs a function with a name")
    described = dict(function)  # defaults go last, because a template may write all fields in order
    described.setdefault("description", "")
    described.setdefault("parameters", {"type": "object", "properties": {}})
    return {**tool, "type": tool.get("type", "function"), "function": described}


def checked_variables(variables: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return variables for a template. Raises InvalidOption for one that is not the caller's."""
    for name in variables:
        if name in OWN_VARIABLES:
            raise InvalidOption(f"chat_template_kwargs: {name} is set by specchat itself")
    return variables


def _text_of(content: Any) -> str:
    """Return the text of a message's content."""
    if isinstance(content, str | None):
        return content or ""
    parts = content if isinstance(content, list | tuple) else [content]
    texts: list[str] = []
    for part in parts:
        if not isinstance(part, Mapping) or not isinstance(part.get("text"), str):
            raise InvalidOption("messages: content must be text")
        texts.append(part["text"])
    return "\n".join(texts)


def asked_before_call() -> list[ChatMessage]:
    """Return a question and an answer that calls a tool."""
    function = {"name": "look", "arguments": "{}"}
    call = {"id": "call00000", "type": "function", "function": function}
    return [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


def leaves_out_system(messages: Sequence[ChatMessage], text: str) -> bool:
    """Return True if the system prompt is missing from a prompt.

    Only its longest run of words is searched for, because a template may escape other characters.
    """
    if not has_system(messages):
        return False
    longest = max(re.findall(r"[\w ]+", messages[0]["content"]), key=len, default="")
    return longest.strip() not in text


def with_one_system(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return a conversation with at most one system prompt, at its beginning.

    The first ones are joined, and later ones become messages of the user: coding agents send both.
    """
    first = list(takewhile(_is_system, messages))
    rest = messages[len(first) :]
    found: list[ChatMessage] = []
    if first:
        content = "\n\n".join(each["content"] for each in first)
        found.append({**first[0], "content": content})
    return found + [{**each, "role": "user"} if _is_system(each) else each for each in rest]


def _is_system(message: ChatMessage) -> bool:
    return message["role"] in SYSTEM_ROLES


def has_system(messages: Sequence[ChatMessage]) -> bool:
    """Return whether a conversation begins with a system prompt."""
    return bool(messages) and _is_system(messages[0])


def with_system(messages: Sequence[ChatMessage], texts: Sequence[str]) -> list[ChatMessage]:
    """Return a conversation with texts at the end of its system prompt, or as a new one."""
    if not has_system(messages):
        return [{"role": "system", "content": "\n\n".join(texts)}, *messages]
    first, *rest = messages
    return [{**first, "content": "\n\n".join([first["content"], *texts])}, *rest]


def without_system(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return a conversation with the system prompt put before the first question, as Gemma does."""
    system, *rest = messages
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": system["content"]}, *rest]
    question: ChatMessage = {
        "role": "user",
        "content": f"{system['content']}\n\n{rest[0]['content']}",
    }
    return [question, *rest[1:]]


def alternating(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages with consecutive messages of the user, or of the assistant, joined."""
    found: list[ChatMessage] = []
    for role, group in groupby(messages, lambda message: message["role"]):
        each = list(group)
        if role in {"user", "assistant"}:
            content = "\n\n".join(message["content"] for message in each)
            found.append({**each[0], "content": content})
        else:
            found += each
    return found


def with_objects(message: ChatMessage) -> ChatMessage:
    """Return a message whose calls have objects as arguments instead of JSON text."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [with_object(call) for call in calls]} if calls else message


def with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its arguments as an object; unchanged if they are not JSON."""
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except (ValueError, RecursionError):
            return dict(call)
    return {**call, "function": function}


def with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call with its arguments as JSON text."""
    function = dict(call["function"])
    if not isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": function}
