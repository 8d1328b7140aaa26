"""The structure that a request asks for, in any of the words that clients use for it."""

import json
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeAlias

from specchat.server.api_errors import BAD_REQUEST, ApiError
from specchat.structured.structure import Check, Structure

ANY_OBJECT = '{"type": "object"}'
FORMAT = "response_format"

Maker: TypeAlias = Callable[[Any, str], Structure | None]
"""Makes a structure of a field's value; the text is the field's name, for errors."""


class StructureFields(Protocol):
    """The fields of a request that ask for a structure."""

    response_format: Mapping[str, Any] | None
    json_schema: Mapping[str, Any] | str | None
    grammar: str | None
    structured_outputs: Mapping[str, Any] | None


def structure_of(body: StructureFields) -> Structure | None:
    """Return the structure that a request asks for; None for plain text.

    Raises ApiError for two of them, and for what is malformed.
    """
    structures: dict[str, Structure] = {}
    for name, make in MAKERS.items():
        value = getattr(body, name)
        structure = make(value, name) if value not in (None, "", {}) else None
        if structure is not None:
            structures[name] = structure
    if len(structures) > 1:
        first, second, *_ = structures
        raise ApiError(BAD_REQUEST, f"{second}: give either this or {first}", second)
    return next(iter(structures.values()), None)


def structure_of_format(given: Any, field: str) -> Structure | None:
    """Return the structure of OpenAI's `response_format`, None for text. Raises ApiError.

    A schema is in `json_schema`, or, as in the responses API and Anthropic's, beside the type.
    """
    if not isinstance(given, Mapping):
        raise ApiError(BAD_REQUEST, f"{field} must be an object with a type", field)
    kind = given.get("type")
    if kind == "text":
        return None
    if kind == "json_object":  # llama-server takes a schema here too
        return _of_schema(given.get("schema") or ANY_OBJECT, field)
    if kind == "grammar":
        return _of_grammar(given.get("grammar"), field)
    if kind != "json_schema":
        allowed = "text, json_object or json_schema"
        raise ApiError(BAD_REQUEST, f"{field}.type must be {allowed}, not {kind!r:.40}", field)
    named = given.get("json_schema", given)
    if not isinstance(named, Mapping) or "schema" not in named:
        raise ApiError(BAD_REQUEST, f"{field}: a json_schema needs a schema", field)
    check: Check = "strict" if named.get("strict", True) is not False else "relaxed"
    return _of_schema(named["schema"], field, check)


def _of_schema(given: Any, field: str, check: Check = "strict") -> Structure:
    if isinstance(given, str):
        return Structure("json_schema", given, check)
    if not isinstance(given, Mapping | bool):
        raise ApiError(BAD_REQUEST, f"{field}: a schema is an object", field)
    return Structure("json_schema", json.dumps(given), check)


def _of_expression(given: Any, field: str) -> Structure:
    if not isinstance(given, str):
        raise ApiError(BAD_REQUEST, f"{field} must be text", field)
    return Structure("regex", given, is_shown=False)


def _of_grammar(given: Any, field: str) -> Structure:
    """Return a grammar: llama.cpp's GBNF, or Lark, which has no `::=`."""
    if not isinstance(given, str):
        raise ApiError(BAD_REQUEST, f"{field}: a grammar is text", field)
    return Structure("gbnf" if "::=" in given else "lark", given, is_shown=False)


def _of_choices(given: Any, field: str) -> Structure:
    if not isinstance(given, list) or not all(isinstance(each, str) for each in given):
        raise ApiError(BAD_REQUEST, f"{field} must be a list of texts", field)
    return Structure("choices", json.dumps(given), is_shown=False)


def _hidden_schema(given: Any, field: str) -> Structure:
    structure = _of_schema(given, field)
    return Structure(structure.kind, structure.source, is_shown=False)


def _of_vllm(given: Any, field: str) -> Structure | None:
    """Return the structure of vLLM's `structured_outputs`."""
    makers: Mapping[str, Maker] = {
        "json": _hidden_schema,
        "regex": _of_expression,
        "choice": _of_choices,
        "grammar": _of_grammar,
        "json_object": lambda value, name: _hidden_schema(ANY_OBJECT, name) if value else None,
    }
    named = {name: value for name, value in given.items() if value not in (None, False)}
    if "structural_tag" in named:
        message = f"{field}.structural_tag is not supported: use tools, json, regex or grammar"
        raise ApiError(BAD_REQUEST, message, field)
    asked = [name for name in makers if name in named]
    if len(asked) != 1:
        raise ApiError(BAD_REQUEST, f"{field}: give one of {', '.join(makers)}", field)
    return makers[asked[0]](named[asked[0]], f"{field}.{asked[0]}")


MAKERS: Mapping[str, Maker] = {
    FORMAT: structure_of_format,
    "json_schema": _hidden_schema,
    "grammar": _of_grammar,
    "structured_outputs": _of_vllm,
}
"""What makes a structure of each field: OpenAI's, llama-server's two, and vLLM's.

The prompt describes only OpenAI's to the model, as other servers leave the prompt as it is."""
