"""Reads the structures that users type or send."""

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from specchat.errors import InvalidOption
from specchat.structured.schema_walk import moved
from specchat.structured.short_form import schema_of_short_form
from specchat.structured.structure import NAMES, Structure, require_text

ANY_OBJECT = '{"type": "object"}'
JSON = "json"
"""The word for any JSON object."""
ITEMS = "items"
"""The property that a list is wrapped in."""
LARGEST_FILE = 1 << 20
GBNF_RULE = re.compile(r"^[ \t]*[\w-]+[ \t]*::=", re.MULTILINE)


def structure_of_schema(text: str, *, is_list: bool = False) -> Structure:
    """Return the structure of a schema that a user typed.

    That is a file, whose path may begin with ~, JSON text, the short form `name, age int`, or the
    word `json` for any object.
    With `is_list`, the answer is an object whose `items` are a list of what the schema describes.
    Raises InvalidOption for a file that cannot be read and for text that is none of these.
    """
    schema = _typed_schema(text)
    return structure_of_json_schema(_listed(schema) if is_list else schema)


def schema_file(text: str) -> Path | None:
    """Return the absolute path of the file that a typed schema names; None for any other text."""
    typed = text.strip()
    if typed == JSON or typed.startswith("{"):
        return None
    try:
        path = Path(typed).expanduser().absolute()
        return path if path.is_file() else None
    except (OSError, RuntimeError, ValueError):
        return None  # too long for a name, with a zero, or in the home of a user who is not known


def structure_of_json_schema(schema: object) -> Structure:
    """Return the structure of a JSON Schema given as an object. Raises InvalidOption otherwise."""
    if not isinstance(schema, dict | bool):
        raise InvalidOption(f"the JSON Schema must be an object, such as {ANY_OBJECT}")
    try:
        return Structure("json_schema", json.dumps(schema, ensure_ascii=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidOption(f"the JSON Schema is not JSON: {error}") from None


def structure_of_choices(choices: str | Sequence[str]) -> Structure:
    """Return the structure of a choice: texts, or one text that separates them by commas.

    A text may also be a JSON array. Raises InvalidOption if there is nothing to choose from.
    """
    texts = _typed_choices(choices) if isinstance(choices, str) else choices
    if not texts or not all(texts):
        raise InvalidOption('the choices must be texts, such as "yes,no"')
    return Structure("choices", json.dumps(list(dict.fromkeys(texts)), ensure_ascii=False))


def structure_of_regex(expression: str) -> Structure:
    """Return the structure of a regular expression that the whole answer matches."""
    if not expression:
        raise InvalidOption("the regular expression is empty: give one, such as [0-9]+")
    return Structure("regex", expression)


def structure_of_grammar(source: str) -> Structure:
    """Return the structure of a grammar in Lark or, as llama.cpp has it, in GBNF."""
    if not source.strip():
        raise InvalidOption('the grammar is empty: give a rule, such as start: "yes" | "no"')
    return Structure("gbnf" if GBNF_RULE.search(source) else "lark", source)


def structure_of_grammar_file(path: Path) -> Structure:
    """Return the structure of a grammar in a file. Raises InvalidOption if it cannot be read."""
    return structure_of_grammar(_read(path))


def _typed_schema(text: str) -> Any:
    typed = text.strip()
    if typed == JSON:
        return json.loads(ANY_OBJECT)
    if typed.startswith("{"):
        require_text(typed, NAMES["json_schema"])
        return _parsed(typed, NAMES["json_schema"])
    if path := schema_file(typed):
        return _parsed(_read(path), str(path))
    if typed.endswith(".json") or "/" in typed.partition(":")[0]:
        raise InvalidOption(
            f"no file {typed}: give a JSON Schema file, or fields such as name, age int"
        )
    return schema_of_short_form(text)


def _typed_choices(text: str) -> list[str]:
    if not text.strip().startswith("["):
        return [choice.strip() for choice in text.split(",") if choice.strip()]
    require_text(text, NAMES["choices"])
    try:
        return msgspec.json.decode(text, type=list[str])
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(f"the choices must be a JSON array of strings: {error}") from None


def _parsed(text: str, name: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(f"{name} is not valid JSON: {error}") from None


def _read(path: Path) -> str:
    """Return a text file's content. Raises InvalidOption if it cannot be read."""
    try:
        with path.open("rb") as file:
            content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise InvalidOption(f"{path} is larger than 1 MiB: give a smaller schema or grammar")
        return content.decode("utf-8-sig")
    except OSError as error:
        raise InvalidOption(f"cannot read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise InvalidOption(f"{path} is not a text file in UTF-8") from None


def _listed(schema: Any) -> Any:
    """Return the schema of an object whose `items` are a list of what a schema describes."""
    inner = moved(schema, f"#/properties/{ITEMS}/items")
    outer: dict[str, Any] = {"type": "object", "properties": {}, "required": [ITEMS]}
    if isinstance(inner, dict) and "$schema" in inner:
        outer["$schema"] = inner.pop("$schema")
    outer["properties"][ITEMS] = {"type": "array", "items": inner}
    return outer
