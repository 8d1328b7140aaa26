"""`/v1/messages` and `/v1/messages/count_tokens`: Anthropic's API."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import msgspec
from starlette.requests import Request
from starlette.responses import JSONResponse

from specchat.requests.answer_request import ChatRequest
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.api_reply import asked_by, prompt_tokens, reply_to
from specchat.server.asked_structure import structure_of_format
from specchat.server.asked_tools import FUNCTION
from specchat.server.bodies import read
from specchat.server.chat_body import ChatBody, ConversationFields
from specchat.server.message_content import content_of, text_of
from specchat.server.message_events import MessageEvents
from specchat.server.replies import EventStream, Whole

Block: TypeAlias = Mapping[str, Any]
BILLING = "x-anthropic-billing-header"
"""Begins a line that Claude Code puts before its system prompt. It changes with every request, so
nothing after it could be taken from the prefix cache."""
WITHOUT_TEXT = frozenset({"redacted_thinking"})


class MessagesBody(ConversationFields, kw_only=True):
    """A request to the messages API; unknown fields, as `cache_control`, are ignored."""

    messages: Sequence[Mapping[str, Any]]
    system: str | Sequence[Block] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: Mapping[str, Any] | None = None
    thinking: Mapping[str, Any] | None = None
    output_config: Mapping[str, Any] | None = None
    output_format: Mapping[str, Any] | None = None


async def messages(request: Request) -> EventStream | Whole:
    """Answer a conversation."""
    return await read(request, MessagesBody, _replied)


async def count_tokens(request: Request) -> JSONResponse:
    """Return how many tokens the prompt of a conversation has."""
    asked = await read(request, MessagesBody, _asked)
    return JSONResponse({"input_tokens": await prompt_tokens(request, asked)})


def _replied(request: Request, body: MessagesBody) -> EventStream | Whole:
    reply = reply_to(request, to_chat(body), "messages")
    return MessageEvents(reply.model).reply(reply, is_stream=bool(body.stream))


def _asked(request: Request, body: MessagesBody) -> ChatRequest:
    return asked_by(request, to_chat(body))


def to_chat(body: MessagesBody) -> ChatBody:
    """Return a request as one to the chat API. Raises ApiError."""
    fields = body.shared()
    if form := (body.output_config or {}).get("format") or body.output_format:
        structure_of_format(form, "output_config.format")
        fields["response_format"] = form
    system = _system_of(body.system)
    first = [{"role": "system", "content": system}] if system else []
    translated = [each for message in body.messages for each in _messages_of(message)]
    return ChatBody(
        messages=[*first, *translated],
        tools=[_tool(tool) for tool in body.tools or ()],
        tool_choice=body.tool_choice,
        parallel_tool_calls=(body.tool_choice or {}).get("disable_parallel_tool_use") is not True,
        reasoning_effort=_effort_of(body),
        **fields,
    )


def _system_of(given: str | Sequence[Block] | None) -> str:
    """Return the system prompt without the line that changes with every request."""
    if not given:
        return ""
    if isinstance(given, str):
        first, _, rest = given.partition("\n")
        return rest if first.startswith(BILLING) else given
    texts = [text_of([each], "system") for each in given]
    return "\n".join(texts[1:] if texts[0].startswith(BILLING) else texts)


def _messages_of(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Yield the messages of the chat API that a message stands for: tool results are their own."""
    role, content = message.get("role"), message.get("content")
    if not isinstance(content, list):
        yield {"role": role, "content": content_of(content, "messages")}
        return
    blocks = [_block(each) for each in content]
    results = [block for block in blocks if block["type"] == "tool_result"]
    for result in results:
        yield _result(result)
    others = [each for each in blocks if each["type"] not in {"tool_result", *WITHOUT_TEXT}]
    if others or not results:
        yield _said(role, others)


def _block(given: Any) -> Block:
    if not isinstance(given, Mapping) or not isinstance(given.get("type"), str):
        raise ApiError(BAD_REQUEST, "messages: each block of content needs a type", "messages")
    return given


def _said(role: Any, blocks: Sequence[Block]) -> dict[str, Any]:
    """Return what is said in a message: text, thinking and tool calls."""
    texts: list[Block] = []
    thoughts: list[str] = []
    message: dict[str, Any] = {"role": role}
    for block in blocks:
        if block["type"] == "thinking":
            thought = block.get("thinking")
            thoughts += [thought] if isinstance(thought, str) else []
        elif block["type"] == "tool_use":
            message.setdefault("tool_calls", []).append(_call(block))
        else:
            texts.append(_document_text(block) if block["type"] == "document" else block)
    if thoughts:
        message["reasoning_content"] = "".join(thoughts)
    return {**message, "content": content_of(texts, "messages")}


def _document_text(block: Block) -> Block:
    """Return a document that is plain text as a block of text, any other as it is."""
    source = block.get("source")
    if isinstance(source, Mapping) and source.get("type") == "text":
        return {"type": "text", "text": source.get("data")}
    return block


def _call(block: Block) -> dict[str, Any]:
    name, given = block.get("name"), block.get("input", {})
    if not isinstance(name, str) or not isinstance(given, Mapping):
        message = "messages: a tool_use block needs a name and an object as input"
        raise ApiError(BAD_REQUEST, message, "messages")
    function = {"name": name, "arguments": msgspec.json.encode(given).decode()}
    return {"id": str(block.get("id", "")), "type": "function", "function": function}


def _result(block: Block) -> dict[str, Any]:
    content = block.get("content")
    if block.get("is_error") is True:
        content = _as_error(content)
    return {"role": "tool", "tool_call_id": str(block.get("tool_use_id", "")), "content": content}


def _as_error(content: Any) -> Any:
    """Return the content of a result that says what failed."""
    if content is None or isinstance(content, str):
        return f"Error: {content or ''}"
    if not isinstance(content, list):
        return content
    first, *others = content or [{}]
    if isinstance(first, Mapping) and isinstance(first.get("text"), str):
        return [{**first, "text": f"Error: {first['text']}"}, *others]
    return [{"type": "text", "text": "Error: "}, *content]


def _tool(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a tool as the chat API has it; those of Anthropic's own types are skipped there."""
    kind = tool.get("type")
    if kind not in ("custom", None):
        return {"type": "OpenAI's function" if kind == FUNCTION else kind}
    function = {
        "name": tool.get("name"),
        "description": tool.get("description"),
        "parameters": tool.get("input_schema"),
        "strict": tool.get("strict"),
    }
    given = {name: value for name, value in function.items() if value is not None}
    return {"type": "function", "function": given}


def _effort_of(body: MessagesBody) -> str | None:
    """Return what `thinking` and `output_config` ask for, as a `reasoning_effort`.

    A budget is a number of tokens. Without a word about it the model has its own way.
    """
    thinking, output = body.thinking or {}, body.output_config or {}
    effort, budget = output.get("effort"), thinking.get("budget_tokens")
    if thinking.get("type") == "disabled":
        return "none"
    if isinstance(effort, str):
        return effort
    if thinking.get("type") == "enabled":
        return str(budget) if isinstance(budget, int) else "on"
    return None
