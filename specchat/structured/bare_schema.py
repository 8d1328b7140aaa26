"""A JSON Schema reduced to the keywords that decide which values fit it."""

from typing import Any

from specchat.structured.schema_walk import Schema, rewritten, stray_reference, target

ANNOTATIONS = ("title", "description", "default", "examples", "$comment",
               "deprecated", "readOnly", "writeOnly")  # fmt: skip
"""Keywords that no value can violate."""
DEFINITIONS = ("$defs", "definitions")


def bare_schema(schema: Schema) -> Schema:
    """Return an equal schema without annotations, whose references lead to its own `$defs` only.

    Any part of it can therefore be used elsewhere together with these. Definitions that no
    reference leads to are left out. If a reference is not a path within the schema, all definitions
    stay as they are.
    """
    if stray_reference(schema):
        plain: Schema = rewritten(schema, _without_annotations)
        return plain
    places: dict[int, str] = {}
    waiting = list[Any]()

    def change(part: Schema) -> Schema:
        if isinstance(reference := part.get("$ref"), str):
            definition = target(schema, reference)
            if id(definition) not in places:
                places[id(definition)] = str(len(places))
                waiting.append(definition)
            part["$ref"] = f"#/$defs/{places[id(definition)]}"
        bare = _without_annotations(part)
        return {name: value for name, value in bare.items() if name not in DEFINITIONS}

    bare: Schema = rewritten(schema, change)
    defined: Schema = {}
    while len(defined) < len(waiting):
        defined[str(len(defined))] = rewritten(waiting[len(defined)], change)
    return {**bare, "$defs": defined} if defined else bare


def _without_annotations(schema: Schema) -> Schema:
    return {name: value for name, value in schema.items() if name not in ANNOTATIONS}
