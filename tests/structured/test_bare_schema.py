"""Schemas without annotations, each part of which can be used with the whole's definitions."""

from __future__ import annotations

from typing import Any

import jsonschema_rs

from specchat.structured.bare_schema import bare_schema
from specchat.structured.schema_walk import moved
from tables import table

NAMES = ("title", "description", "default", "examples", "$comment", "const", "enum", "$ref")
INTEGER = {"type": "integer"}


def test_only_annotations_are_left_out() -> None:
    """Not properties of such names, nor parts of a constant."""
    annotations = dict.fromkeys(NAMES[:5], "x")
    schema = {
        "type": "object",
        "properties": {name: {**INTEGER, **annotations} for name in NAMES},
        "required": list(NAMES),
        "dependentRequired": {name: ["title"] for name in NAMES},
        "dependencies": {"title": ["default"]},
        "patternProperties": {"description": {"enum": [annotations, 1]}},
        **annotations,
    }

    assert bare_schema(schema) == {
        "type": "object",
        "properties": dict.fromkeys(NAMES, INTEGER),
        "required": list(NAMES),
        "dependentRequired": {name: ["title"] for name in NAMES},
        "dependencies": {"title": ["default"]},
        "patternProperties": {"description": {"enum": [annotations, 1]}},
    }


TREE = {"type": "object", "properties": {"size": INTEGER, "of": {"$ref": "#"}}}


@table(
    ("schema", "right", "wrong"),
    [
        (TREE, {"of": {"of": {"size": 1}}}, {"of": {"of": {"size": "x"}}}),
        (
            {"properties": {"a": INTEGER, "b": {"items": {"$ref": "#/properties/a"}}}},
            {"b": [1]},
            {"b": ["x"]},
        ),
        (
            {"properties": {"a": {"$ref": "#/more/a~1b"}}, "more": {"a/b": {"const": 1}}},
            {"a": 1},
            {"a": 2},
        ),
        (
            {
                "properties": {"default": {"$ref": "#/definitions/title"}},
                "definitions": {"title": {"$ref": "#/$defs/list"}, "x": {}},
                "$defs": {"list": {"items": {"$ref": "#/definitions/title"}, "type": "array"}},
            },
            {"default": [[], [[]]]},
            {"default": [[1]]},
        ),
    ],
)
def test_references_lead_to_definitions(schema: dict[str, Any], right: Any, wrong: Any) -> None:
    """The same values fit, also where a part is used elsewhere with the definitions."""
    bare = bare_schema(schema)
    definitions = bare.get("$defs", {})

    for name in schema["properties"]:
        part = {**bare["properties"][name], "$defs": definitions}
        for whole in (right, wrong):
            if name in whole:
                is_right = whole is right
                assert jsonschema_rs.is_valid(part, whole[name]) == is_right
                assert jsonschema_rs.is_valid(bare, whole) == is_right


def test_references_that_are_no_paths_stay() -> None:
    """With all definitions, among which they may lead."""
    schema = {"$defs": {"a": {"$anchor": "n", "title": "A"}}, "items": {"$ref": "#n"}}

    assert bare_schema(schema) == {"$defs": {"a": {"$anchor": "n"}}, "items": {"$ref": "#n"}}


def test_a_property_may_have_the_name_of_a_keyword_where_a_schema_is_moved() -> None:
    """References in its schema are moved all the same, and those in data are not."""
    schema = {"properties": {name: {"$ref": "#"} for name in NAMES}, "enum": [{"$ref": "#"}]}

    assert moved(schema, "#/x") == {
        "properties": {name: {"$ref": "#/x"} for name in NAMES},
        "enum": [{"$ref": "#"}],
    }
