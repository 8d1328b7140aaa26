"""The body of a chat request, and what it means in the engine's terms.

The other APIs for conversations are translated into this one.
"""

import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from specchat.requests.answer_request import AnyRequest, ChatRequest
from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.server.asked_tools import asked_tools
from specchat.server.bodies import SharedFields, options_of, think_of
from specchat.server.message_content import ShownContent
from specchat.server.service import ChosenModel, Service

RESULT_ROLES = frozenset({"tool", "function"})
ROLES = frozenset({"system", "developer", "user", "assistant"}) | RESULT_ROLES
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


class ConversationFields(SharedFields, kw_only=True):
    """What the APIs for conversations have in common beside the answer's options."""

    chat_template_kwargs: Mapping[str, Any] | None = None
    prediction: Prediction | None = None
    enforce_tools: bool | None = None

    def shared(self) -> dict[str, Any]:
        """Return the fields that all these APIs have; only the chat API has several choices."""
        names = ConversationFields.__struct_fields__
        return {name: getattr(self, name) for name in names if name != "n"}


class ChatBody(ConversationFields, kw_only=True):
    """A request to the chat API; unknown fields are ignored."""

    messages: Sequence[Mapping[str, Any]]
    stream_options: StreamOptions | None = None
    logprobs: bool | None = None
    top_logprobs: Annotated[int, Meta(ge=0, le=20)] | None = None
    tools: Sequence[Mapping[str, Any]] | None = None
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    make_room: bool | None = None
    timings_per_token: bool | None = None


def chat_requests(body: ChatBody, service: Service) -> tuple[list[ChatRequest], ChosenModel]:
    """Return a request for each choice, and the model. Raises ApiError or InvalidOption."""
    if not service.facts.has_chat_template:
        message = f"{service.name} has no chat template: use /v1/completions"
        raise ApiError(BAD_REQUEST, message, "model")
    chosen = service.choose(body.model)
    options = options_of(body, chosen, service)
    think = think_of(body.reasoning_effort, service)
    if think is not None:
        options["think"] = think
    if body.logprobs:
        options["alternatives"] = max(1, body.top_logprobs or 0)
    asked = asked_tools(body.tools, body.tool_choice)
    shown = ShownContent(service.name, service.facts, service.image_setup.refused)
    request = ChatRequest(
        messages=_messages(body.messages, shown),
        images=shown.images,
        tools=asked.tools,
        tool_choice=asked.choice,
        tool_names=asked.names,
        parallel_tool_calls=body.parallel_tool_calls is not False and not asked.is_single,
        enforces_tools=body.enforce_tools is not False,
        variables=body.chat_template_kwargs or {},
        prediction=body.prediction.text if body.prediction else "",
        make_room=bool(body.make_room),
        **options,
    )
    return choices_of(request, body.n or 1, repeats=bool(body.verify)), chosen


def choices_of(request: AnyRequest, count: int, *, repeats: bool = False) -> list[AnyRequest]:
    """Return a request for each of several answers: their seeds follow one another.

    One answer needs a seed only if it `repeats`.
    """
    seed = request.seed
    if seed is None:
        if count == 1 and not repeats:
            return [request]
        seed = secrets.randbelow(MOST_SEED)
    return [replace(request, seed=seed + index) for index in range(count)]


def _messages(given: Sequence[Mapping[str, Any]], shown: ShownContent) -> list[Any]:
    """Return messages with the roles that chat formats know, and fields of one type."""
    messages = [_message(each, shown) for each in given]
    if not messages:
        raise ApiError(BAD_REQUEST, "messages must not be empty", "messages")
    if messages[-1].get("tool_calls"):
        raise ApiError(
            BAD_REQUEST, "messages: the last one calls a tool: add its result", "messages"
        )
    _name_results(messages)
    return messages


def _message(given: Mapping[str, Any], shown: ShownContent) -> dict[str, Any]:
    message, role = dict(given), given.get("role")
    if not isinstance(role, str) or role not in ROLES:
        raise ApiError(BAD_REQUEST, f"messages: unknown role {role!r:.40}", "messages")
    if not isinstance(given.get("tool_calls"), list | None):
        raise ApiError(BAD_REQUEST, "messages: tool_calls must be a list", "messages")
    is_result = role in RESULT_ROLES
    message["role"] = "tool" if is_result else role
    text_of = shown.result_text if is_result else shown.text_of
    message["content"] = text_of(given.get("content"), "messages")
    reasoning = given.get("reasoning_content") or given.get("reasoning")
    message.pop("reasoning", None)
    message.pop("reasoning_content", None)
    if isinstance(reasoning, str) and reasoning:
        message["reasoning_content"] = reasoning
    return message


def _name_results(messages: Sequence[dict[str, Any]]) -> None:
    """Add the tool's name to results that have only the call's id; some templates write it."""
    names: dict[str, str] = {}
    for message in messages:
        for call in message.get("tool_calls") or ():
            with suppress(TypeError, KeyError):  # the engine says what is wrong with it
                names[str(call["id"])] = str(call["function"]["name"])
        name = names.get(str(message.get("tool_call_id")))
        if message["role"] == "tool" and name:
            message.setdefault("name", name)
