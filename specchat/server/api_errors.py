"""Errors of the HTTP APIs, in the shape that each API's clients know."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from specchat.decoding.request import SHORTER_OR_LARGER
from specchat.errors import (
    Cancelled,
    ContextFull,
    EngineFailed,
    InvalidOption,
    SpecchatError,
    TemplateError,
)
from specchat.formats.template import ADVICE as TEMPLATE_ADVICE
from specchat.images.picture import INSTALL_PILLOW
from specchat.requests.answer_request import ChatRequest, GenerateRequest
from specchat.sharing.tickets import QueueFull

RETRY_AFTER_SECONDS = 5
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND = 400, 401, 403, 404
TOO_LARGE, UNSUPPORTED_TYPE, INTERNAL, NOT_SUPPORTED, BUSY = 413, 415, 500, 501, 503
ANTHROPIC_TYPES = {
    BAD_REQUEST: "invalid_request_error",
    UNAUTHORIZED: "authentication_error",
    FORBIDDEN: "permission_error",
    NOT_FOUND: "not_found_error",
    TOO_LARGE: "request_too_large",
    BUSY: "overloaded_error",
    INTERNAL: "api_error",
    NOT_SUPPORTED: "not_supported_error",
}
FOR_CALLERS = {
    TEMPLATE_ADVICE: "/v1/completions takes a text as it is",
    SHORTER_OR_LARGER: "shorten it, or start the server with a larger --ctx",
    "use --exact auto": 'use "exact": "auto"',
    "use --drafter none": 'use "drafter": "none"',
    f"run `{INSTALL_PILLOW}`": "it is to be installed where the server runs",
}
"""What a caller of an API can do, for what a user of the commands can."""
FIELDS = frozenset(
    {
        *(each.name for request in (ChatRequest, GenerateRequest) for each in fields(request)),
        *("chat_template_kwargs", "tokens"),
    }
) - {"images"}  # which bodies have in messages
"""What errors of the engine begin with if they are of a field."""
OPENAI_TYPES = {
    UNAUTHORIZED: "authentication_error",
    BUSY: "server_error",
    INTERNAL: "server_error",
    NOT_SUPPORTED: "not_supported_error",
}


SENT_NAMES = "sent_names"
"""In the state of a request: what it calls the fields that have other names here."""


@dataclass(eq=False)
class ApiError(Exception):  # not frozen: who passes an exception on sets its traceback
    """An error that a client receives: `param` names the field at fault, `code` is for programs.

    `fields` are those that llama-server's clients know; among them may be a `type`.
    """

    status: int
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    fields: Mapping[str, Any] = field(default_factory=dict)


def of_exception(error: SpecchatError) -> ApiError:
    """Return an error of the engine as an API's: only what may work again later is 5xx."""
    text = _for_callers(str(error))
    if isinstance(error, ContextFull):
        fields = {
            "type": "exceed_context_size_error",
            "n_prompt_tokens": error.num_tokens,
            "n_ctx": error.capacity,
        }
        code = "context_length_exceeded"
        return ApiError(BAD_REQUEST, _too_long(error), "messages", code, fields=fields)
    if isinstance(error, InvalidOption | TemplateError):
        return ApiError(BAD_REQUEST, text, _field_in(text))
    if isinstance(error, QueueFull):
        return ApiError(
            BUSY, text, code="queue_full", headers={"Retry-After": str(RETRY_AFTER_SECONDS)}
        )
    if isinstance(error, Cancelled):
        return ApiError(BUSY, text, code="shutting_down")
    is_fatal = isinstance(error, EngineFailed)
    return ApiError(INTERNAL, text, code="engine_failed" if is_fatal else None)


def _for_callers(text: str) -> str:
    for advice, other in FOR_CALLERS.items():
        text = text.replace(advice, other)
    return text


def _field_in(text: str) -> str | None:
    """Return the field that an error begins with; None if it begins with other words."""
    first = text.partition(" ")[0].strip(":")
    return first if first in FIELDS else None


def _too_long(error: ContextFull) -> str:
    """Return Anthropic's and OpenAI's words, at which clients shorten the conversation."""
    text = _for_callers(str(error))
    if not error.num_tokens:
        return text
    _, _, advice = text.partition(": ")
    more = "" if error.is_all else "more than "
    size = f"{more}{error.num_tokens} tokens > {error.capacity} maximum"
    context = f"this model's maximum context length is {error.capacity} tokens"
    return f"prompt is too long: {size}; {context}: {advice}"


def openai_body(error: ApiError) -> dict[str, Any]:
    """Return an error as OpenAI's APIs have it."""
    kind = OPENAI_TYPES.get(error.status, "invalid_request_error")
    return {
        "error": {
            "message": error.message,
            "type": kind,
            "param": error.param,
            "code": error.code,
            **error.fields,
        }
    }


def anthropic_body(error: ApiError) -> dict[str, Any]:
    """Return an error as Anthropic's API has it."""
    kind = ANTHROPIC_TYPES.get(error.status, "invalid_request_error")
    return {"type": "error", "error": {"type": kind, "message": error.message}}


def ollama_body(error: ApiError) -> dict[str, Any]:
    """Return an error as Ollama's API has it."""
    return {"error": error.message}


def body_for(path: str) -> Callable[[ApiError], dict[str, Any]]:
    """Return the function that gives an error the shape of the API of a path."""
    if path.startswith("/api/"):
        return ollama_body
    return anthropic_body if path.startswith("/messages") else openai_body


def named_as_sent(error: ApiError, sent: Mapping[str, str]) -> ApiError:
    """Return an error that names the field at fault as the client does."""
    param = error.param or ""
    field = re.split(r"[.\[]", param, maxsplit=1)[0]
    if field not in sent:
        return error
    name, message = sent[field] + param.removeprefix(field), error.message
    if message.startswith(param):
        message = name + message.removeprefix(param)
    return replace(error, message=message, param=name)
