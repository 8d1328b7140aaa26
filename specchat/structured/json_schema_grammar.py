"""Turns a JSON Schema into a grammar of JSON on one line."""

import json
from collections.abc import Iterator, Sequence
from itertools import chain
from typing import Any

import msgspec
from llguidance import LLMatcher

from specchat.errors import InvalidOption
from specchat.structured.closing import close_objects
from specchat.structured.endless import endless_pointer
from specchat.structured.schema_faults import (
    LIMITS,
    Complaint,
    excesses,
    pointer_of,
    refusal,
    schema_at,
)
from specchat.structured.schema_walk import Schema, subschemas

ONE_LINE = {
    "item_separator": ", ",
    "key_separator": ": ",
    "whitespace_flexible": False,
    "whitespace_pattern": None,
    "coerce_one_of": False,
    "lenient": False,
    "json_allowed_escapes": None,
    "json_allow_general_unicode_escapes": False,
}
"""How JSON is written: in one line, as Python's json.dumps does. Each of llguidance's options is
set, for a schema can name others."""
RELAXED = {**ONE_LINE, "coerce_one_of": True, "lenient": True}
MOST_DROPPED = 16
"""How many keywords a relaxed schema may leave out that llguidance does not know how to ignore."""
DEEPEST = 110
CANNOT = "the JSON Schema cannot be enforced"


def json_schema_entry(source: str, *, is_relaxed: bool) -> tuple[dict[str, Any], list[str]]:
    """Return one of llguidance's grammars for a JSON Schema, and notices of what it leaves out.

    Objects are closed where they list properties. What cannot be enforced raises InvalidOption, or
    is left out if the check is relaxed.
    """
    schema = read_schema(source)
    notices = list(_relaxed(schema)) if is_relaxed else []
    if not is_relaxed:
        _require_accepted(schema)
    if pointer := endless_pointer(schema):
        raise InvalidOption(
            f"{CANNOT}: at {pointer}, each value needs another one within it, without end: make one"
            " of its properties optional"
        )
    close_objects(schema)
    options = RELAXED if is_relaxed else ONE_LINE
    return {"json_schema": {**schema, "x-guidance": options}}, notices


def read_schema(source: str) -> Schema:
    """Return a JSON Schema as an object. Raises InvalidOption for anything else."""
    try:
        schema = msgspec.json.decode(source)
    except (msgspec.DecodeError, RecursionError) as error:
        raise InvalidOption(f"the JSON Schema is not valid JSON: {error}") from None
    if _is_deep(schema):
        raise InvalidOption(f"{CANNOT}: it nests more than {DEEPEST} levels deep: simplify it")
    if isinstance(schema, bool):
        schema = {} if schema else {"enum": []}
    if not isinstance(schema, dict):
        raise InvalidOption('the JSON Schema must be an object, such as {"type": "object"}')
    return schema


def _is_deep(value: Any) -> bool:
    """Return True for a value that nests deeper than llguidance reads."""
    level = [value]
    for _ in range(DEEPEST):
        objects = [part.values() for part in level if isinstance(part, dict)]
        lists = [part for part in level if isinstance(part, list)]
        level = list(chain(*objects, *lists))
    return bool(level)


def _require_accepted(schema: Schema) -> None:
    """Raise InvalidOption for a schema that cannot be enforced."""
    for pointer, keyword, _ in excesses(schema):
        raise _excessive(pointer, keyword)
    is_refused, messages = _verdict(schema, ONE_LINE)
    if is_refused:
        raise InvalidOption(f"{CANNOT}: {refusal(schema, messages[0])}")


def _excessive(pointer: str, keyword: str) -> InvalidOption:
    return InvalidOption(
        f'{CANNOT}: "{keyword}" at {pointer} takes too long to compile: simplify it'
    )


def _relaxed(schema: Schema) -> Iterator[str]:
    """Take out of a schema what cannot be enforced; yield a notice for each such keyword.

    Raises InvalidOption for what is wrong, or cannot be left out.
    """
    for pointer, keyword, part in list(excesses(schema)):
        if keyword == "properties":
            raise _excessive(pointer, keyword)
        yield _dropped(part, pointer, keyword)
    is_refused, messages = _verdict(schema, RELAXED)
    # llguidance names one fault at a time, so each is taken out before the next is known
    for _ in range(MOST_DROPPED if is_refused else 0):
        pointer = pointer_of(schema, messages[0])
        part = schema_at(schema, pointer)
        kind, names = Complaint.read(messages[0])
        keywords = [name for name in names if kind == "other" and name in part]
        yield from [_dropped(part, pointer, keyword) for keyword in keywords]
        is_refused, messages = _verdict(schema, RELAXED)
        if not (is_refused and keywords):
            break
    if is_refused:
        raise InvalidOption(f"{CANNOT}: {refusal(schema, messages[0])}")
    yield from _ignored(schema, messages)


def _dropped(part: Schema, pointer: str, keyword: str) -> str:
    """Take a keyword out of a part of a schema, and return the notice that names both."""
    del part[keyword]
    return _notice(keyword, pointer)


def _notice(keyword: str, pointer: str) -> str:
    return f'"{keyword}" at {pointer} of the JSON Schema is not enforced'


def _ignored(schema: Schema, warnings: Sequence[str]) -> Iterator[str]:
    """Yield a notice for each keyword and format that llguidance ignores, wherever they are.

    Limits on the number of properties are taken out, because llguidance would count the wrong ones.
    """
    keywords: set[str] = set()
    formats: set[str] = set()
    miscounted: set[str] = set()
    for warning in warnings:
        kind, names = Complaint.read(warning)
        match kind:
            case "keywords":
                keywords.update(names)
            case "format":
                formats.update(names)
            case "alternatives":
                yield '"oneOf" of the JSON Schema is enforced as "anyOf"'
            case "other":
                miscounted.update(names)
    noticed: set[str] = set()
    for pointer, part in list(subschemas(schema)):
        if "properties" in part:
            yield from [_dropped(part, pointer, name) for name in miscounted if name in part]
        ignored = [name for name in part if name in keywords]
        ignored += ["format"] if part.get("format") in formats else []
        yield from [_notice(name, pointer) for name in ignored]
        noticed.update(ignored)
    elsewhere = {*keywords, *(["format"] if formats else [])} - noticed  # where references lead
    yield from [f'"{name}" of the JSON Schema is not enforced' for name in sorted(elsewhere)]


def _verdict(schema: Schema, options: dict[str, Any]) -> tuple[bool, list[str]]:
    """Return whether llguidance refuses a schema, and the reason or its warnings."""
    grammar = json.dumps({"grammars": [{"json_schema": {**schema, "x-guidance": options}}]})
    return LLMatcher.validate_grammar_with_warnings(grammar, None, limits=LIMITS)
