"""The cost of checking a value by a JSON Schema, which nothing else limits."""

from collections.abc import Iterator
from typing import Any

from specchat.structured.schema_walk import IN_PLACE, Schema, target

MOST_CHECKS = 50_000
"""The most checks of a value by schemas; nested alternatives double their number."""
DEEPEST = 1000
"""How deep schemas may be nested while in use: the validator's stack is limited."""
EXPRESSION_CHECKS = 25
"""How many checks a search for an expression counts as; each hundred characters count as much."""
OF_ITEMS = ("items", "prefixItems", "additionalItems", "contains", "unevaluatedItems")
OF_OTHERS = ("additionalProperties", "unevaluatedProperties")
"""Keywords whose schemas check the properties that no other keyword describes."""
REPEATS = ("unevaluatedItems", "unevaluatedProperties")
"""Keywords for which the schemas beside them are tried once more."""


def takes_too_long(root: Schema, value: Any) -> bool:
    """Return True if checking a value by a schema could take more than a second or so."""
    num_left = MOST_CHECKS
    waiting: list[tuple[Any, Any, int]] = [(root, value, 0)]
    while waiting:
        schema, part, depth = waiting.pop()
        num_left -= _own_cost(schema, part)
        if num_left < 0 or depth > DEEPEST:
            return True
        if isinstance(schema, dict):
            waiting += [(inner, piece, depth + 1) for inner, piece in _uses(root, schema, part)]
    return False


def _own_cost(schema: Any, value: Any) -> int:
    """Return the cost of a schema by itself, without the schemas that it consists of."""
    if not isinstance(schema, dict):
        return 1
    lists = sum(len(held) for held in schema.values() if isinstance(held, list | dict))
    num_texts = int(isinstance(value, str) and ("pattern" in schema or "format" in schema))
    expressions = schema.get("patternProperties")
    if isinstance(value, dict) and isinstance(expressions, dict):
        num_texts += len(value) * len(expressions)
    length = len(value) // 100 if isinstance(value, str) else 0
    return 1 + lists // 10 + num_texts * (EXPRESSION_CHECKS + length)


def _uses(root: Schema, schema: Schema, value: Any) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas that a schema consists of, each with a part of the value they may check."""
    # the validator repeats these schemas to learn which parts of the value they cover
    times = 2 if any(name in schema for name in REPEATS) else 1
    for inner in _in_place(root, schema):
        yield from [(inner, value)] * times
    if isinstance(value, dict):
        yield from _of_object(schema, value)
    elif isinstance(value, list):
        for held in (schema[name] for name in OF_ITEMS if name in schema):
            inner = held if isinstance(held, list) else [held] * len(value)
            yield from zip(inner, value, strict=False)


def _of_object(schema: Schema, value: dict[str, Any]) -> Iterator[tuple[Any, Any]]:
    """Yield the schemas of an object's properties and of their names, each with what it checks."""
    named = schema.get("properties")
    named = named if isinstance(named, dict) else {}
    yield from ((inner, value[name]) for name, inner in named.items() if name in value)
    for inner in _held(schema, ("patternProperties",)):
        yield from ((inner, piece) for piece in value.values())
    for inner in _held(schema, OF_OTHERS):
        yield from ((inner, piece) for name, piece in value.items() if name not in named)
    for inner in _held(schema, ("propertyNames",)):
        yield from ((inner, name) for name in value)


def _in_place(root: Schema, schema: Schema) -> Iterator[Any]:
    """Yield the schemas that check the same value."""
    if "$ref" in schema:
        yield target(root, schema["$ref"])
    yield from _held(schema, (*IN_PLACE, "dependencies"))


def _held(schema: Schema, keywords: tuple[str, ...]) -> Iterator[Any]:
    """Yield the schemas of some keywords: one, several in order, or several by name."""
    for keyword in keywords:
        value = schema.get(keyword)
        if isinstance(value, list):
            yield from value
        elif keyword in {"dependentSchemas", "dependencies", "patternProperties"}:
            yield from value.values() if isinstance(value, dict) else ()
        elif value is not None:
            yield value
