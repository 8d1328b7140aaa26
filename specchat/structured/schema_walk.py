"""Walking through a JSON Schema: which parts of it are schemas, and where references lead."""

from collections.abc import Iterator
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

Schema: TypeAlias = dict[str, Any]

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose schemas apply to the same value as the schema that they are in."""
MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords that hold schemas by name."""
PARTS = ("items", "prefixItems", "additionalItems", "additionalProperties", "contains",
         "propertyNames", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
"""Keywords whose schemas apply to parts of the value: one schema, or several in order."""
DATA = ("const", "enum", "default", "examples")
"""Keywords whose values are no schemas."""


def subschemas(root: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield a schema and all schemas in it, each with its place as a JSON pointer.

    Those that only references lead to, such as `#/components/schemas/name`, come last.
    """
    waiting: list[tuple[str, Any]] = [("#", root)]
    references: list[str] = []
    seen: set[int] = set()
    while waiting or references:
        if not waiting:
            reference = references.pop()
            waiting = [(reference, target(root, reference))]
        here, each = waiting.pop()
        if isinstance(each, dict) and id(each) not in seen:
            seen.add(id(each))
            yield here, each
            waiting += reversed(list(children(each, here)))
            if isinstance(leads_to := each.get("$ref"), str):
                references.append(leads_to)


def children(schema: Schema, place: str = "#") -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly in a schema, with their places; references are not followed."""
    for name in (*IN_PLACE, *MAPS, *PARTS):
        value = schema.get(name)
        if name in MAPS:
            named = value.items() if isinstance(value, dict) else ()
            yield from ((f"{place}/{name}/{_escaped(key)}", each) for key, each in named)
        elif isinstance(value, list):
            yield from ((f"{place}/{name}/{index}", each) for index, each in enumerate(value))
        elif isinstance(value, dict | bool):
            yield f"{place}/{name}", value


def target(root: Schema, reference: object) -> Any:
    """Return what a reference leads to; None if it is no path from the root to a schema."""
    if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
        return None
    place: Any = root
    for name in steps_of(reference):
        if isinstance(place, dict):
            place = place.get(name)
        elif isinstance(place, list) and name.isdecimal() and int(name) < len(place):
            place = place[int(name)]
        else:
            return None
    return place


def steps_of(place: str) -> list[str]:
    """Return the keys that lead from the root to a place."""
    steps = place.split("/")[1:]
    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in steps]


def moved(schema: Any, place: str) -> Any:
    """Return a schema whose references within it hold when it stands at this place."""
    if isinstance(schema, list):
        return [moved(each, place) for each in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: each if name in DATA else moved(each, place) for name, each in schema.items()}
    reference = copy.get("$ref")
    if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
        copy["$ref"] = place + reference[1:]
    return copy


def _escaped(name: str) -> str:
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@")
