"""Reading request bodies: JSON into declared fields, and these into options of the engine."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request

from specchat.options.declarations import AUTO_THINK, LONGEST_DRAFT
from specchat.server.api_errors import BAD_REQUEST, SENT_NAMES, TOO_LARGE, ApiError
from specchat.server.asked_structure import structure_of
from specchat.server.biases import token_biases
from specchat.server.json_text import decoded, extent_of
from specchat.server.sent_fields import notices_of, with_own_names
from specchat.server.service import ChosenModel, Service
from specchat.structured.structure import Structure

Body = TypeVar("Body")
Made = TypeVar("Made")
MOST_CHOICES = 8
"""The largest `n`."""
MOST_STOPS = 64
DEEPEST = 100
"""Levels of nesting; what reads a body later, such as a chat template, goes down them by calls."""
MOST_VALUES = 200_000
"""Values of a body, beside one for each token of the context. While they are read or handed on no
other thread runs, which takes about a microsecond for each."""
LEAST_TOP_P = 1e-9
"""What a `top_p` of 0 means, as OpenAI and llama-server: only the most likely token."""
LEVELS = ("minimal", "low", "medium", "high", "xhigh", "max")
"""The values of `reasoning_effort` that ask for reasoning."""
SAMPLING = (
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "presence_penalty",
    "frequency_penalty",
    "repeat_last_n",
    "seed",
    "drafter",
    "draft_length",
    "draft_tree",
)
"""Fields that are options of the same name."""


class SharedFields(Struct, kw_only=True):
    """What the APIs of OpenAI's kind have in common, and fields of llama.cpp, vLLM and specchat.

    `sent_fields.ALIASES` has their other names. `notices` are the server's own: what of the request
    changes nothing.
    """

    model: str | None = None
    stream: bool | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    min_p: float | None = None
    repeat_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    repeat_last_n: int | None = None
    seed: int | None = None
    max_tokens: int | None = None
    stop: str | Sequence[str] | None = None
    n: Annotated[int, Meta(ge=1, le=MOST_CHOICES)] | None = None
    logit_bias: Mapping[int, float] | None = None
    drafter: str | None = None
    draft_length: Annotated[int, Meta(ge=0, le=LONGEST_DRAFT)] | Literal["auto"] | None = None
    draft_tree: Annotated[int, Meta(ge=1, le=LONGEST_DRAFT)] | Literal["auto", "off"] | None = None
    exact: Literal["on", "auto", "off"] | None = None
    verify: bool | None = None
    ignore_eos: bool | None = None
    response_format: Mapping[str, Any] | None = None
    json_schema: Mapping[str, Any] | str | None = None
    grammar: str | None = None
    structured_outputs: Mapping[str, Any] | None = None
    show_schema: bool | None = None
    notices: Sequence[str] = ()


async def read(request: Request, kind: type[Body], make: Callable[[Request, Body], Made]) -> Made:
    """Return what `make` makes of the body of a request, and the request.

    All of it is done off the event loop, as it may take seconds. Raises ApiError for what is not
    JSON of this shape, and QueueFull.
    """
    service: Service = request.app.state.service
    async with service.body_room.body(request.stream()) as data:
        given = await service.off_loop(_fields_of, request, kind, data)
    if isinstance(given, dict) and (biases := given.get("logit_bias")) is not None:
        given["logit_bias"] = await token_biases(biases, service)
    return await service.off_loop(lambda: make(request, _converted(given, kind)))


def _fields_of(request: Request, kind: type[Body], data: bytearray) -> Any:
    """Return what a body says, its fields by specchat's names. Raises ApiError."""
    service: Service = request.app.state.service
    most_values = MOST_VALUES + service.facts.context
    depth, num_values = extent_of(data, most_values)
    if depth > DEEPEST:
        raise ApiError(BAD_REQUEST, f"the body is nested more than {DEEPEST} levels deep")
    if num_values > most_values:
        raise ApiError(TOO_LARGE, f"the body has more than {most_values} values")
    try:
        given = decoded(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ApiError(BAD_REQUEST, f"the body is not JSON: {error}") from None
    if isinstance(given, dict):
        known = getattr(kind, "__struct_fields__", ())
        given["notices"] = list(notices_of(given, known))
        given, sent = with_own_names(given)
        sent["messages"] = getattr(kind, "PROMPT", "messages")
        setattr(request.state, SENT_NAMES, sent)
    return given


def _converted(given: Any, kind: type[Body]) -> Body:
    """Return a body by its declaration. Raises ApiError."""
    try:
        return msgspec.convert(given, kind)
    except msgspec.ValidationError as error:
        text, _, path = str(error).partition(" - at `$")
        param = path.strip("`").strip(".") or None
        raise ApiError(BAD_REQUEST, f"{param}: {text}" if param else text, param) from None


def options_of(body: SharedFields, chosen: ChosenModel, service: Service) -> dict[str, Any]:
    """Return the options of an answer: what the request says, else the server's defaults."""
    given = {name: getattr(body, name) for name in SAMPLING}
    if body.top_k is not None and body.top_k < 0:
        given["top_k"] = 0  # as llama-server and vLLM: off
    if body.top_p == 0:
        given["top_p"] = LEAST_TOP_P
    if body.seed is not None and body.seed < 0:
        given["seed"] = None  # as llama-server: random
    if body.stop is not None:
        stops = [body.stop] if isinstance(body.stop, str) else list(body.stop)
        if len(stops) > MOST_STOPS:
            raise ApiError(BAD_REQUEST, f"stop: at most {MOST_STOPS} strings", "stop")
        given["stop"] = [each for each in stops if each]
    if body.logit_bias:
        given["logit_bias"] = body.logit_bias
    if body.exact == "on":
        given["is_exact"] = True
    if body.ignore_eos:
        given["ignore_end"] = True
    given["structure"] = _structure(body)
    wanted = {name: value for name, value in given.items() if value is not None}
    if body.max_tokens is not None:
        wanted["max_tokens"] = limit_of(body.max_tokens, service)
    return {**service.defaults, **chosen.options, **wanted}


def limit_of(max_tokens: int, service: Service) -> int | None:
    """Return the longest answer that a request asks for; None without a limit, as -1 and 0 mean."""
    return min(max_tokens, service.facts.context) if max_tokens > 0 else None


def _structure(body: SharedFields) -> Structure | None:
    """Return the structure that the answer must have, shown to the model or not."""
    structure = structure_of(body)
    if structure is None or body.show_schema is None:
        return structure
    return replace(structure, is_shown=body.show_schema)


def think_of(effort: str | None, service: Service) -> str | None:
    """Return the value of `think` for a `reasoning_effort`; None if it says nothing.

    A level that the model does not have becomes plain reasoning; a model without a switch for
    reasoning keeps its own way.
    """
    if effort is None or not service.facts.thinking:
        return None
    if effort == "none":
        return "off" if service.facts.takes_think("off") else None
    for word in (effort, "on"):
        if service.facts.takes_think(word):
            return word
    return AUTO_THINK
