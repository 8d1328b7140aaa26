"""The line of the prompt that describes the answer's structure to the model."""

import json
from typing import Any

import msgspec

from specchat.structured.structure import Structure

LONGEST_SHOWN = 4000
"""Characters of a schema or grammar that are shown; a longer one is enforced all the same."""


def description_of(structure: Structure) -> str:
    """Return one line for the system prompt, which says what the answer must look like.

    Masks alone make an answer valid, but a model that does not know of them writes poor values.
    """
    source = structure.source
    match structure.kind:
        case "json_schema":
            return _of_schema(source)
        case "choices":
            return f"Answer with one of these and nothing else: {source[1:-1]}"
        case "regex":
            expression = source.replace("\n", r"\n")
            return _shown("Answer only with text that matches this regular expression", expression)
        case "lark" | "gbnf":
            rules = " ".join(source.split())
            return _shown("Answer only with text that follows this grammar", rules)


def _of_schema(source: str) -> str:
    try:
        schema: Any = msgspec.json.decode(source)
    except (msgspec.DecodeError, RecursionError):  # it is refused where it is compiled
        schema = None
    named = schema if isinstance(schema, dict) else {}
    shown = {name: value for name, value in named.items() if name != "$schema"}
    if shown in ({}, {"type": "object"}):
        return f"Answer only with {'a JSON object' if shown else 'JSON'}, in one line."
    line = json.dumps(shown, ensure_ascii=False)
    return _shown("Answer only with JSON, in one line, that matches this JSON Schema", line)


def _shown(request: str, line: str) -> str:
    """Return a request with a schema or grammar, if that is not too long to be shown."""
    is_short = len(line) <= LONGEST_SHOWN
    return f"{request}: {line}" if is_short else f"{request.partition(' that ')[0]}."
