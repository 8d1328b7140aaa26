"""Tool calls are read in every form that models write; what is no call is none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from specchat.chat.formats import gemma4, gpt_oss, kimi_k2, kimi_k3
from specchat.chat.formats.call_syntax import (
    LONGEST_CALL,
    Call,
    CallSyntax,
    NamedJson,
    Tools,
    read_json,
    read_python,
    typed_value,
)

Extract = Callable[[str, Tools], list[Call] | None]
ARGUMENTS = {"what": 'a "b" {c}', "much": 2, "deep": {"x": [True, None]}}


def calls(extract: Extract, raw: str) -> list[tuple[str, Any, str]] | None:
    """Return the names, arguments and ids of the calls in a text."""
    found = CallSyntax("", "", extract).read(raw, (), 0)
    if found is None:
        return None
    return [(each.name, json.loads(each.arguments), each.id) for each in found]


KIMI_K3 = (
    '<|open|>call tool="f" index="1"<|sep|><|open|>argument key="what" type="string"<|sep|>'
    'a "b" {c}<|close|>argument<|sep|><|open|>argument key="much" type="number"<|sep|>2'
    '<|close|>argument<|sep|><|open|>argument key="deep" type="object"<|sep|>'
    '{"x": [true, null]}<|close|>argument<|sep|><|close|>call<|sep|>'
)
FORMS: list[tuple[Extract, str, str]] = [
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
        kimi_k2.read_calls,
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


@pytest.mark.parametrize(("extract", "raw", "number"), FORMS)
def test_names_and_arguments_are_read_in_every_form(
    extract: Extract, raw: str, number: str
) -> None:
    """Strings with quotes and braces, numbers, and nested values keep their types."""
    assert calls(extract, raw) == [("f", ARGUMENTS, number)]


@pytest.mark.parametrize("extract", [read_json, read_python, gemma4.read_calls, kimi_k2.read_calls])
@pytest.mark.parametrize(
    "raw",
    ["", "hello", '{"a": 1}', "[f(", "[__import__('os').system('x')]", "[f(x=g())]", "{" * 5000,
     '<|tool_call>call:f{x:<|"|>y', "x" * (LONGEST_CALL + 1)],
)  # fmt: skip
def test_what_cannot_be_read_is_no_call(extract: Extract, raw: str) -> None:
    """And nothing in it is run."""
    assert calls(extract, raw) is None


def test_a_declared_string_stays_a_string() -> None:
    """A value in tags is JSON otherwise, or Python's, or the text itself."""
    assert typed_value("12", "string") == "12"
    assert typed_value("12", None) == 12
    assert typed_value("True", None) is True
    assert typed_value("twelve", None) == "twelve"
