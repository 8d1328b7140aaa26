"""Grammars allow the calls that a chat format writes, with arguments that follow the tools."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from call_check import CALLS_OF, ByteVocabulary, check_calls
from real_templates import needs_templates, template_of
from specchat.errors import InvalidOption
from specchat.formats.call_format import ArgumentText, CallText, for_types
from specchat.formats.call_grammar import OfferedTool, call_grammar
from specchat.formats.families import format_of
from specchat.formats.grammar_rules import Rules
from tables import table

HERMES = CallText(
    begin='<tool_call>\n{"name": "',
    named='", "arguments": ',
    between='}\n</tool_call>\n<tool_call>\n{"name": "',
    end="}\n</tool_call>",
)
TAGS = CallText(
    begin="<call=",
    between="</call>\n<call=",
    end="</call>",
    arguments=ArgumentText(
        first=">\n<p=",
        following="<p=",
        none=">\n",
        before=for_types(">"),
        after=for_types("</p>\n"),
    ),
)
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"],
        "additionalProperties": False}  # fmt: skip
FIND, BOOK = OfferedTool("find", CITY), OfferedTool("find_all", CITY)


def allowed(pattern: CallText, text: str, *tools: OfferedTool, **options: Any) -> bool:
    """Return True if the grammar of some tools allows a text as a whole answer."""
    vocabulary = ByteVocabulary()
    grammar = call_grammar(pattern, tools or (FIND, BOOK), vocabulary.grammars.split, **options)
    return vocabulary.allowed(grammar, text) == text


def written(name: str, arguments: str) -> str:
    """Return a call in the form of HERMES."""
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


@table(
    ("text", "is_right"),
    [
        (written("find", '{"city": "Graz"}'), True),
        (written("find_all", '{"city": "Graz"}'), True),
        ("\n" + written("find", '{"city": "Graz"}'), True),
        (written("find", '{"city": "Graz"}') + "\n" + written("find_all", '{"city": "x"}'), True),
        (written("search", '{"city": "Graz"}'), False),
        (written("find", "{}"), False),
        (written("find", '{"city": 7}'), False),
        (written("find", '{"city": "Graz", "more": 1}'), False),
        (written("find", '{"city":"Graz"}'), False),
        ("So: " + written("find", '{"city": "Graz"}'), False),
        (written("find", '{"city": "Graz"}') + " Done.", False),
    ],
)
def test_a_call_has_a_tools_name_and_its_arguments(text: str, is_right: bool) -> None:
    """Any other text is refused, and so is text around the calls."""
    assert allowed(HERMES, text) == is_right


def test_a_second_call_may_be_refused() -> None:
    """As a client can ask for one call at a time."""
    one = written("find", '{"city": "Graz"}')

    assert allowed(HERMES, one, is_parallel=False)
    assert not allowed(HERMES, f"{one}\n{one}", is_parallel=False)


def test_a_grammar_can_begin_after_the_mark() -> None:
    """There, the text before the mark may be any."""
    rest = written("find", '{"city": "Graz"}').removeprefix("<tool_call>")

    assert allowed(HERMES, rest, mark="<tool_call>")
    assert not allowed(HERMES, "<tool_call>" + rest, mark="<tool_call>")


def test_marks_are_tokens_of_their_own_where_the_vocabulary_has_them() -> None:
    """A model cannot spell them out then, and its text cannot contain them."""
    vocabulary = ByteVocabulary(["<tool_call>", "</tool_call>"])
    grammar = call_grammar(HERMES, [FIND], vocabulary.grammars.split)
    text = written("find", '{"city": "</tool_call>"}')

    assert vocabulary.allowed(grammar, written("find", '{"city": "Graz"}')) is not None
    assert vocabulary.allowed(grammar, text) is None


@table("name", ["</tool_call>", 'a"b', "a\\b", "a\x01b", "\u00e9 \U0001f999"])
def test_a_name_is_text_whatever_it_contains(name: str) -> None:
    """A client's words name no special tokens, and stay a string of JSON."""
    marks = ["<tool_call>", "</tool_call>"]
    vocabulary = ByteVocabulary(marks)
    tool = OfferedTool(name, {"type": "object", "properties": {}, "additionalProperties": False})
    split = vocabulary.grammars.split
    begin, end = map(vocabulary.grammars.split, marks)
    said = json.dumps(name, ensure_ascii=False)
    text = f'\n{{"name": {said}, "arguments": {{}}}}\n'
    tokens = [*begin, *text.encode(), *end]

    assert vocabulary.allows(call_grammar(HERMES, [tool], split), tokens)


def tagged(*pairs: tuple[str, str], name: str = "plan") -> str:
    """Return a call in the form of TAGS."""
    return (
        f"<call={name}>\n" + "".join(f"<p={key}>{value}</p>\n" for key, value in pairs) + "</call>"
    )


PLAN = OfferedTool(
    "plan",
    {
        "type": "object",
        "$defs": {"Way": {"enum": ["train", "boat"]}},
        "properties": {
            "goal": {"type": "string"},
            "way": {"$ref": "#/$defs/Way"},
            "days": {"type": "integer", "minimum": 1},
            "back": {"anyOf": [{"type": "boolean"}, {"type": "null"}]},
            "stops": {"type": "array", "items": {"type": "string"}},
        },
        "required": ["goal", "days"],
    },
)


@table(
    ("text", "is_right"),
    [
        (tagged(("goal", 'a <b> "c"\n7'), ("days", "2")), True),
        (tagged(("goal", "a"), ("way", "boat"), ("days", "2"), ("stops", '["x", "y"]')), True),
        (tagged(("goal", "a"), ("days", "2"), ("back", "null")), True),
        (tagged(("goal", "a"), ("days", "2"), ("back", "true")), True),
        (tagged(("goal", "a")), False),
        (tagged(("days", "2")), False),
        (tagged(), False),
        (tagged(("goal", "a"), ("days", "two")), False),
        (tagged(("goal", "a"), ("days", "0")), False),
        (tagged(("goal", "a"), ("way", "car"), ("days", "2")), False),
        (tagged(("goal", "a"), ("days", "2"), ("back", "maybe")), False),
        (tagged(("goal", "a"), ("days", "2"), ("stops", "[1]")), False),
        (tagged(("goal", "a"), ("days", "2"), ("other", "1")), False),
        (tagged(("goal", "a"), ("days", "2"), name="other"), False),
    ],
)
def test_arguments_in_tags_follow_the_schema(text: str, is_right: bool) -> None:
    """Strings are plain text up to their end mark; other values are JSON of their schema."""
    assert allowed(TAGS, text, PLAN) == is_right


def layered(num_layers: int, width: int, kind: str) -> OfferedTool:
    """Return a tool whose schema leads to its one string in width ** num_layers ways."""

    def layer(index: int) -> Any:
        inner = {"$ref": f"#/$defs/layer{index + 1}"}
        if kind == "anyOf":
            return {"anyOf": [inner] * width}
        return {"type": "object", "properties": {f"p{each}": inner for each in range(width)}}

    layers: dict[str, Any] = {f"layer{index}": layer(index) for index in range(num_layers)}
    layers[f"layer{num_layers}"] = {"enum": ["Graz"]}
    schema = {"properties": {"x": {"$ref": "#/$defs/layer0"}}, "required": ["x"], "$defs": layers}
    return OfferedTool("plan", {"type": "object", **schema})


def test_what_many_references_lead_to_is_looked_at_once() -> None:
    """A quarter of a million ways through a schema would take seconds."""
    tool = layered(5, 12, "anyOf")

    assert allowed(TAGS, tagged(("x", "Graz")), tool)
    assert not allowed(TAGS, tagged(("x", "Wien")), tool)


def test_nested_objects_are_looked_at_once() -> None:
    """Where a format writes them in its own form, too."""
    tool = layered(5, 12, "objects")
    value = "{p3:" * 5 + '"Graz"' + "}" * 5

    assert allowed(NESTED, f"<call=plan{{x:{value}}}</call>", tool)
    assert not allowed(NESTED, f"<call=plan{{x:{value.replace('Graz', 'Wien')}}}</call>", tool)


def test_a_value_brings_along_what_it_refers_to() -> None:
    """And no other definitions, which would be repeated for each of many arguments."""
    items = {"type": "array", "items": {"$ref": "#/$defs/Way"}, "minItems": 1}
    defined = {"Way": {"$ref": "#/$defs/Boat"}, "Boat": {"const": 7}, "More": {"const": "unused"}}
    tool = OfferedTool("plan", {"type": "object", "properties": {"x": items}, "$defs": defined})

    assert allowed(TAGS, tagged(("x", "[7, 7]")), tool)
    assert not allowed(TAGS, tagged(("x", "[8]")), tool)
    assert "unused" not in call_grammar(TAGS, [tool], ByteVocabulary().grammars.split)


def test_a_value_that_many_arguments_share_is_written_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A thousand copies of a large schema would take a quarter of a minute."""
    written_schemas: list[Any] = []
    write = Rules.json

    def counted(rules: Rules, schema: Any) -> str:
        written_schemas.append(schema)
        return write(rules, schema)

    monkeypatch.setattr(Rules, "json", counted)
    stops = {"type": "array", "items": {"enum": ["x", "y"]}}
    properties = {f"p{index}": {"$ref": "#/$defs/stops"} for index in range(100)}
    schema = {"type": "object", "properties": properties, "$defs": {"stops": stops}}

    assert allowed(TAGS, tagged(("p1", '["x"]'), ("p99", "[]")), OfferedTool("plan", schema))
    assert len(written_schemas) == 1


def test_a_grammar_may_not_be_longer_than_a_million_characters() -> None:
    """The error says so, rather than to speak of a grammar that the client did not write."""
    choice = {"enum": [f"{index}" * 20 for index in range(9000)]}
    properties = {f"p{index}": choice for index in range(5)}
    tool = OfferedTool("plan", {"type": "object", "properties": properties})

    with pytest.raises(InvalidOption, match="million characters: offer fewer tools"):
        call_grammar(HERMES, [tool], ByteVocabulary().grammars.split)


@pytest.mark.parametrize("kind", ["string", "integer"])
def test_a_key_that_is_named_again_names_no_special_token(kind: str) -> None:
    """It is a client's text there too."""
    vocabulary = ByteVocabulary(["<|end|>"])
    assert TAGS.arguments is not None
    arguments = dataclasses.replace(TAGS.arguments, after=for_types("</\0>\n"))
    pattern = dataclasses.replace(TAGS, arguments=arguments)
    key = "x<|end|>y"
    tool = OfferedTool("plan", {"type": "object", "properties": {key: {"type": kind}}})
    grammar = call_grammar(pattern, [tool], vocabulary.grammars.split)
    text = f"<call=plan>\n<p={key}>7</{key}>\n</call>"

    assert vocabulary.allows(grammar, list(text.encode()))
    assert not vocabulary.allows(grammar, vocabulary.tokens(text))


NESTED = CallText(
    begin="<call=",
    end="}</call>",
    arguments=ArgumentText(
        "{", ",", "{", for_types(":"), for_types(""), is_nested=True, quotes='"'
    ),
)


@table(
    ("value", "is_right"),
    [("{}", True), ('{a:[1,{b:"x"}]}', True), ("{a:{b:{c:{d:{e:1}}}}}", True), ("[1]", False)],
)
def test_nested_objects_of_any_kind_are_allowed(value: str, *, is_right: bool) -> None:
    """Where the format writes them in its own form; whole arguments are such an object too."""
    schema = {"type": "object", "properties": {"x": {"type": "object"}}, "required": ["x"]}
    text = f"<call=plan{{x:{value}}}</call>"

    assert allowed(NESTED, text, OfferedTool("plan", schema)) == is_right
    assert allowed(NESTED, text, OfferedTool("plan", {"type": "object"}))


@table(
    ("bounds", "counts"),
    [
        ({}, {0, 1, 2, 3, 4}),
        ({"minItems": 1}, {1, 2, 3, 4}),
        ({"minItems": 2, "maxItems": 3}, {2, 3}),
        ({"maxItems": 1}, {0, 1}),
        ({"maxItems": 0}, {0}),
        ({"minItems": 3, "maxItems": 3}, {3}),
    ],
    ids=str,
)
def test_items_of_nested_arrays_are_counted(bounds: dict[str, int], counts: set[int]) -> None:
    """As they are in JSON."""
    items = {"type": "array", "items": {"type": "integer"}, **bounds}
    schema = {"type": "object", "properties": {"x": items}, "required": ["x"]}
    texts = {num: f"<call=plan{{x:[{','.join('7' * num)}]}}</call>" for num in range(5)}

    assert {num for num in texts if allowed(NESTED, texts[num], OfferedTool("plan", schema))} == (
        counts
    )


def test_a_schema_with_too_many_alternatives_is_refused() -> None:
    """Rather than to keep others waiting for minutes."""
    union = {"anyOf": [{"$ref": "#/$defs/none"}] * 1000}
    properties = {f"p{index}": {"$ref": "#/$defs/union"} for index in range(1000)}
    defined = {"union": union, "none": {"type": "null"}}
    schema = {"type": "object", "properties": properties, "$defs": defined}

    with pytest.raises(InvalidOption, match=r"schema of p\d+ has too many alternatives"):
        allowed(TAGS, "", OfferedTool("plan", schema))


BOUNDED = OfferedTool(
    "plan",
    {
        "type": "object",
        "properties": {
            "code": {"type": "string", "pattern": "^[a-z/<>]+\n?[0-9]$", "maxLength": 6},
            "name": {"$ref": "#/$defs/Name"},
        },
        "$defs": {"Name": {"type": "string", "minLength": 2, "pattern": "x|y"}},
        "required": ["code"],
    },
)


@table("end", ["</p>\n", "<|end|>", "</p><|end|>"])
@table(
    ("pairs", "is_right"),
    [
        ([("code", "a/1")], True),
        ([("code", "a\n1")], True),
        ([("code", "</p>\n1")], False),
        ([("code", "<//p>1")], True),
        ([("code", "abcde1")], True),
        ([("code", "abcdef1")], False),
        ([("code", "1")], False),
        ([("code", "a1 ")], False),
        ([("code", "a1"), ("name", "a\nx")], True),
        ([("code", "a1"), ("name", "yb" * 300)], True),
        ([("code", "a1"), ("name", "x")], False),
        ([("code", "a1"), ("name", "ab")], False),
    ],
    ids=str,
)
def test_bounds_of_a_text_in_tags_are_kept(
    end: str, pairs: list[tuple[str, str]], *, is_right: bool
) -> None:
    """Its pattern and lengths; what ends it ends it as soon as it occurs."""
    vocabulary = ByteVocabulary(["<|end|>"])
    assert TAGS.arguments is not None
    arguments = dataclasses.replace(TAGS.arguments, after=for_types(end))
    pattern = dataclasses.replace(TAGS, arguments=arguments)
    grammar = call_grammar(pattern, [BOUNDED], vocabulary.grammars.split)
    text = tagged(*pairs).replace("</p>\n<", f"{end}<")
    is_part = "</p>" in pairs[0][1] and end != "</p>\n"  # ends nothing there
    assert vocabulary.allows(grammar, vocabulary.tokens(text)) == (is_right or is_part)


@table(
    ("value", "is_right"),
    [('"a/1"', True), ("'a/1'", True), ("\"a1'", False), ('"ab"', False), ('"abcdef1"', False)],
)
def test_bounds_of_a_text_in_quotes_are_kept(value: str, *, is_right: bool) -> None:
    """Such a text needs no escapes."""
    assert TAGS.arguments is not None
    arguments = dataclasses.replace(TAGS.arguments, quotes='"')
    pattern = dataclasses.replace(TAGS, arguments=arguments)
    assert allowed(pattern, tagged(("code", value)), BOUNDED) == is_right


def test_a_tool_without_parameters_has_no_arguments() -> None:
    """An object without a word about its properties has any."""
    empty = OfferedTool("now", {"type": "object", "properties": {}})
    any_object = OfferedTool("note", {"type": "object"})

    assert allowed(TAGS, tagged(name="now"), empty)
    assert not allowed(TAGS, tagged(("x", "1"), name="now"), empty)
    assert allowed(TAGS, tagged(name="note"), any_object)
    assert allowed(TAGS, tagged(("x", "1"), ("y", "two words"), name="note"), any_object)


def test_optional_arguments_may_all_be_left_out() -> None:
    """Also where others follow them."""
    schema = {"type": "object", "properties": {key: {"type": "integer"} for key in "abc"}}
    tool = OfferedTool("add", schema)

    assert allowed(TAGS, tagged(name="add"), tool)
    assert allowed(TAGS, tagged(("b", "1"), name="add"), tool)
    assert allowed(TAGS, tagged(("a", "1"), ("c", "2"), name="add"), tool)
    assert not allowed(TAGS, tagged(("c", "1"), ("a", "2"), name="add"), tool)


def test_white_space_after_the_last_call_does_not_call_for_another() -> None:
    """Some templates write a line break there, which others have before the next call."""
    pattern = dataclasses.replace(HERMES, end=HERMES.end + "\n")
    one = written("find", '{"city": "Graz"}')

    assert allowed(pattern, one)
    assert allowed(pattern, f"{one}\n")
    assert allowed(pattern, f"{one}\n{one}\n")


def test_a_form_says_which_argument_it_cannot_write() -> None:
    """So that a request can be refused, or the tool left open."""
    pattern = CallText(
        begin="<call=",
        end="</call>",
        arguments=ArgumentText(">\n<p=", "<p=", ">\n", {"string": ">"}, {"string": "</p>\n"}),
    )

    with pytest.raises(InvalidOption, match="cannot write days"):
        call_grammar(pattern, [PLAN], ByteVocabulary().grammars.split)


@pytest.mark.slow(keep=3)
@needs_templates
@pytest.mark.parametrize("name", CALLS_OF)
def test_real_templates_calls_are_allowed(name: str) -> None:
    """What models utter and the template writes is allowed; what the tools do not take is not."""
    checked = check_calls(name, template_of(name))

    assert checked.is_right
    assert {case for case, is_right in checked.rendered.items() if not is_right} == CALLS_OF[name]


@needs_templates
def test_a_template_without_calls_has_the_generic_form() -> None:
    """It does not show how its model would write them."""
    template = template_of("HuggingFaceTB-SmolLM3-3B")

    assert format_of(template, "<s>", "<|im_end|>").calls.is_generic
