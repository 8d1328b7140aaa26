"""Whole answers are checked by a JSON Schema: offline, in bounded time, and refused in one line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

from specchat.errors import InvalidOption
from specchat.structured import check_cost
from specchat.structured.schema_validation import AnswerCheck
from tables import table

TOO_LONG = "the answer cannot be checked by the JSON Schema: that would take too long"


def reason(schema: Any, value: Any) -> str:
    """Return why a value does not fit a schema, without the words that come first."""
    text = value if isinstance(value, str) else json.dumps(value)
    found = AnswerCheck(json.dumps(schema)).why_invalid(text)
    assert "\n" not in found
    return found.removeprefix("the answer does not fit the JSON Schema: ")


def refusal(schema: Any) -> str:
    """Return why answers cannot be checked by a schema."""
    with pytest.raises(InvalidOption) as caught:
        AnswerCheck(json.dumps(schema))
    assert "\n" not in str(caught.value)
    return str(caught.value)


BROKEN = {
    'it breaks "uniqueItems" (': ({"uniqueItems": True}, [1, 1], [1, 2]),
    'a[1].b breaks "not" (': (
        {"properties": {"a": {"items": {"properties": {"b": {"not": {"const": 1}}}}}}},
        {"a": [{"b": 2}, {"b": 1}]},
        {"a": [{"b": 2}]},
    ),
    'it breaks "oneOf" (': (
        {"oneOf": [{"type": "integer"}, {"minimum": 5}]}, 7, 3
    ),
    'it breaks "pattern" (': ({"pattern": "^(?!x)"}, '"xy"', '"yx"'),
    '[0] breaks "format" (': ({"items": {"format": "date"}}, ["2026-02-30"], ["2026-02-28"]),
    'it breaks "contains" (': ({"contains": {"const": 1}}, [2], [2, 1]),
    'it breaks "multipleOf" (': ({"multipleOf": 999_983}, 999_984, 999_983),
    'it breaks "minProperties" (': ({"minProperties": 2}, {"a": 1}, {"a": 1, "b": 2}),
    'it breaks "propertyNames" (': ({"propertyNames": {"maxLength": 1}}, {"ab": 1}, {"a": 1}),
    'a breaks "type" (': (
        {"properties": {"a": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "null"}}},
        {"a": 1}, {"a": None},
    ),
    'it breaks "required" (': (
        {"$schema": "http://json-schema.org/draft-07/schema#", "dependencies": {"a": ["b"]}},
        {"a": 1}, {"a": 1, "b": 1},
    ),
}  # fmt: skip


@table(("message", "case"), BROKEN.items(), ids=BROKEN)
def test_a_value_that_does_not_fit_is_explained(message: str, case: tuple[Any, Any, Any]) -> None:
    """By its place in the answer and the keyword."""
    schema, bad, good = case
    assert reason(schema, bad).startswith(message)
    assert reason(schema, good) == ""


NOT_CHECKED = {
    '"pattern" at #/properties/a': ({"properties": {"a": {"pattern": "("}}}, {"a": "x"}),
    '"format" at #/properties/not': ({"properties": {"not": {"format": "odd"}}}, {"not": "x"}),
    '"not" at #': ({"not": {"items": {"format": "odd"}}}, ["x"]),
    '"oneOf" at #/items': ({"items": {"oneOf": [{"format": "odd"}, {}]}}, ["x"]),
    '"patternProperties" at #': (
        {"patternProperties": {"(": {}}, "additionalProperties": False}, {"a": 1}
    ),
    '"uniqueItems" at #': ({"uniqueItems": "yes"}, [1, 1]),
    '"$schema" at #': ({"$schema": "http://127.0.0.1:9/own"}, 1),
    '"pattern" at #/items/anyOf/1': (
        {"items": {"anyOf": [{"pattern": "a" * 8000}, {"pattern": "b" * 8000}]}}, ["x"]
    ),
}  # fmt: skip


@table(("notice", "case"), NOT_CHECKED.items(), ids=NOT_CHECKED)
def test_what_cannot_be_checked_is_said(notice: str, case: tuple[Any, Any]) -> None:
    """It is left out so that nothing is refused that fits."""
    schema, value = case
    check = AnswerCheck(json.dumps(schema))
    assert check.notices == (f"{notice} of the JSON Schema is not checked either",)
    assert check.why_invalid(json.dumps(value)) == ""


@pytest.fixture
def requests() -> Iterator[tuple[str, list[str]]]:
    """A server that would give a schema away, and the paths it was asked for."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()
            self.wfile.write(b"true")

        def log_message(self, *arguments: object) -> None:
            """Log nothing."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/schema", paths
        server.shutdown()
        thread.join()


def test_nothing_is_fetched(requests: tuple[str, list[str]], tmp_path: Path) -> None:
    """No address and no file, by whatever keyword."""
    address, paths = requests
    file = tmp_path / "any.json"
    file.write_text("true")
    for place in (address, file.as_uri(), str(file), f"{address}#/$defs/a"):
        for schema in (
            {"$ref": place},
            {"not": {"$ref": place}},
            {"anyOf": [{"properties": {"a": {"$ref": place}}}]},
            {"$schema": "http://json-schema.org/draft-07/schema#", "not": {"$ref": place}},
            {"x-unknown": {"$ref": place}},
            {"$dynamicRef": place},
            {"$recursiveRef": place},
        ):
            assert f"a reference leads to {place}: copy that schema" in refusal(schema)
        AnswerCheck(json.dumps({"$schema": place, "not": {}}))
    assert '"$id" in a part of it' in refusal(
        {"$id": address, "$defs": {"a": {"$id": "b", "not": {"$ref": "#/$defs/a"}}}}
    )
    AnswerCheck(json.dumps({"$id": address, "examples": [{"id": "a"}], "not": {"$ref": "#"}}))
    assert paths == []


def test_the_server_of_the_test_would_be_seen(requests: tuple[str, list[str]]) -> None:
    """A validator that may fetch does."""
    import jsonschema_rs

    address, paths = requests
    jsonschema_rs.validator_for({"$ref": address})
    assert paths == ["/schema"]


def chain(keyword: str, length: int) -> dict[str, Any]:
    """Return a schema whose parts each apply the next one twice: 2 ** length checks of a value."""
    nodes: dict[str, Any] = {
        f"n{index}": {keyword: [{"$ref": f"#/$defs/n{index + 1}"}] * 2} for index in range(length)
    }
    return {"$defs": {**nodes, f"n{length}": {"type": "string"}}, "$ref": "#/$defs/n0"}


@pytest.mark.slow
@table(
    ("schema", "value"),
    [
        (chain("anyOf", 40), 1),
        (chain("oneOf", 40), 1),
        (chain("allOf", 40), "x"),
        ({"$ref": "#"}, 1),
        ({"not": {"$ref": "#"}}, 1),
        ({"anyOf": [{"items": {"$ref": "#"}}] * 2}, "[" * 60 + "]" * 60),
        ({"items": {"$ref": "#"}}, "[" * 600 + "]" * 600),
        ({"items": {"pattern": r"(a|a)*\1c"}}, ["a" * 300] * 5000),
        ({"items": {"enum": list(range(20_000))}}, list(range(100))),
    ],
)
def test_what_would_take_too_long_is_not_valid(schema: dict[str, Any], value: Any) -> None:
    """Without trying: by the number of checks."""
    text = value if isinstance(value, str) and value[0] == "[" else json.dumps(value)
    assert reason(schema, text) == TOO_LONG


def test_expressions_give_up() -> None:
    """Those that go back and forth in a text do so a bounded number of times."""
    for expression in (r"(?=x)(a|a)*b|(a*)*\1c", r"^(?=(a|aa)+$)\1\1b"):
        assert 'breaks "pattern"' in reason({"pattern": expression}, '"' + "a" * 20_000 + '"')


@pytest.mark.parametrize("text", ["[" * 100_000, "[" * 5000 + "]" * 5000])
def test_a_deep_answer_is_not_valid(text: str) -> None:
    """Whether Python reads it or not."""
    assert "cannot be checked" in reason({"uniqueItems": True}, text)


def test_numbers_of_any_size() -> None:
    """They count as the largest there are, and work no harder."""
    assert reason({"type": "number", "not": {"const": 1}}, "1e999") == ""
    assert reason({"type": "integer", "not": {"const": 1}}, "9" * 9000) == ""
    assert 'breaks "maximum"' in reason({"maximum": 5}, "1e999999999")


def test_the_bound_counts_at_least_what_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    """A schema of every kind of part needs as many checks as it has parts that apply."""
    schema = {
        "properties": {"a": {"items": [{}, {}]}},
        "patternProperties": {"b": {"contains": {}}},
        "additionalProperties": {"dependencies": {"x": {}}},
        "propertyNames": {},
        "anyOf": [{}, {}],
        "if": {},
        "dependentSchemas": {"a": {}},
        "$ref": "#/$defs/x",
        "$defs": {"x": {}},
    }
    value = {"a": [1, 2], "b": [1], "c": {"x": 1}}
    num_applied = 1 + 3 + 3 + 3 + 3 + 2 + 1 + 2 + 1 + 1 + 1
    monkeypatch.setattr(check_cost, "EXPRESSION_CHECKS", 0)
    for most, is_long in ((num_applied + 10, False), (num_applied - 5, True)):
        monkeypatch.setattr(check_cost, "MOST_CHECKS", most)
        assert check_cost.takes_too_long(schema, value) is is_long
