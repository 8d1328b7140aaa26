"""The body of a chat request, and what it means in the engine's terms.

The other APIs for conversations are translated into this one.
"""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from specchat.engine.api import ChatRequest
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.bodies import SharedFields, options_of, think_of
from specchat.server.service import Service

ROLES = frozenset({"system", "developer", "user", "assistant", "tool", "function"})
MOST_SEED = 2**53
"""Chosen seeds stay below this, so that JavaScript can repeat them."""


class StreamOptions(Struct):
    """What a stream contains beside the answer."""

    include_usage: bool | None = None


class Prediction(Struct):
    """A text that the answer is expected to be like."""

    content: str | Sequence[Mapping[str, Any]]
    type: Literal["content"] = "content"

    @property
    def text(self) -> str:
        """The whole text."""
        if isinstance(self.content, str):
            return self.content
        return "".join(str(part.get("text", "")) for part in self.content)


class ChatBody(SharedFields, kw_only=True):
    """A request to the chat API; unknown fields are ignored."""

    messages: Sequence[Mapping[str, Any]]
    stream_options: StreamOptions | None = None
    max_completion_tokens: int | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: Mapping[str, Any] | None = None
    response_format: Mapping[str, Any] | None = None
    prediction: Prediction | None = None


def chat_requests(body: ChatBody, service: Service) -> tuple[list[ChatRequest], str]:
    """Return a request for each choice, and the model's name. Raises ApiError or InvalidOption."""
    chosen = service.choose(body.model)
    options = options_of(body, chosen, service)
    if body.max_completion_tokens is not None:
        options["max_tokens"] = body.max_completion_tokens
    think = think_of(body.reasoning_effort, service)
    if think is not None:
        options["think"] = think
    if body.logprobs:
        options["alternatives"] = max(1, body.top_logprobs or 0)
    count = body.n or 1
    if options.get("seed") is None and (body.verify or count > 1):
        options["seed"] = secrets.randbelow(MOST_SEED)
    request = ChatRequest(
        messages=_messages(body.messages),
        tools=_tools(body),
        variables=body.chat_template_kwargs or {},
        prediction=body.prediction.text if body.prediction else "",
        **options,
    )
    if count == 1:
        return [request], chosen.name
    first = request.seed or 0
    return [replace(request, seed=first + index) for index in range(count)], chosen.name


def _messages(given: Sequence[Mapping[str, Any]]) -> list[Any]:
    """Return messages with the roles that chat formats know, and fields of one type."""
    messages: list[dict[str, Any]] = []
    for message in given:
        role = message.get("role")
        if role not in ROLES:
            raise ApiError(BAD_REQUEST, f"messages: unknown role {role!r:.40}", "messages")
        each = dict(message)
        if role == "function":
            each["role"] = "tool"
        if not each.get("reasoning_content") and isinstance(each.get("reasoning"), str):
            each["reasoning_content"] = each["reasoning"]
        if each.get("reasoning_content") is None:
            each.pop("reasoning_content", None)
        each.pop("reasoning", None)
        messages.append(each)
    return messages


def _tools(body: ChatBody) -> list[Mapping[str, Any]]:
    """Return the tools to offer; those of unknown types are left out, as other servers do."""
    choice = body.tool_choice
    if choice == "required" or isinstance(choice, Mapping):
        raise ApiError(
            BAD_REQUEST, "tool_choice: only auto and none are supported so far", "tool_choice"
        )
    kind = (body.response_format or {}).get("type", "text")
    if kind != "text":
        raise ApiError(
            BAD_REQUEST, "response_format: only text is supported so far", "response_format"
        )
    if choice == "none" or not body.tools:
        return []
    return [each for each in body.tools if each.get("type", "function") == "function"]
