"""Finds schemas that no finite text fits, because each value must contain another one."""

from collections.abc import Iterator
from typing import Any

from specchat.structured.schema_walk import Schema, subschemas, target

MOST_ROUNDS = 50
"""How many rounds to make; a schema that would need more is not refused."""
SCALARS = ("string", "number", "integer", "boolean", "null")


def endless_pointer(root: Schema) -> str | None:
    """Return the JSON pointer to a schema that no finite value fits; None if there is none.

    Only endless nesting counts: a schema that no value fits at all counts as finite.
    """
    schemas = list(reversed([*subschemas(root)]))
    finite: set[int] = set()
    for _ in range(MOST_ROUNDS):
        added = {
            id(part)
            for _, part in schemas
            if id(part) not in finite and _is_finite(root, part, finite)
        }
        if not added:
            break
        finite |= added
    else:
        return None
    return next((pointer for pointer, part in reversed(schemas) if id(part) not in finite), None)


def _is_finite(root: Schema, schema: Schema, finite: set[int]) -> bool:
    """Return True if some value fits, as far as the parts that are known to be finite show."""

    def fits(part: Any) -> bool:
        return not isinstance(part, dict) or id(part) in finite

    if "$ref" in schema and not fits(target(root, schema["$ref"])):
        return False
    if not all(map(fits, _listed(schema, "allOf"))):
        return False
    if any(schema.get(name) and not any(map(fits, _listed(schema, name)))
           for name in ("anyOf", "oneOf")):  # fmt: skip
        return False
    if "const" in schema or "enum" in schema:
        return True
    types = schema.get("type", SCALARS)
    return any(
        all(map(fits, _needed(schema, kind)))
        for kind in (types if isinstance(types, list | tuple) else [types])
    )


def _needed(schema: Schema, kind: Any) -> Iterator[Any]:
    """Yield the schemas of the parts that each value of a type has."""
    if kind == "object":
        properties = schema.get("properties")
        described = properties if isinstance(properties, dict) else {}
        names = [name for name in _listed(schema, "required") if isinstance(name, str)]
        yield from (described.get(name, schema.get("additionalProperties")) for name in names)
    if kind == "array" and isinstance(fewest := schema.get("minItems"), int) and fewest > 0:
        first = _listed(schema, "prefixItems") or _listed(schema, "items")
        yield from first[:fewest]
        if fewest > len(first):
            yield schema.get("items")


def _listed(schema: Schema, name: str) -> list[Any]:
    value = schema.get(name)
    return value if isinstance(value, list) else []
