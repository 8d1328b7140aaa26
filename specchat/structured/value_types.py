"""Python types as structures, and answers as values of these types."""

import json
from collections.abc import Iterator
from typing import Any, get_type_hints

import msgspec
import msgspec.inspect

from specchat.errors import InvalidAnswer, InvalidOption
from specchat.structured.structure import Structure

PYDANTIC = (("model_json_schema", "model_validate_json"), ("json_schema", "validate_json"))
"""The methods that identify a model and a TypeAdapter of pydantic: for their schema, and to read
JSON."""
PATTERNS = {
    ("format", "decimal"): r"^-?[0-9]+(\.[0-9]+)?$",
    ("contentEncoding", "base64"): ("^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"),
}
"""Regular expressions for formats that JSON Schema only names."""


def structure_of_type(kind: Any) -> Structure:
    """Return the structure of a type's values as JSON.

    The type is a msgspec Struct, dataclass, TypedDict, Enum, or anything else that msgspec knows,
    such as `list[Person]`; or a pydantic model or TypeAdapter; or a JSON Schema as a dictionary.
    Except for a dictionary, what cannot be enforced is checked afterwards. Raises InvalidOption for
    other types.
    """
    if isinstance(kind, dict):
        return Structure("json_schema", json.dumps(kind, ensure_ascii=False))
    schema = _enforceable(_schema(kind))
    return Structure("json_schema", json.dumps(schema, ensure_ascii=False), check="relaxed")


def value_of(kind: Any, text: str, invalid_reason: str = "") -> Any:
    """Return an answer as a value of the type that it was asked for.

    For a JSON Schema, that is the parsed JSON. Raises InvalidAnswer if the text is not such a
    value, for example because it was cut off, or if there is a reason why it does not fit the
    type's schema.
    """
    if invalid_reason:
        raise InvalidAnswer(invalid_reason)
    try:
        if isinstance(kind, dict):
            return msgspec.json.decode(text)
        for _, reader in PYDANTIC:
            if hasattr(kind, reader):
                return getattr(kind, reader)(text)
        return msgspec.json.decode(text, type=kind, dec_hook=_validated)
    except (ValueError, RecursionError) as error:  # those of msgspec and pydantic are ValueErrors
        reason = " ".join(str(error).split())[:200]
        raise InvalidAnswer(f"the answer is not {_name(kind)}: {reason}") from None


def _schema(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a type."""
    for schema, reader in PYDANTIC:
        if hasattr(kind, schema) and hasattr(kind, reader):
            of_kind: dict[str, Any] = getattr(kind, schema)()
            return of_kind
    try:
        return _in_order(kind, msgspec.json.schema(kind, schema_hook=_nested))
    except TypeError as error:
        reason = str(error).strip().splitlines()[-1]
        raise InvalidOption(
            f"{_name(kind)} has no JSON Schema ({reason}): use a dataclass, TypedDict, msgspec"
            " Struct or pydantic model"
        ) from None


def _in_order(kind: Any, schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema with the keys of each TypedDict in the order of its definition.

    msgspec sorts the keys by name, but a model writes them in order, and one that explains before
    it judges judges better.
    """
    for typed_dict in _typed_dicts(kind):
        keys = list(get_type_hints(typed_dict))
        of_class = schema.get("$defs", {}).get(typed_dict.__name__, {})
        properties = of_class.get("properties", {})
        if set(properties) == set(keys):
            of_class["properties"] = {key: properties[key] for key in keys}
            of_class["required"] = [key for key in keys if key in of_class.get("required", ())]
    return schema


def _typed_dicts(kind: Any) -> Iterator[type]:
    """Yield the TypedDicts that a type consists of."""
    waiting: list[Any] = [msgspec.inspect.type_info(kind)]
    seen: set[int] = set()
    while waiting:
        info = waiting.pop()
        if isinstance(info, tuple):
            waiting += info
        elif isinstance(info, msgspec.Struct) and id(info) not in seen:
            seen.add(id(info))
            waiting += [getattr(info, name) for name in info.__struct_fields__]
            if isinstance(info, msgspec.inspect.TypedDictType):
                yield info.cls


def _nested(kind: Any) -> dict[str, Any]:
    """Return the JSON Schema of a pydantic model within a type that msgspec knows."""
    if not hasattr(kind, "model_json_schema"):
        raise NotImplementedError
    schema: dict[str, Any] = kind.model_json_schema()
    if "$defs" in schema:
        raise TypeError(f"{_name(kind)} refers to other models: use a pydantic TypeAdapter")
    return schema


def _validated(kind: Any, value: Any) -> Any:
    """Return a value of a pydantic model within a type that msgspec knows."""
    if not hasattr(kind, "model_validate"):
        raise NotImplementedError
    return kind.model_validate(value)


def _enforceable(schema: Any) -> Any:
    """Return a schema with expressions in place of formats that could only be checked afterwards.

    A set's items may be repeated, since the set holds each of them once.
    """
    if isinstance(schema, list):
        return [_enforceable(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    changed = {name: _enforceable(value) for name, value in schema.items()}
    if schema.get("type") == "array" and schema.get("uniqueItems") is True:
        del changed["uniqueItems"]
    for (name, value), pattern in PATTERNS.items():
        if schema.get("type") == "string" and schema.get(name) == value:
            del changed[name]
            changed["pattern"] = pattern
    return changed


def _name(kind: Any) -> str:
    return "JSON" if isinstance(kind, dict) else str(getattr(kind, "__name__", kind))
