"""The short form of a schema: `name, age int, bio: a short bio`, as Simon Willison's llm has it."""

from typing import Any

from specchat.errors import InvalidOption, nearest

TYPES = {
    "str": "string",
    "string": "string",
    "int": "integer",
    "integer": "integer",
    "float": "number",
    "number": "number",
    "bool": "boolean",
    "boolean": "boolean",
}
LIST_MARK = "[]"


def schema_of_short_form(text: str) -> dict[str, Any]:
    """Return the JSON Schema of fields separated by commas or on lines of their own.

    A field consists of its name, its type unless that is `str`, and its meaning after a colon.
    `tags str[]` is a list. Raises InvalidOption for anything else.
    """
    separator = "\n" if "\n" in text.strip() else ","
    fields = [field.strip() for field in text.split(separator) if field.strip()]
    if not fields:
        raise InvalidOption('the schema has no fields: write some, such as "name, age int"')
    properties = dict(map(_property, fields))
    if len(properties) < len(fields):
        raise InvalidOption(f'the schema "{text.strip()}" has a field twice: name each field once')
    return {"type": "object", "properties": properties, "required": list(properties)}


def _property(field: str) -> tuple[str, dict[str, Any]]:
    """Return a field's name and its schema."""
    head, _, meaning = field.partition(":")
    name, *types = head.split() or [""]
    if not name or len(types) > 1 or not name.replace("-", "_").isidentifier():
        raise InvalidOption(
            f'the field "{field}" of the schema is not a name, a type and ": meaning";'
            " put fields on lines of their own if a meaning contains a comma"
        )
    kind = types[0] if types else "str"
    schema = _type(kind.removesuffix(LIST_MARK), field)
    if kind.endswith(LIST_MARK):
        schema = {"type": "array", "items": schema}
    return name, {**schema, **({"description": meaning.strip()} if meaning.strip() else {})}


def _type(kind: str, field: str) -> dict[str, Any]:
    if kind not in TYPES:
        raise InvalidOption(
            f'the field "{field}" of the schema has the unknown type "{kind}"'
            f"{nearest(kind, TYPES)}: use str, int, float or bool"
        )
    return {"type": TYPES[kind]}
