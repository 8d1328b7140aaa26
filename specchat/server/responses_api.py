"""`/v1/responses`: OpenAI's responses API, whose requests have the whole conversation here."""

import json
from collections.abc import Callable, Mapping, Sequence
from itertools import chain, groupby
from typing import Any, ClassVar, TypeAlias

from starlette.requests import Request
from starlette.responses import JSONResponse

from specchat.requests.answer_request import ChatRequest
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.api_reply import asked_by, counted, reply_to
from specchat.server.asked_structure import structure_of_format
from specchat.server.asked_tools import MOST_NOTICES
from specchat.server.bodies import read
from specchat.server.chat_body import ChatBody, ConversationFields
from specchat.server.message_content import content_of, text_of
from specchat.server.replies import EventStream, Whole
from specchat.server.response_events import REASONING_PREFIX, ResponseEvents
from specchat.server.response_tools import OfferedTools, ToolName, offered_tools

Item: TypeAlias = Mapping[str, Any]
STATEFUL = ("previous_response_id", "conversation", "prompt")
"""Fields that refer to what another request said, or what is stored elsewhere."""
WITHOUT_TEXT = frozenset(
    {
        "code_interpreter_call",
        "compaction",
        "file_search_call",
        "image_generation_call",
        "mcp_list_tools",
        "web_search_call",
    }
)
"""Items of other servers' own tools, which hold nothing that a model could read here."""
WITH_TOOLS = frozenset({"additional_tools", "tool_search_output"})
"""Items whose tools may be called like those of the request. Others that have some count, too."""


class ResponsesBody(ConversationFields, kw_only=True):
    """A request to the responses API; unknown fields are ignored."""

    PROMPT: ClassVar = "input"
    input: str | Sequence[Item]
    instructions: str | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning: Mapping[str, Any] | None = None
    text: Mapping[str, Any] | None = None
    include: Sequence[str] | None = None
    metadata: Any = None
    user: Any = None
    truncation: str | None = None
    background: bool | None = None
    previous_response_id: str | None = None
    conversation: str | Mapping[str, Any] | None = None
    prompt: Mapping[str, Any] | None = None


async def responses(request: Request) -> EventStream | Whole:
    """Answer a conversation."""
    return await read(request, ResponsesBody, _replied)


async def count_input_tokens(request: Request) -> JSONResponse:
    """Return how many tokens the prompt of a conversation has."""
    return await counted(request, await read(request, ResponsesBody, _asked))


def _replied(request: Request, body: ResponsesBody) -> EventStream | Whole:
    reply = reply_to(request, to_chat(body), "responses")
    echo = _echo(body, reply.requests[0])
    events = ResponseEvents(echo, reply, body.include or (), _tools_of(body).names)
    return events.reply(reply, is_stream=bool(body.stream))


def _asked(request: Request, body: ResponsesBody) -> ChatRequest:
    return asked_by(request, to_chat(body))


def to_chat(body: ResponsesBody) -> ChatBody:
    """Return a request as one to the chat API. Raises ApiError."""
    _require_stateless(body)
    fields = body.shared()
    if form := (body.text or {}).get("format"):
        structure_of_format(form, "text.format")
        fields["response_format"] = form
    effort = (body.reasoning or {}).get("effort")
    if not isinstance(effort, str | None):
        raise ApiError(BAD_REQUEST, "reasoning.effort must be text", "reasoning.effort")
    offered = _tools_of(body)
    fields["notices"] = [*body.notices, *_left_out(_items_of(body))]
    return ChatBody(
        messages=messages_of(_items_of(body), body.instructions, offered),
        tools=offered.functions,
        tool_choice=_chosen(body.tool_choice, offered),
        parallel_tool_calls=body.parallel_tool_calls,
        reasoning_effort=effort,
        make_room=body.truncation == "auto",
        **fields,
    )


def _items_of(body: ResponsesBody) -> Sequence[Item]:
    return [{"content": body.input}] if isinstance(body.input, str) else body.input


def _tools_of(body: ResponsesBody) -> OfferedTools:
    """Return the tools that may be called; other servers' are only reported."""
    items = [item for item in _items_of(body) if _kind_of(item) not in WITHOUT_TEXT]
    return offered_tools(body.tools or (), items)


def _left_out(items: Sequence[Item]) -> list[str]:
    """Return a notice for each type of items that this server does not know."""
    known = {*TRANSLATED, *WITHOUT_TEXT, *WITH_TOOLS}
    kinds = dict.fromkeys(kind for item in items if (kind := _kind_of(item)) not in known)
    return [f"input: items of type {kind!r:.40} are left out" for kind in [*kinds][:MOST_NOTICES]]


def _echo(body: ResponsesBody, request: ChatRequest) -> dict[str, Any]:
    """Return what a response repeats of its request, with the options that it was answered with."""
    reasoning = body.reasoning or {}
    return {
        "instructions": body.instructions,
        "max_output_tokens": body.max_tokens,
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "previous_response_id": None,
        "reasoning": {name: reasoning.get(name) for name in ("effort", "summary")},
        "store": False,
        "temperature": request.temperature,
        "text": {"format": (body.text or {}).get("format") or {"type": "text"}},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": request.top_p,
        "truncation": body.truncation or "disabled",
        "user": body.user,
    }


def _require_stateless(body: ResponsesBody) -> None:
    for name in STATEFUL:
        if getattr(body, name):
            message = f"{name}: this server stores nothing, so send the whole conversation as input"
            raise ApiError(BAD_REQUEST, message, name)
    if body.background:
        raise ApiError(BAD_REQUEST, "background: this server stores nothing", "background")


def messages_of(
    items: Sequence[Item], instructions: str | None, offered: OfferedTools
) -> list[dict[str, Any]]:
    """Return input items as messages; what an answer consisted of is one message again.

    Items of unknown types are left out: clients outlive their servers' versions.
    """
    translated = (_message_of(item, offered) for item in items)
    said = groupby(filter(None, translated), lambda message: message["role"] == "assistant")
    first = [{"role": "system", "content": instructions}] if instructions else []
    parts = ([_joined(list(group))] if is_answer else group for is_answer, group in said)
    return [*first, *chain.from_iterable(parts)]


def _message_of(item: Item, offered: OfferedTools) -> dict[str, Any] | None:
    """Return an item as a message; None for one without text."""
    kind = _kind_of(item)
    if kind == "item_reference":
        message = "input: item_reference names what this server did not store: send the item itself"
        raise ApiError(BAD_REQUEST, message, "input")
    translate = TRANSLATED.get(kind)
    if translate is None:
        return None
    return translate(_shown(item, offered))


def _shown(given: Item, offered: OfferedTools) -> Item:
    """Return a call or a choice of a tool with the name by which the model knows the tool."""
    namespace, name = given.get("namespace"), given.get("name")
    if isinstance(namespace, str) and isinstance(name, str):
        return {**given, "name": offered.shown(ToolName(namespace, name))}
    return given


def _chosen(choice: Any, offered: OfferedTools) -> Any:
    """Return a choice of tools with the names by which the model knows them."""
    if not isinstance(choice, Mapping):
        return choice
    tools = choice.get("tools")
    if isinstance(tools, list):
        known = [_shown(each, offered) if isinstance(each, Mapping) else each for each in tools]
        choice = {**choice, "tools": known}
    return _shown(choice, offered)


def _kind_of(item: Item) -> str:
    kind = item.get("type") or "message"
    if not isinstance(kind, str):
        raise ApiError(BAD_REQUEST, f"input: an item's type is {kind!r:.40}", "input")
    return kind


def _said(item: Item) -> dict[str, Any]:
    role = item.get("role", "user")
    read = text_of if role == "assistant" else content_of  # an answer's parts become one text
    return {"role": role, "content": read(item.get("content"), "input")}


def _called(item: Item) -> dict[str, Any]:
    return _call(item, item.get("arguments"))


def _called_with_text(item: Item) -> dict[str, Any]:
    """Return a call of a tool that takes a text instead of JSON."""
    return _call(item, json.dumps({"input": item.get("input")}))


def _call(item: Item, arguments: Any) -> dict[str, Any]:
    name = item.get("name")
    if not isinstance(name, str) or not isinstance(arguments, str):
        raise ApiError(BAD_REQUEST, "input: a function_call needs a name and arguments", "input")
    function = {"name": name, "arguments": arguments}
    call = {"id": _call_id(item), "type": "function", "function": function}
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _result(item: Item) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": _call_id(item), "content": item.get("output")}


def _call_id(item: Item) -> str:
    return str(item.get("call_id") or "")


def _reasoned(item: Item) -> dict[str, Any]:
    """Return reasoning: its text, or what this server gave as its encrypted form, or a summary."""
    sealed = item.get("encrypted_content")
    text = _parts_text(item.get("content"))
    if not text and isinstance(sealed, str) and sealed.startswith(REASONING_PREFIX):
        text = sealed.removeprefix(REASONING_PREFIX)
    text = text or _parts_text(item.get("summary"))
    return {"role": "assistant", "content": "", "reasoning_content": text}


def _parts_text(parts: Any) -> str:
    listed = parts if isinstance(parts, list) else []
    texts = [part.get("text") for part in listed if isinstance(part, Mapping)]
    return "\n".join(text for text in texts if isinstance(text, str))


TRANSLATED: Mapping[str, Callable[[Item], dict[str, Any]]] = {
    "message": _said,
    "function_call": _called,
    "function_call_output": _result,
    "custom_tool_call": _called_with_text,
    "custom_tool_call_output": _result,
    "reasoning": _reasoned,
}
"""What makes a message of each type of items."""


def _joined(parts: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parts of an answer as one message."""
    message = dict(parts[0])
    if len(parts) > 1:
        for name in ("reasoning_content", "content"):
            message[name] = "\n\n".join(filter(None, (part.get(name) for part in parts)))
    if calls := [call for part in parts for call in part.get("tool_calls", ())]:
        message["tool_calls"] = calls
    return message
