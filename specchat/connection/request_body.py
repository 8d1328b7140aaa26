"""The body of a request to a server, made of a request to an engine."""

from collections.abc import Sequence
from typing import Any

from specchat.connection.dialects import Dialect
from specchat.connection.sent_images import with_parts
from specchat.errors import InvalidOption
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import Image
from specchat.requests.answer_request import AnswerRequest, ChatRequest, GenerateRequest

OFF = {"top_k": 0}
"""The values that switch an option off here."""


def chat_body(
    request: ChatRequest, messages: Sequence[ChatMessage], model: str, dialect: Dialect
) -> dict[str, Any]:
    """Return the body that asks a server for an answer to these messages of a request.

    Raises InvalidOption for what this kind of server cannot do.
    """
    body = {
        **_shared(request, model, dialect),
        **dialect.thinking_fields(request.think),
        "messages": [_message(message, request.images) for message in messages],
    }
    if messages and messages[-1]["role"] == "assistant":
        if dialect.continuation is None:
            raise InvalidOption(f"{dialect.label} cannot continue an answer: regenerate it")
        body |= dialect.continuation
    if request.offered_tools:
        body |= {"tools": list(request.offered_tools), "tool_choice": request.tool_choice}
    if request.variables:
        variables = body.get("chat_template_kwargs", {})
        body["chat_template_kwargs"] = {**variables, **request.variables}
    return body


def text_body(request: GenerateRequest, model: str, dialect: Dialect) -> dict[str, Any]:
    """Return the body that asks a server to continue a text. Raises InvalidOption."""
    if not isinstance(request.prompt, str):
        raise InvalidOption("a server takes a prompt as text, not as token ids")
    if request.images:
        raise InvalidOption("a server takes images in a conversation only, not in a text")
    return {**_shared(request, model, dialect), "prompt": request.prompt}


def _shared(request: AnswerRequest, model: str, dialect: Dialect) -> dict[str, Any]:
    """Return the fields of both APIs."""
    if request.begun or request.replay:
        raise InvalidOption("only a model on this machine can go on from a token of an answer")
    for name in ("logit_bias", "is_exact"):
        if getattr(request, name):
            raise InvalidOption(f"{name} needs a model on this machine")
    if request.ignore_end and not dialect.ignores_end:
        raise InvalidOption(f"{dialect.label} always stops at the model's end of an answer")
    body: dict[str, Any] = {
        "model": model,
        "stream": True,
        "temperature": request.temperature,
        "top_p": request.top_p,
        **dialect.live,
        **dialect.structure_fields(request.structure),
    }
    for name, neutral in (("presence_penalty", 0.0), ("frequency_penalty", 0.0)):
        if (value := getattr(request, name)) != neutral:
            body[name] = value
    for name in ("seed", "max_tokens"):
        if (value := getattr(request, name)) is not None:
            body[name] = value
    if request.ignore_end:
        body["ignore_eos"] = True
    if request.stop:
        body["stop"] = list(request.stop)
    for name, field in dialect.sampling.items():
        value = getattr(request, name)
        body[field] = dialect.off.get(field, value) if value == OFF.get(name) else value
    if dialect.takes_drafter and request.prediction and isinstance(request.prediction, str):
        body["prediction"] = {"type": "content", "content": request.prediction}
    return body


def _message(message: ChatMessage, images: Sequence[Image]) -> dict[str, Any]:
    """Return a message with its images, and its reasoning under both names that servers read."""
    fields: dict[str, Any] = dict(message)
    if images:
        fields["content"] = with_parts(message["content"], images)
    if reasoning := fields.get("reasoning_content"):
        fields["reasoning"] = reasoning
    return fields
