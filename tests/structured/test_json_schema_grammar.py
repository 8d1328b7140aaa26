"""JSON Schemas as grammars: closed objects, refusals with place and keyword, relaxed checks."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specchat.errors import InvalidOption
from specchat.structured.closing import close_objects
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import LONGEST, grammar_of
from specchat.structured.structure import Check, Structure, StructureKind
from structured.toy_vocabulary import TOY, written
from tables import table

TEXT = {"type": "string"}


def listing(*names: str, **more: Any) -> dict[str, Any]:
    """Return the schema of an object that lists properties."""
    return {"properties": dict.fromkeys(names, TEXT), **more}


def accepts(schema: Any, text: str, check: Check = "strict") -> bool:
    """Return True if a text may be written for a schema."""
    structure = Structure("json_schema", json.dumps(schema), check)
    constraint = GrammarConstraint(grammar_of(structure), TOY)
    try:
        for token in written(text):
            constraint.push(token)
    except InvalidOption:
        return False
    return constraint.is_complete


def refusal(schema: Any, check: Check = "strict") -> str:
    """Return why a schema is refused."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    with pytest.raises(InvalidOption) as caught:
        grammar_of(Structure("json_schema", text, check))
    assert "\n" not in str(caught.value)
    return str(caught.value)


CLOSED = {
    "lists properties": listing("a"),
    "within items": {"items": listing("a")},
    "in alternatives": {"anyOf": [listing("a"), {"type": "null"}]},
    "by reference": {"$defs": {"a/b": listing("a")}, "items": {"$ref": "#/$defs/a~1b"}},
    "of itself": {"properties": {"a": {"anyOf": [{"$ref": "#"}, {"type": "null"}]}}},
    "with a condition on what it lists": listing(
        "a", "b", anyOf=[{"required": ["a"]}, listing("b")]
    ),
    "in exclusive alternatives": {"oneOf": [listing("a", type="object"), {"type": "null"}]},
}
OPEN = {
    "says so": listing("a", additionalProperties=True),
    "says what others may be": listing("a", patternProperties={"^x": {}}),
    "lists nothing": {"type": "object"},
    "in an intersection": {"allOf": [listing("a"), listing("b")]},
    "with others beside it": listing("a", anyOf=[listing("b")]),
    "beside a reference": {"$defs": {"x": {}}, **listing("a", **{"$ref": "#/$defs/x"})},
    "also used in an intersection": {
        "$defs": {"x": listing("a")},
        "items": {"allOf": [{"$ref": "#/$defs/x"}, {}]},
        "properties": {},
        "additionalProperties": {"$ref": "#/$defs/x"},
    },
    "negated": {"not": listing("a")},
    "a condition": {"if": listing("a"), "then": {}},
    "only data": {"const": listing("a"), "enum": [listing("a")], "default": listing("a")},
    "named by an anchor": {"$defs": {"x": listing("a", **{"$anchor": "x"})}, "$ref": "#x"},
    "with a broken reference": {**listing("a"), "$defs": {"x": {}}, "items": {"$ref": "#/nowhere"}},
}


@table("schema", CLOSED.values(), ids=CLOSED)
def test_an_object_that_lists_its_properties_is_closed(schema: dict[str, Any]) -> None:
    """Wherever it is all that describes the value."""
    closed = json.loads(json.dumps(schema))
    close_objects(closed)
    assert json.dumps(closed).count('"additionalProperties": false') == 1


@table("schema", OPEN.values(), ids=OPEN)
def test_other_objects_stay_as_they_are(schema: dict[str, Any]) -> None:
    """Closing these could make what fits refused, or what does not fit accepted."""
    copy = json.loads(json.dumps(schema))
    close_objects(copy)
    assert copy == schema


def test_closing_leaves_values_that_fit() -> None:
    """Several parts of a schema that describe one object together are all written."""
    both = {"type": "object", "allOf": [listing("a", required=["a"]), listing("b", required=["b"])]}
    assert accepts(both, '{"a": "x", "b": "y"}')
    assert not accepts({"type": "object", **listing("a")}, '{"b": "y"}')


REFUSED = {
    'at #/items, "contains" and "uniqueItems" cannot be enforced: leave it out or relax': {
        "items": {"uniqueItems": True, "contains": {}}
    },
    'at its top level, "not" cannot be enforced': {"not": {}},
    'at #/properties/a~1b/items, the format "idn-email" is unknown: leave it out or relax': {
        "properties": {"a/b": {"items": {"format": "idn-email"}}}
    },
    'at #/properties/x, the alternatives of "oneOf" may overlap: write "anyOf"': {
        "properties": {"x": {"oneOf": [TEXT, {**TEXT, "maxLength": 3}]}}
    },
    'at #/$defs/n/properties/k, "pattern": unclosed character class: correct it': {
        "$defs": {"n": {"properties": {"k": {**TEXT, "pattern": "["}}}},
        "items": {"$ref": "#/$defs/n"},
    },
    'at #/properties/a, "minimum": Failed to generate regex': {
        "properties": {"a": {"type": "number", "minimum": 1e308}}
    },
    "at #/anyOf/0, Invalid type: strin: correct it": {"anyOf": [{"type": "strin"}]},
    "nothing fits: minimum (2) is greater": {"allOf": [{"const": 1}, {"const": 2}]},
    'a reference leads to http://other.example/: copy that schema into "$defs"': {
        "$ref": "http://other.example/"
    },
    "Pointer '/a' does not exist": {"$ref": "#/a"},
    "at #, each value needs another one within it, without end: make one": {
        "properties": {"a": {"$ref": "#"}}, "required": ["a"], "type": "object"
    },
    '"multipleOf" at #/items takes too long to compile: simplify it': {
        "items": {"type": "integer", "multipleOf": 999_983}
    },
    '"multipleOf" at # takes too long': {"type": "integer", "multipleOf": 10**9},
    "Expected f64 for 'multipleOf', got true": {"type": "number", "multipleOf": True},
    '"pattern" at #/items takes too long': {"items": {"pattern": "a" * 9000}},
    '"properties" at # takes too long': {"properties": {f"p{i}": {} for i in range(2000)}},
    '"patternProperties" at # takes too long': {
        "patternProperties": {f"^p{i}": {} for i in range(100)}
    },
    "it nests more than 110 levels deep": {"required": json.loads("[" * 300 + "]" * 300)},
    "must be an object": "[]",
    "is not valid JSON": "{",
    "is not valid JSON: maximum recursion": "[" * 100_000,
    "is longer than 262144 characters": " " * (LONGEST["json_schema"] + 1),
}  # fmt: skip


@table(("message", "schema"), REFUSED.items(), ids=REFUSED)
def test_a_refused_schema_is_explained(message: str, schema: Any) -> None:
    """One line names the place, the keyword and the next step."""
    assert message in refusal(schema)


@table(
    "schema",
    [
        {"$ref": "#"},
        {"allOf": [{"$ref": "#"}]},
        {"anyOf": [{"$ref": "#"}, {"type": "array", "items": {"$ref": "#"}, "minItems": 1}]},
        {"type": "array", "prefixItems": [{"$ref": "#"}], "minItems": 1},
        {"$ref": "#/own", "own": {"type": "array", "items": {"$ref": "#/own"}, "minItems": 1}},
        {"type": ["object", "array"], "minItems": 2, "items": {"$ref": "#"}, "required": ["x"],
         "additionalProperties": {"$ref": "#"}},
    ],
)  # fmt: skip
def test_an_endless_schema_is_refused(schema: dict[str, Any]) -> None:
    """Each value would need another one within it."""
    assert "without end" in refusal(schema)


@table(
    "schema",
    [
        {"properties": {"a": {"$ref": "#"}}, "type": "object"},
        {"type": "array", "items": {"$ref": "#"}},
        {"anyOf": [{"type": "array", "items": {"$ref": "#"}, "minItems": 1}, {"type": "null"}]},
        {"type": ["object", "null"], "properties": {"a": {"$ref": "#"}}, "required": ["a"]},
        {"properties": {"a": {"$ref": "#"}}, "required": ["a"], "enum": [1]},
        {
            "$ref": "#/components/schemas/a",
            "components": {
                "schemas": {"a": {"type": "array", "items": {"$ref": "#/components/schemas/a"}}}
            },
        },
    ],
)
def test_a_schema_of_itself_may_end(schema: dict[str, Any]) -> None:
    """Where a value can do without another one within it."""
    assert grammar_of(Structure("json_schema", json.dumps(schema))).notices == ()


RELAXED = {
    '"uniqueItems" at #': ({"uniqueItems": True, "type": "array"}, "[1, 1]", "{}"),
    '"format" at #/items': ({"type": "array", "items": {**TEXT, "format": "odd"}}, '["a"]', "[1]"),
    '"pattern" at #/items': ({"items": {**TEXT, "pattern": "^(?=a)b"}}, '["b"]', "[1]"),
    '"minimum" at #': ({"type": "number", "minimum": 1e308}, "1", '"a"'),
    '"multipleOf" at #': ({"type": "integer", "multipleOf": 999_983}, "5", "1.5"),
    '"oneOf" of the JSON Schema is enforced as "anyOf"': (
        {"oneOf": [{**TEXT, "minLength": 1}, {**TEXT, "maxLength": 2}]}, '"a"', "1"
    ),
    '"uniqueItems" at #/own/list': (
        {"$ref": "#/own/list", "own": {"list": {"type": "array", "uniqueItems": True}}}, "[]", "1"
    ),
    '"minProperties" at #/own/two': (
        {"$ref": "#/own/two",
         "own": {"two": {**listing("a", "b"), "type": "object", "minProperties": 2}}},
        '{"a": "x"}',
        "[1]",
    ),
    '"oneOf" of the JSON Schema': (
        {"$ref": "#/own", "own": {"oneOf": [{**TEXT, "minLength": 1}, {**TEXT, "maxLength": 2}]}},
        '"a"',
        "1",
    ),
    '"minProperties" at #/items': (
        {"items": {**listing("a", "b"), "type": "object", "minProperties": 2}},
        '[{"a": "x"}]',
        "[1]",
    ),
}  # fmt: skip


@table(("notice", "case"), RELAXED.items(), ids=RELAXED)
def test_a_relaxed_check_says_what_it_leaves_out(notice: str, case: tuple[Any, str, str]) -> None:
    """All else is enforced."""
    schema, good, bad = case
    refusal(schema)
    grammar = grammar_of(Structure("json_schema", json.dumps(schema), "relaxed"))
    assert any(each.startswith(notice) for each in grammar.notices)
    assert accepts(schema, good, "relaxed")
    assert not accepts(schema, bad, "relaxed")


@table("schema", [{"type": "strin"}, {"$ref": "#"}, {"$ref": "http://x.example"},
                                    {"allOf": [{"const": 1}, {"const": 2}]}])  # fmt: skip
def test_a_relaxed_check_refuses_what_is_wrong(schema: dict[str, Any]) -> None:
    """Mistakes are not left out."""
    assert refusal(schema, "relaxed") == refusal(schema)


def test_a_schema_cannot_choose_how_json_is_written() -> None:
    """Nor what is checked: options of llguidance in a schema have no effect."""
    options = {"lenient": True, "whitespace_flexible": True, "item_separator": "|"}
    hostile = {"x-guidance": options, "type": "array"}
    assert accepts(hostile, "[1, 2]")
    assert not accepts(hostile, "[1,  2]")
    assert not accepts(hostile, "[1|2]")
    assert "cannot be enforced" in refusal({**hostile, "uniqueItems": True})


@table(
    ("kind", "source", "message"),
    [
        ("regex", "(", "the regular expression cannot be enforced"),
        ("regex", "(?=a)b", "look-around"),
        ("regex", "a" * 9000, "longer than 8192 characters"),
        ("regex", "(" * 4000 + ")" * 4000, "cannot be enforced"),
        ("choices", "[]", "nothing to choose from"),
        ("choices", "[1]", "must be a JSON array of strings"),
        ("lark", "start: nowhere", "the Lark grammar cannot be enforced: .*nowhere"),
        (
            "lark",
            "start: start",
            "the Lark grammar cannot be enforced: no text fits it; correct it",
        ),
        ("lark", '{"grammars": []}', "the Lark grammar cannot be enforced"),
        ("lark", 'start: %json {"$ref": "file:///etc/passwd"}', "cannot be enforced"),
        ("lark", "start: " + "(" * 5000, "cannot be enforced"),
        ("gbnf", "root ::= nowhere", "the GBNF grammar is invalid: Rule 'nowhere' not found"),
        ("gbnf", "other ::= [a]", "No 'root' rule"),
        ("gbnf", "root ::= " + "(" * 5000, "the GBNF grammar is invalid"),
        ("gbnf", " " * 70_000, "longer than 65536 characters"),
    ],
)
def test_other_structures_are_refused_with_a_reason(
    kind: StructureKind, source: str, message: str
) -> None:
    """In one line, before anything is decoded."""
    with pytest.raises(InvalidOption, match=message) as caught:
        GrammarConstraint(grammar_of(Structure(kind, source)), TOY)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 500
