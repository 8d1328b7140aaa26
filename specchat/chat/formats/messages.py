"""Messages of a conversation in the forms that templates take them in."""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from specchat.chat.conversation import ChatMessage
from specchat.errors import InvalidOption

SYSTEM_ROLES = ("system", "developer")


def checked(messages: Sequence[Mapping[str, Any]]) -> list[ChatMessage]:
    """Return messages with text for content, as OpenAI's API takes more forms of them.

    Content may be missing, null, or typed parts of text. Raises InvalidOption for anything else
    that is no message, and if there is none.
    """
    if not messages:
        raise InvalidOption("messages: there is none to answer")
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
        raise InvalidOption("messages: each needs a role")
    if not isinstance(found.get("reasoning_content", ""), str):
        raise InvalidOption("messages: reasoning_content must be text")
    return found  # type: ignore[return-value]


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
    """Return a question whose answer calls a tool."""
    function = {"name": "look", "arguments": "{}"}
    call = {"id": "call00000", "type": "function", "function": function}
    return [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    ]


def leaves_out_system(messages: Sequence[ChatMessage], text: str) -> bool:
    """Return True if a prompt lacks the system prompt; a template may escape a character of it."""
    if not messages or messages[0]["role"] not in SYSTEM_ROLES:
        return False
    longest = max(re.findall(r"[\w ]+", messages[0]["content"]), key=len, default="")
    return longest.strip() not in text


def without_system(messages: Sequence[ChatMessage]) -> Sequence[ChatMessage]:
    """Return a conversation with its system prompt before the first question, as Gemma has it."""
    system, *rest = messages
    if not rest or rest[0]["role"] != "user":
        return [{"role": "user", "content": system["content"]}, *rest]
    question: ChatMessage = {
        "role": "user",
        "content": f"{system['content']}\n\n{rest[0]['content']}",
    }
    return [question, *rest[1:]]


def calls_as_text(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages whose calls are part of the text, and answers of tools the user's."""
    found: list[ChatMessage] = []
    for message in messages:
        if message["role"] == "tool":
            found.append({"role": "user", "content": message["content"]})
            continue
        each = message.copy()
        calls = each.pop("tool_calls", [])
        functions = [json.dumps(call["function"], ensure_ascii=False) for call in calls]
        each["content"] = "\n".join(filter(None, [each["content"], *functions]))
        found.append(each)
    return found


def alternating(messages: Sequence[ChatMessage]) -> list[ChatMessage]:
    """Return messages of which no two of the same role follow each other: they are joined."""
    found: list[ChatMessage] = []
    for message in messages:
        if found and found[-1]["role"] == message["role"] in {"user", "assistant"}:
            joined = f"{found[-1]['content']}\n\n{message['content']}"
            found[-1] = {**found[-1], "content": joined}
        else:
            found.append(message)
    return found


def with_objects(message: ChatMessage) -> ChatMessage:
    """Return a message whose calls have their arguments as objects instead of JSON text."""
    calls = message.get("tool_calls")
    return {**message, "tool_calls": [with_object(call) for call in calls]} if calls else message


def with_object(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call whose arguments are an object; as they are if they cannot be one."""
    function = dict(call["function"])
    if isinstance(function["arguments"], str):
        try:
            function["arguments"] = json.loads(function["arguments"] or "{}")
        except (ValueError, RecursionError):
            return dict(call)
    return {**call, "function": function}


def with_text(call: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call whose arguments are JSON text."""
    function = dict(call["function"])
    if not isinstance(function["arguments"], str):
        function["arguments"] = json.dumps(function["arguments"], ensure_ascii=False)
    return {**call, "function": function}
