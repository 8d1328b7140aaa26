"""Closes the objects of a JSON Schema: where properties are listed, no others may be written."""

from collections.abc import Iterator
from typing import Any

from specchat.structured.schema_walk import (
    IN_PLACE,
    PARTS,
    Schema,
    children,
    stray_reference,
    target,
)

UNIONS = ("anyOf", "oneOf")
SAYS_WHETHER_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties")
DESCRIBES = ("$ref", *IN_PLACE, *PARTS, "properties", "patternProperties")
"""Keywords that say what a value consists of."""
DEFINES = ("$defs", "definitions")


def close_objects(schema: Schema) -> None:
    """Add `additionalProperties: false` to objects that list properties and do not say.

    That may only take values away, and must leave some: an object that several schemas describe
    together stays open unless one of them lists everything. In a `oneOf`, at most one alternative
    may apply anyway. A schema whose references are not paths within it stays as it is.
    """
    if stray_reference(schema):
        return
    uses = list(_uses(schema))
    # a schema may be used in several ways, by references: one use that must stay open decides
    kept_open = {id(part) for part, closes in uses if not closes}
    for part, _ in uses:
        if id(part) not in kept_open and _can_close(part):
            part["additionalProperties"] = False


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
        part = waiting.pop()
        if "$ref" in part:
            yield None
        if part is not schema:
            listed = part.get("properties")
            yield from listed if isinstance(listed, dict) else ()
        for pointer, branch in children(part):
            if _keyword(pointer) in IN_PLACE and isinstance(branch, dict):
                waiting.append(branch)


def _uses(root: Schema) -> Iterator[tuple[Schema, bool]]:
    """Yield each schema in use, and whether it may be closed where it is used."""
    waiting: list[tuple[Any, bool]] = [(root, True)]
    seen: set[tuple[int, bool]] = set()
    while waiting:
        part, closes = waiting.pop()
        if not isinstance(part, dict) or (id(part), closes) in seen:
            continue
        seen.add((id(part), closes))
        yield part, closes
        # where several keywords describe the value, closing one refuses what another one asks for
        is_alone = sum(name in part for name in DESCRIBES) == 1
        waiting.append((target(root, part.get("$ref")), closes and is_alone))
        for pointer, branch in children(part):
            keyword = _keyword(pointer)
            if keyword in IN_PLACE:
                waiting.append((branch, closes and is_alone and keyword in UNIONS))
            elif keyword not in DEFINES:
                waiting.append((branch, closes and keyword not in {"contains", "propertyNames"}))


def _keyword(pointer: str) -> str:
    """Return the keyword that holds a schema, by its JSON pointer from the one around it."""
    return pointer.split("/")[1]
