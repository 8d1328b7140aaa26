"""Walking through a JSON Schema: which parts of it are schemas, and where references lead."""

from collections.abc import Callable, Iterator
from typing import Any, TypeAlias
from urllib.parse import quote, unquote

Schema: TypeAlias = dict[str, Any]

IN_PLACE = ("allOf", "anyOf", "oneOf", "not", "if", "then", "else", "dependentSchemas")
"""Keywords whose schemas apply to the same value as the schema around them."""
MAPS = ("properties", "patternProperties", "dependentSchemas", "$defs", "definitions")
"""Keywords that hold schemas by name."""
NAMED = (*MAPS, "dependencies", "dependentRequired")
"""The same, with those that hold names of others by name."""
PARTS = ("items", "prefixItems", "additionalItems", "additionalProperties", "contains",
         "propertyNames", "unevaluatedItems", "unevaluatedProperties")  # fmt: skip
"""Keywords whose schemas apply to parts of the value: one schema, or several in order."""
DATA = ("const", "enum", "default", "examples")
"""Keywords whose values are not schemas."""
NAMES_FOR_REFERENCES = ("$id", "id", "$anchor", "$dynamicAnchor", "$recursiveAnchor")
"""Keywords by which a reference may lead elsewhere than its path says."""
DYNAMIC_REFERENCES = ("$dynamicRef", "$recursiveRef")


def subschemas(root: Schema) -> Iterator[tuple[str, Schema]]:
    """Yield a schema and all schemas in it, each with its JSON pointer.

    Those that only references lead to, such as `#/components/schemas/name`, come last.
    """
    waiting: list[tuple[str, Any]] = [("#", root)]
    references: list[str] = []
    seen: set[int] = set()
    while waiting or references:
        if not waiting:
            reference = references.pop()
            waiting = [(reference, target(root, reference))]
        here, part = waiting.pop()
        if isinstance(part, dict) and id(part) not in seen:
            seen.add(id(part))
            yield here, part
            waiting += reversed(list(children(part, here)))
            if isinstance(leads_to := part.get("$ref"), str):
                references.append(leads_to)


def children(schema: Schema, pointer: str = "#") -> Iterator[tuple[str, Any]]:
    """Yield the schemas directly in a schema, with their JSON pointers; skip references."""
    for name in (*IN_PLACE, *MAPS, *PARTS):
        value = schema.get(name)
        if name in MAPS:
            named = value.items() if isinstance(value, dict) else ()
            yield from ((f"{pointer}/{name}/{_escaped(key)}", part) for key, part in named)
        elif isinstance(value, list):
            yield from ((f"{pointer}/{name}/{index}", part) for index, part in enumerate(value))
        elif isinstance(value, dict | bool):
            yield f"{pointer}/{name}", value


def target(root: Schema, reference: object) -> Any:
    """Return the schema that a reference leads to; None if it is not a path from the root."""
    if not isinstance(reference, str) or not (reference + "/").startswith("#/"):
        return None
    value: Any = root
    for name in steps_of(reference):
        if isinstance(value, dict):
            value = value.get(name)
        elif isinstance(value, list) and name.isdecimal() and int(name) < len(value):
            value = value[int(name)]
        else:
            return None
    return value


def stray_reference(schema: Schema) -> str:
    """Return why a reference in a schema is not a path to another part of it; empty if all are."""
    has_references, named_by = False, ""
    waiting: list[Any] = [schema]
    while waiting:
        part = waiting.pop()
        if isinstance(part, list):
            waiting += part
            continue
        if not isinstance(part, dict):
            continue
        for name, value in part.items():
            if isinstance(value, str):
                if name in DYNAMIC_REFERENCES or (name == "$ref" and not _is_path(schema, value)):
                    return f'a reference leads to {value[:200]}: copy that schema into "$defs"'
                has_references |= name == "$ref"
                named_by = name if name in NAMES_FOR_REFERENCES and part is not schema else named_by
            elif name not in DATA:
                waiting.append(value)
    if has_references and named_by:
        return f'references may lead elsewhere with "{named_by}" in a part of it: leave that out'
    return ""


def _is_path(schema: Schema, reference: str) -> bool:
    """Return True if a reference leads to a schema that is not an example or another value."""
    leads_to_data = any(step in DATA for step in reference.split("/"))
    return isinstance(target(schema, reference), dict | bool) and not leads_to_data


def steps_of(pointer: str) -> list[str]:
    """Return the keys that a JSON pointer names, from the root on."""
    steps = pointer.split("/")[1:]
    return [unquote(step).replace("~1", "/").replace("~0", "~") for step in steps]


def rewritten(schema: Any, change: Callable[[Schema], Schema]) -> Any:
    """Return a copy of a schema that `change` was applied to, and then to each schema in it.

    It receives copies. A property's name is never taken for a keyword.
    """
    if isinstance(schema, list):
        return [rewritten(part, change) for part in schema]
    if not isinstance(schema, dict):
        return schema
    copy = change(dict(schema))
    for name, value in copy.items():
        if name in NAMED and isinstance(value, dict):
            copy[name] = {key: rewritten(part, change) for key, part in value.items()}
        elif name not in DATA:
            copy[name] = rewritten(value, change)
    return copy


def moved(schema: Any, pointer: str) -> Any:
    """Return a schema whose references within it hold when it stands at this JSON pointer."""

    def change(part: Schema) -> Schema:
        reference = part.get("$ref")
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            part["$ref"] = pointer + reference[1:]
        return part

    return rewritten(schema, change)


def _escaped(name: str) -> str:
    return quote(name.replace("~", "~0").replace("/", "~1"), safe="~!$&'()*+,;=:@")
