"""Closing the objects of a JSON Schema: where it lists properties, no others are written."""

from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import unquote

Schema: TypeAlias = dict[str, Any]

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose schemas apply to the same value as the schema that they are in."""
UNIONS = ("anyOf", "oneOf")
MAPS = ("properties", "patternProperties")
ITEMS = ("items", "prefixItems", "additionalItems", "additionalProperties")
SAYS_WHETHER_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")
MAKES_NAMES = ("$id", "id", "$anchor", "$dynamicAnchor", "$dynamicRef", "$recursiveRef")
"""Keywords with which a reference may lead elsewhere than its path says."""


class _OtherReference(Exception):
    """Raised for a reference that is no path within the schema."""


def close_objects(schema: Schema) -> None:
    """Add `additionalProperties: false` to objects that list properties and do not say.

    That may only take values away, and must leave some: an object that several schemas describe
    together stays open unless one of them lists everything. In a `oneOf`, at most one alternative
    may hold anyway. A schema whose references are no paths within it stays as it is.
    """
    wanted: dict[int, Schema] = {}
    kept_open: set[int] = set()
    try:
        for each, closes in _places(schema):
            if closes:
                wanted[id(each)] = each
            else:
                kept_open.add(id(each))
    except _OtherReference:
        return
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
            yield from each.get("properties") or ()
        waiting += [branch for _, branch in _in_place(each)]


def _places(root: Schema) -> Iterator[tuple[Schema, bool]]:
    """Yield each schema in use, and whether it may be closed in the place where it is used."""
    waiting: list[tuple[Any, bool]] = [(root, True)]
    seen: set[tuple[int, bool]] = set()
    while waiting:
        each, closes = waiting.pop()
        if not isinstance(each, dict) or (id(each), closes) in seen:
            continue
        seen.add((id(each), closes))
        yield each, closes
        if each is not root and any(name in each for name in MAKES_NAMES):
            raise _OtherReference
        is_alone = _is_alone(each)
        for name, branch in _in_place(each):
            waiting.append((branch, closes and is_alone and name in UNIONS))
        if "$ref" in each:
            waiting.append((_target(root, each["$ref"]), closes and is_alone))
        waiting += [(part, closes) for part in _parts(each)]


def _is_alone(schema: Schema) -> bool:
    """Return True if one keyword alone says what a value consists of."""
    return sum(name in schema for name in ("$ref", *IN_PLACE, *MAPS, *ITEMS)) == 1


def _in_place(schema: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield the schemas that apply to the same value, with their keywords."""
    for name in IN_PLACE:
        value = schema.get(name)
        if name == "dependentSchemas" and isinstance(value, dict):
            value = list(value.values())
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield name, each


def _parts(schema: Schema) -> Iterator[Any]:
    """Yield the schemas of a value's properties and items."""
    for name in MAPS:
        if isinstance(value := schema.get(name), dict):
            yield from value.values()
    for name in ITEMS:
        value = schema.get(name)
        yield from value if isinstance(value, list) else [value]


def _target(root: Schema, reference: object) -> Any:
    """Return what a reference points to. Raises _OtherReference if it is no path from the root."""
    if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
        raise _OtherReference
    place: Any = root
    for step in reference.split("/")[1:]:
        name = unquote(step).replace("~1", "/").replace("~0", "~")
        if isinstance(place, dict) and name in place:
            place = place[name]
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            raise _OtherReference
    return place
