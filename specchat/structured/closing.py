"""Closing the objects of a JSON Schema: where it lists properties, no others are written."""

from collections.abc import Iterator
from typing import Any

from specchat.structured.schema_walk import IN_PLACE, PARTS, Schema, children, target

UNIONS = ("anyOf", "oneOf")
SAYS_WHETHER_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")
DESCRIBES = ("$ref", *IN_PLACE, *PARTS, "properties", "patternProperties")
"""Keywords that say what a value consists of."""
DEFINES = ("$defs", "definitions")
MAKES_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef")
"""Keywords with which a reference may lead elsewhere than its path says."""


def close_objects(schema: Schema) -> None:
    """Add `additionalProperties: false` to objects that list properties and do not say.

    That may only take values away, and must leave some: an object that several schemas describe
    together stays open unless one of them lists everything. In a `oneOf`, at most one alternative
    may hold anyway. A schema whose references are no paths within it stays as it is.
    """
    wanted: dict[int, Schema] = {}
    kept_open: set[int] = set()
    for each, closes in _uses(schema):
        if each is not schema and any(name in each for name in MAKES_NAMES):
            return
        if "$ref" in each and target(schema, each["$ref"]) is None:
            return
        if closes:
            wanted[id(each)] = each
        else:
            kept_open.add(id(each))
    for place, each in wanted.items():
        if place not in kept_open and _can_close(each):
            each["additionalProperties"] = False


def _can_close(schema: Schema) -> bool:
    """Return True if a schema lists properties, and no other part of it allows more."""
    own = schema.get("properties")
    if not isinstance(own, dict) or any(name in schema for name in SAYS_WHETHER_OPEN):
        return False
    return all(name in own for name in _names_beside(schema))


def _names_beside(schema: Schema) -> Iterator[str | None]:
    """Yield the properties that other schemas of the same value list; None if any may be."""
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if "$ref" in each:
            yield None
        if each is not schema:
            listed = each.get("properties")
            yield from listed if isinstance(listed, dict) else ()
        for place, branch in children(each):
            if _keyword(place) in IN_PLACE and isinstance(branch, dict):
                waiting.append(branch)


def _uses(root: Schema) -> Iterator[tuple[Schema, bool]]:
    """Yield each schema in use, and whether it may be closed in the place where it is used."""
    waiting: list[tuple[Any, bool]] = [(root, True)]
    seen: set[tuple[int, bool]] = set()
    while waiting:
        each, closes = waiting.pop()
        if not isinstance(each, dict) or (id(each), closes) in seen:
            continue
        seen.add((id(each), closes))
        yield each, closes
        is_alone = sum(name in each for name in DESCRIBES) == 1
        waiting.append((target(root, each.get("$ref")), closes and is_alone))
        for place, branch in children(each):
            keyword = _keyword(place)
            if keyword in IN_PLACE:
                waiting.append((branch, closes and is_alone and keyword in UNIONS))
            elif keyword not in DEFINES:
                waiting.append((branch, closes and keyword not in {"contains", "propertyNames"}))


def _keyword(place: str) -> str:
    """Return the keyword that holds a schema, by its place in another one."""
    return place.split("/")[1]
