"""Tool calls are read in every form that models write; what is no call is none."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from specchat.formats import functionary, gemma4, gpt_oss, kimi_k2, kimi_k3, minimax_m3
from specchat.formats.call_format import (
    ANY_ID,
    ArgumentText,
    CallFormat,
    CallText,
    Parser,
    for_types,
)
from specchat.formats.call_parsers import NamedJson, read_json, read_python, typed_value
from specchat.formats.call_reading import LONGEST_CALL, CallReader, parser_of
from specchat.formats.generic_calls import GENERIC
from tables import table

ARGUMENTS = {"what": 'a "b" {c}', "much": 2, "deep": {"x": [True, None]}}


def calls(parser: Parser, raw: str) -> list[tuple[str, Any, str]] | None:
    """Return the names, arguments and ids of the calls in a text."""
    found = CallReader(replace(GENERIC, parser=parser), ()).read(raw, 0)
    if found is None:
        return None
    return [(each.name, json.loads(each.arguments), each.id) for each in found]


KIMI_K3 = (
    '<|open|>call tool="f" index="1"<|sep|><|open|>argument key="what" type="string"<|sep|>'
    'a "b" {c}<|close|>argument<|sep|><|open|>argument key="much" type="number"<|sep|>2'
    '<|close|>argument<|sep|><|open|>argument key="deep" type="object"<|sep|>'
    '{"x": [true, null]}<|close|>argument<|sep|><|close|>call<|sep|>'
)
FORMS: list[tuple[Parser, str, str]] = [
    (read_json, json.dumps({"name": "f", "arguments": ARGUMENTS}), "call00000"),
    (read_json, json.dumps([{"name": "f", "parameters": ARGUMENTS}]), "call00000"),
    (read_json, json.dumps({"name": "f", "arguments": json.dumps(ARGUMENTS)}), "call00000"),
    (read_json, json.dumps({"id": "7", "function": {"name": "f", "arguments": ARGUMENTS}}), "7"),
    (read_json, json.dumps([{"f": ARGUMENTS}]), "call00000"),
    (read_json, "x {not} " + json.dumps({"tool_name": "f", "parameters": ARGUMENTS}), "call00000"),
    (
        read_python,
        "[f(what='a \"b\" {c}', much=2, deep={'x': [True, None]})]",
        "call00000",
    ),
    (read_python, '[f(what="a \\"b\\" {c}", much=2, deep={"x": [true, null]})]', "call00000"),
    (
        gemma4.read_calls,
        '<|tool_call>call:f{what:<|"|>a "b" {c}<|"|>,much:2,deep:{x:[true,null]}}<tool_call|>',
        "call00000",
    ),
    (
        NamedJson(kimi_k2.CALL),
        f"<|tool_call_begin|>functions.f:3<|tool_call_argument_begin|>{json.dumps(ARGUMENTS)}",
        "functions.f:3",
    ),
    (
        kimi_k3.read_calls,
        KIMI_K3,
        "call00000",
    ),
    (
        NamedJson(gpt_oss.CALL),
        "<|channel|>commentary to=functions.f <|constrain|>json<|message|>" + json.dumps(ARGUMENTS),
        "call00000",
    ),
]


@table(("parser", "raw", "number"), FORMS)
def test_names_and_arguments_are_read_in_every_form(parser: Parser, raw: str, number: str) -> None:
    """Strings with quotes and braces, numbers, and nested values keep their types."""
    assert calls(parser, raw) == [("f", ARGUMENTS, number)]


@table("parser", [read_json, read_python, gemma4.read_calls, NamedJson(kimi_k2.CALL)])
@table(
    "raw",
    ["", "hello", '{"a": 1}', "[f(", "[__import__('os').system('x')]", "[f(x=g())]", "{" * 5000,
     '<|tool_call>call:f{x:<|"|>y', "x" * (LONGEST_CALL + 1)],
)  # fmt: skip
def test_what_cannot_be_read_is_no_call(parser: Parser, raw: str) -> None:
    """And nothing in it is run."""
    assert calls(parser, raw) is None


MARKED = CallText(begin="<call><id>\x01<name>", named="<arguments>", end="</call>")
TAGGED = CallText(
    begin='<call name="',
    end="</call>",
    arguments=ArgumentText('"><p name="', '<p name="', '">', for_types('">'), for_types("</p>")),
)


@table(
    ("text", "raw", "number"),
    [
        (MARKED, '<call><id>a.1<name>find it<arguments>{"what": 1}</call>', "a.1"),
        (TAGGED, '<call name="find it"><p name="what" type="number"> 1</p></call>', "call00000"),
    ],
)
def test_a_name_may_be_any_text_where_a_mark_ends_it(text: CallText, raw: str, number: str) -> None:
    """As in the grammar; ids may be too, and the tag of an argument may have other attributes."""
    (call,) = CallReader(CallFormat("<call>", "", text), ()).read(raw, 0) or []

    assert (call.name, call.arguments, call.id) == ("find it", '{"what": 1}', number)


def test_a_declared_string_stays_a_string() -> None:
    """A value in tags is JSON otherwise, or Python's, or the text itself."""
    assert typed_value("12", "string") == "12"
    assert typed_value("12", None) == 12
    assert typed_value("True", None) is True
    assert typed_value("twelve", None) == "twelve"


@table("value", ["{1, 2}", "...", "b'x'", "1j", "{(1, 2): 3}", "NaN", "1e999"])
def test_a_value_that_json_does_not_know_is_text(value: str) -> None:
    """Python's literals are more than JSON's; none of them ends the answer."""
    space = minimax_m3.SPACE
    raw = f'{space}<invoke name="f">{space}<what>{value}{space}</what>{space}</invoke>'

    assert calls(minimax_m3.read_calls, raw) == [("f", {"what": value}, "call00000")]
    assert calls(read_python, f"[f(what={value})]") is None


@table("value", ["-" * 20_000 + "1", "not " * 20_000 + "1", "[" * 20_000])
def test_deep_nesting_is_no_call(value: str) -> None:
    """Python's parser runs out of memory of its own at it."""
    assert calls(read_python, f"[f(what={value})]") is None
    assert calls(read_json, f'{{"name": "f", "arguments": {{"a": {value}}}}}') is None


@table("arguments", ["[1]", "3", "true", '"[1]"', '"{"'])
def test_arguments_are_an_object(arguments: str) -> None:
    """Anything else cannot be read as a call."""
    assert calls(read_json, f'{{"name": "f", "arguments": {arguments}}}') is None


def test_half_a_character_in_a_call_is_replaced() -> None:
    """It could be neither printed nor stored."""
    raw = r'{"name": "f\ud83d", "arguments": {"a": "\ude00!"}}'

    assert calls(read_json, raw) == [("f\ufffd", {"a": "\ufffd!"}, "call00000")]


@table(
    "tool",
    [{}, {"function": None}, {"function": {"name": "f", "parameters": []}}, "f",
     {"function": {"name": "f", "parameters": {"properties": ["what"]}}},
     {"function": {"name": "f", "parameters": {"properties": {"what": True}}}}],
)  # fmt: skip
def test_a_tool_that_is_declared_oddly_does_no_harm(tool: Any) -> None:
    """Its arguments have no types then."""
    named = '[{"name": "f"}, {"name": "f", "arguments": {}}]'
    for parser, raw in ((kimi_k3.read_calls, KIMI_K3), (read_json, named)):
        (call, *_) = CallReader(replace(GENERIC, parser=parser), [tool]).read(raw, 0) or []
        assert call.name == "f"


def test_tags_in_an_argument_are_lists_and_objects() -> None:
    """MiniMax M3 writes no JSON; tags that are not closed in order are no call."""
    space = minimax_m3.SPACE
    raw = (
        '@<invoke name="f">@<tags>@<item>a b@</item>@<item>2@</item>@</tags>'
        "@<deep>@<x>true@</x>@</deep>@</invoke>"
    )
    expected = {"tags": ["a b", 2], "deep": {"x": True}}

    assert calls(minimax_m3.read_calls, raw.replace("@", space)) == [("f", expected, "call00000")]
    for broken in ("@<a>1@</b>", "@<a>1", "@</a>", "@a"):
        text = f'@<invoke name="f">{broken}@</invoke>'.replace("@", space)
        assert calls(minimax_m3.read_calls, text) is None


def test_the_end_of_a_call_may_be_missing() -> None:
    """Kimi K2 leaves it out between calls, too."""
    begin, arguments = "<|tool_call_begin|>functions.f:", "<|tool_call_argument_begin|>"
    raw = f'{begin}0{arguments}{{"a": 1}}{begin}1{arguments}{{"a": 2}}<|tool_call_end|>'

    assert calls(NamedJson(kimi_k2.CALL), raw) == [
        ("f", {"a": 1}, "functions.f:0"),
        ("f", {"a": 2}, "functions.f:1"),
    ]


def test_a_call_quoted_in_an_argument_is_none() -> None:
    """It is text that the model hands on."""
    raw = '<|tool_call>call:f{what:<|"|>call:g{x:1}<|"|>}<tool_call|>'

    assert calls(gemma4.read_calls, raw) == [("f", {"what": "call:g{x:1}"}, "call00000")]


@table(
    ("parser", "begin", "filling"),
    [
        (gemma4.read_calls, "", "call:"),
        (NamedJson(functionary.CALL), ">>>", "a"),
        (NamedJson(gpt_oss.CALL), "to=", "a"),
        (NamedJson(gpt_oss.CALL), "to=f<|message|>", " "),
        (parser_of(MARKED), "<call>", "<id>a"),
        (parser_of(TAGGED), '<call name="f">', '<p name="a"'),
    ],
)
def test_long_texts_without_a_call_are_read_in_linear_time(
    parser: Parser, begin: str, filling: str
) -> None:
    """In quadratic time this test would take minutes."""
    assert not calls(parser, begin + filling * (400_000 // len(filling)) + "!")


@table("text", ['call:f{cmd:"echo a, b  c"}', "call:f{cmd:see {x} now}", "call:f{cmd:a b}"])
def test_values_without_marks_are_not_pieced_together(text: str) -> None:
    """A command that reads otherwise than it was written must not run: the call stays text."""
    assert calls(gemma4.read_calls, text) is None


@table(
    ("text", "raw"),
    [
        (CallText("<call>", "</call>", named=f"#{ANY_ID}:"), '<call>f#abc:{"a": 1}</call>'),
        (
            CallText(f'<call id="{ANY_ID}" name="', "</call>", named='">'),
            '<call id="abc" name="f">{"a": 1}</call>',
        ),
    ],
)
def test_an_id_ends_where_the_text_goes_on(text: CallText, raw: str) -> None:
    """Whatever stands behind it, for the grammar writes it so."""
    parser = parser_of(text)
    assert parser is not None
    assert calls(parser, raw) == [("f", {"a": 1}, "abc")]


def test_a_string_that_never_closes_is_searched_once() -> None:
    """Searched from each of its quotes, this one would take hours."""
    reader = CallReader(replace(GENERIC, parser=read_json), ())

    assert reader.is_in_string('{"' + r"\"" * 2_000_000)
    assert reader.is_in_string('{"a": "b\\')
    assert not reader.is_in_string('{"a": "b"')
