"""What users type and send to say what an answer must look like."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from specchat.errors import InvalidOption
from specchat.structured.short_form import schema_of_short_form
from specchat.structured.structure import Structure
from specchat.structured.structure_input import (
    structure_of_choices,
    structure_of_grammar,
    structure_of_grammar_file,
    structure_of_json_schema,
    structure_of_regex,
    structure_of_schema,
)
from specchat.structured.structure_prompt import LONGEST_SHOWN, description_of
from specchat.structured.value_types import structure_of_type
from tables import table

STRING, INTEGER = {"type": "string"}, {"type": "integer"}


def fields(**properties: Any) -> dict[str, Any]:
    """Return the schema of an object with these required properties."""
    return {"type": "object", "properties": properties, "required": list(properties)}


def typed(text: str, *, is_list: bool = False) -> Any:
    """Return the schema that a text stands for."""
    structure = structure_of_schema(text, is_list=is_list)
    assert structure.kind == "json_schema"
    return json.loads(structure.source)


@table(
    ("text", "properties"),
    [
        ("name", {"name": STRING}),
        ("name, age int", {"name": STRING, "age": INTEGER}),
        (
            "a float,b bool , c str,",
            {"a": {"type": "number"}, "b": {"type": "boolean"}, "c": STRING},
        ),
        (
            "name, bio: a short bio",
            {"name": STRING, "bio": {**STRING, "description": "a short bio"}},
        ),
        (
            "age int: in years, rounded\n\n  tags str[]: a few: at most 3",
            {
                "age": {**INTEGER, "description": "in years, rounded"},
                "tags": {"type": "array", "items": STRING, "description": "a few: at most 3"},
            },
        ),
        ("first-name, größe int", {"first-name": STRING, "größe": INTEGER}),
    ],
)
def test_the_short_form(text: str, properties: dict[str, Any]) -> None:
    """Names, types and meanings, separated by commas or on lines of their own."""
    assert schema_of_short_form(text) == fields(**properties)


@table(
    ("text", "message"),
    [
        (" , ", "the schema has no fields"),
        (
            "name, age itn",
            r'unknown type "itn" \(did you mean int\?\): use str, int, float or bool',
        ),
        ("bio: short, sweet and true", '"sweet and true" .* lines of their own'),
        ("name, : meaning", '": meaning" .* is not a name'),
        ("a, b int, a", "has a field twice"),
        ("{a}", "not a name"),
    ],
)
def test_mistakes_in_the_short_form(text: str, message: str) -> None:
    """Each is named, with what to write instead."""
    with pytest.raises(InvalidOption, match=message):
        schema_of_short_form(text)


def test_a_schema_is_typed_in_any_form(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file, JSON, the short form, or the word json."""
    schema = fields(a=STRING)
    (tmp_path / "person.json").write_text("\ufeff" + json.dumps(schema), "utf-8")
    monkeypatch.chdir(tmp_path)
    forms = ["person.json", str(tmp_path / "person.json"), json.dumps(schema, indent=2), "a"]
    assert [typed(form) for form in forms] == [schema] * 4
    assert typed(" json ") == {"type": "object"}
    assert list(typed('{"properties": {"z": {}, "a": {}}}')["properties"]) == ["z", "a"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    """The message names the file and the reason."""
    broken, large, binary = (tmp_path / name for name in ("broken.json", "large.json", "b.lark"))
    broken.write_text('{"type": ')
    large.write_text(" " * (1 << 20) + "{}")
    binary.write_bytes(b"\xff\xfe\x00")
    for text, message in [
        ("missing.json", "no file missing.json"),
        ("folder/person", "no file folder/person"),
        (str(broken), "broken.json is not valid JSON"),
        (str(large), "large.json is larger than 1 MiB"),
        ('{"type": }', "the JSON Schema is not valid JSON"),
        ("{" * 100_000, "the JSON Schema is not valid JSON"),
    ]:
        with pytest.raises(InvalidOption, match=message):
            structure_of_schema(text)
    with pytest.raises(InvalidOption, match=r"b\.lark is not a text file"):
        structure_of_grammar_file(binary)
    with pytest.raises(InvalidOption, match=r"cannot read .*: Is a directory"):
        structure_of_grammar_file(tmp_path)


@table("text", ["name: \udcff", '{"const": "\ud800"}'])
@table(
    "make",
    [
        structure_of_schema,
        structure_of_choices,
        lambda text: structure_of_choices(f'["{text}"]'),
        structure_of_regex,
        structure_of_grammar,
        lambda text: structure_of_json_schema({"const": text}),
        lambda text: structure_of_choices([text]),
        lambda text: structure_of_type({"const": text}),
        lambda text: Structure("gbnf", text),
    ],
)
def test_bytes_that_are_no_text_are_refused(make: Callable[[str], Structure], text: str) -> None:
    """Such bytes of a command line are lone surrogates; grammars are written in UTF-8."""
    with pytest.raises(InvalidOption, match=r"^the .* cannot be read as UTF-8"):
        make(text)


def test_a_list_is_wrapped_in_items() -> None:
    """References within the schema still hold, and data that look like references stay."""
    schema = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$defs": {"node": {"properties": {"next": {"$ref": "#/$defs/node"}, "up": {"$ref": "#"}}}},
        "$ref": "#/$defs/node",
        "const": {"$ref": "#"},
        "allOf": [{"$ref": "https://other.example/"}],
    }
    at = "#/properties/items/items"
    assert typed(json.dumps(schema), is_list=True) == {
        "$schema": schema["$schema"],
        **fields(items={"type": "array"}),
        "properties": {
            "items": {
                "type": "array",
                "items": {
                    "$defs": {
                        "node": {
                            "properties": {
                                "next": {"$ref": f"{at}/$defs/node"},
                                "up": {"$ref": at},
                            }
                        }
                    },
                    "$ref": f"{at}/$defs/node",
                    "const": {"$ref": "#"},
                    "allOf": schema["allOf"],
                },
            }
        },
    }
    assert typed("name", is_list=True)["properties"]["items"]["items"] == fields(name=STRING)


def test_choices_are_separated_by_commas_or_given_one_by_one() -> None:
    """Each counts once; an empty one is refused."""
    expected = Structure("choices", '["yes", "nö"]')
    assert structure_of_choices(" yes, nö,,yes") == expected
    assert structure_of_choices('["yes", "nö"]') == expected
    assert structure_of_choices(["yes", "nö"]) == expected
    assert structure_of_choices(["a,b"]) == Structure("choices", '["a,b"]')
    for nothing in (",", "[]", [], ["a", ""]):
        with pytest.raises(InvalidOption, match="must be texts"):
            structure_of_choices(nothing)
    with pytest.raises(InvalidOption, match="must be a JSON array"):
        structure_of_choices("[1]")


@pytest.mark.parametrize(
    ("source", "kind"),
    [
        ('root ::= "a"', "gbnf"),
        ("# a comment\nroot  ::= item+\nitem-two::= [a]", "gbnf"),
        ('start: "a::=b" | "x ::= y"', "lark"),
        ("%llguidance {}\nstart: /a/", "lark"),
    ],
)
def test_lark_and_gbnf_are_told_apart(source: str, kind: str, tmp_path: Path) -> None:
    """By how they write rules."""
    (tmp_path / "grammar").write_text(source)
    assert structure_of_grammar(source) == Structure(kind, source)  # type: ignore[arg-type]
    assert structure_of_grammar_file(tmp_path / "grammar").kind == kind


def test_nothing_is_no_structure() -> None:
    """An empty expression or grammar, or a schema of another kind, is refused."""
    for nothing in ([1], None, "{}", {"a": object()}):
        with pytest.raises(InvalidOption, match="the JSON Schema"):
            structure_of_json_schema(nothing)
    with pytest.raises(InvalidOption, match="expression is empty"):
        structure_of_regex("")
    with pytest.raises(InvalidOption, match="grammar is empty"):
        structure_of_grammar(" \n")
    assert structure_of_json_schema({"a": 1}) == Structure("json_schema", '{"a": 1}')


@table(
    ("structure", "line"),
    [
        (structure_of_schema("json"), "Answer only with a JSON object, in one line."),
        (structure_of_json_schema({}), "Answer only with JSON, in one line."),
        (
            structure_of_json_schema({"$schema": "x", "const": "ö"}),
            'Answer only with JSON, in one line, that matches this JSON Schema: {"const": "ö"}',
        ),
        (structure_of_choices("a,b c"), 'Answer with one of these and nothing else: "a", "b c"'),
        (
            structure_of_regex("a  b\n"),
            r"Answer only with text that matches this regular expression: a  b\n",
        ),
        (
            structure_of_grammar('start: a\na: "x"\n'),
            'Answer only with text that follows this grammar: start: a a: "x"',
        ),
        (Structure("regex", "a" * (LONGEST_SHOWN + 1)), "Answer only with text."),
    ],
)
def test_one_line_describes_a_structure_to_the_model(structure: Structure, line: str) -> None:
    """It names the format and shows it, unless it is very long."""
    assert description_of(structure) == line


def test_front_ends_load_no_grammars() -> None:
    """What users type is read without llguidance and jsonschema-rs."""
    names = ("structure_input", "structure_prompt", "value_types")
    code = f"import sys; {'; '.join(f'import specchat.structured.{name}' for name in names)}"
    done = subprocess.run(
        [sys.executable, "-c", code + "\nprint({'llguidance', 'jsonschema_rs'} & {*sys.modules})"],
        capture_output=True, text=True, check=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    assert done.stdout == "set()\n"
