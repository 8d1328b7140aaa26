"""Structures that requests ask for, in the words of each API, and what becomes of the others."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from server.conftest import Running
from specchat.server.api_errors import ApiError
from specchat.server.asked_structure import structure_of
from specchat.server.chat_body import ChatBody
from specchat.structured.structure import Structure
from tables import table

SCHEMA = {
    "type": "object",
    "properties": {
        "kind": {"enum": ["draft", "target"]},
        "length": {"type": "integer", "minimum": 1, "maximum": 99},
    },
    "required": ["kind", "length"],
}
TEXT = json.dumps(SCHEMA)
LETTERS = 'root ::= "yes" | "no"'
MODELS = {"type": "json_schema", "json_schema": {"name": "m", "schema": SCHEMA, "strict": True}}
FLAT = {"type": "json_schema", "name": "m", "schema": SCHEMA, "strict": True}
MESSAGES = [{"role": "user", "content": "What is specchat?"}]


def asked(**fields: Any) -> Structure | None:
    """Return the structure of a chat request with some fields."""
    return structure_of(msgspec.convert({"messages": MESSAGES, **fields}, ChatBody))


@table(
    ("fields", "structure"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        (
            {"response_format": {"type": "json_object"}},
            Structure("json_schema", '{"type": "object"}'),
        ),
        (
            {"response_format": {"type": "json_object", "schema": SCHEMA}},
            Structure("json_schema", TEXT),
        ),
        ({"response_format": MODELS}, Structure("json_schema", TEXT)),
        ({"response_format": FLAT}, Structure("json_schema", TEXT)),
        (
            {"response_format": {**FLAT, "strict": False}},
            Structure("json_schema", TEXT, check="relaxed"),
        ),
        ({"json_schema": SCHEMA}, Structure("json_schema", TEXT, is_shown=False)),
        ({"grammar": LETTERS}, Structure("gbnf", LETTERS, is_shown=False)),
        ({"grammar": 'start: "a"'}, Structure("lark", 'start: "a"', is_shown=False)),
        (
            {"structured_outputs": {"json": SCHEMA}},
            Structure("json_schema", TEXT, is_shown=False),
        ),
        ({"structured_outputs": {"json": TEXT}}, Structure("json_schema", TEXT, is_shown=False)),
        ({"structured_outputs": {"regex": "a+"}}, Structure("regex", "a+", is_shown=False)),
        (
            {"structured_outputs": {"choice": ["a", "b"]}},
            Structure("choices", '["a", "b"]', is_shown=False),
        ),
        (
            {"structured_outputs": {"grammar": LETTERS, "regex": None}},
            Structure("gbnf", LETTERS, is_shown=False),
        ),
    ],
    ids=str,
)
def test_a_request_asks_for_a_structure(fields: dict[str, Any], structure: Any) -> None:
    """By OpenAI's field, llama-server's two, and vLLM's."""
    assert asked(**fields) == structure


@table(
    ("fields", "field"),
    [
        ({"response_format": {"type": "xml"}}, "response_format"),
        ({"response_format": {"type": "json_schema"}}, "response_format"),
        ({"response_format": {"type": "json_schema", "schema": 3}}, "response_format"),
        ({"response_format": {"schema": SCHEMA}}, "response_format"),
        ({"structured_outputs": {"json": SCHEMA, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"structural_tag": "x"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": [1]}}, "structured_outputs.choice"),
        ({"json_schema": SCHEMA, "grammar": LETTERS}, "grammar"),
    ],
    ids=str,
)
def test_what_is_no_structure_is_refused(fields: dict[str, Any], field: str) -> None:
    """The error names the field."""
    with pytest.raises(ApiError) as refused:
        asked(**fields)

    assert (refused.value.status, refused.value.param) == (400, field)
    assert field in refused.value.message


CHAT, TEXTS = "/v1/chat/completions", "/v1/completions"
RESPONSES, ANTHROPIC = "/v1/responses", "/v1/messages"
WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "chat": (CHAT, {"messages": MESSAGES, "response_format": MODELS}),
    "chat, by llama-server's field": (CHAT, {"messages": MESSAGES, "json_schema": SCHEMA}),
    "chat, by vLLM's": (CHAT, {"messages": MESSAGES, "structured_outputs": {"json": SCHEMA}}),
    "text": (TEXTS, {"prompt": "A pair:", "max_tokens": 100, "json_schema": SCHEMA}),
    "responses": (RESPONSES, {"input": "A pair?", "text": {"format": FLAT}}),
    "messages": (
        ANTHROPIC,
        {"messages": MESSAGES, "max_tokens": 100, "output_config": {"format": FLAT}},
    ),
}


def text_of(path: str, reply: dict[str, Any]) -> str:
    """Return the text of a reply."""
    if path == CHAT:
        return str(reply["choices"][0]["message"]["content"])
    if path == TEXTS:
        return str(reply["choices"][0]["text"])
    return str(reply["output" if path == RESPONSES else "content"][-1].get("text") or _last(reply))


def _last(reply: dict[str, Any]) -> str:
    return str(reply["output"][-1]["content"][-1]["text"])


@table("way", WAYS)
def test_an_answer_is_what_was_asked_for(demo_server: Running, way: str) -> None:
    """In every API; most of it is forced, and the reply says that it is valid."""
    path, body = WAYS[way]

    reply = demo_server.posted(path, {**body, "temperature": 0})
    found = json.loads(text_of(path, reply))

    assert found["kind"] in {"draft", "target"}
    assert 1 <= found["length"] <= 99
    assert list(found) == ["kind", "length"]
    assert reply["specchat"]["valid"] is True
    assert reply["specchat"]["forced"] > 5


@table(
    ("fields", "allowed"),
    [
        ({"grammar": LETTERS}, {"yes", "no"}),
        ({"structured_outputs": {"choice": ["red", "blue"]}}, {"red", "blue"}),
        ({"structured_outputs": {"regex": "[ab]{2}"}}, {"aa", "ab", "ba", "bb"}),
    ],
    ids=["grammar", "choice", "regex"],
)
def test_an_answer_follows_a_grammar(
    demo_server: Running, fields: dict[str, Any], allowed: set[str]
) -> None:
    """In the words of llama.cpp and vLLM."""
    answer = demo_server.chat(temperature=1, **fields)

    assert answer["choices"][0]["message"]["content"] in allowed
    assert answer["choices"][0]["finish_reason"] == "stop"


def test_a_cut_answer_says_so(demo_server: Running) -> None:
    """Its text stays, as clients want to see what there is."""
    answer = demo_server.chat(temperature=0, max_tokens=6, response_format=MODELS)

    assert answer["choices"][0]["finish_reason"] == "length"
    assert answer["choices"][0]["message"]["content"].startswith('{"kind": "')
    assert answer["specchat"]["valid"] is False


@pytest.mark.parametrize(
    ("excluded", "is_valid"), [({"const": "x"}, True), ({"enum": [True, False]}, False)]
)
def test_what_is_not_strict_is_checked_afterwards(
    demo_server: Running, excluded: dict[str, Any], *, is_valid: bool
) -> None:
    """Its text stays, and the notices say what of the schema it breaks."""
    schema = {"type": "boolean", "not": excluded}
    form = {"type": "json_schema", "json_schema": {"schema": schema, "strict": False}}
    answer = demo_server.chat(temperature=0, response_format=form)

    assert answer["choices"][0]["finish_reason"] == "stop"
    assert answer["choices"][0]["message"]["content"] in {"true", "false"}
    assert answer["specchat"]["valid"] is is_valid
    first, *more = answer["specchat"]["notices"]
    assert first == '"not" at # of the JSON Schema is not enforced'
    assert [each.partition(" (")[0] for each in more] == (
        [] if is_valid else ['the answer does not fit the JSON Schema: it breaks "not"']
    )


@table("way", WAYS)
@table("stream", [False, True])
def test_a_schema_that_cannot_be_enforced_is_refused(
    demo_server: Running, way: str, stream: bool
) -> None:
    """Before anything is decoded, with a status of its own also where a stream was asked for."""
    path, body = WAYS[way]
    wrong = json.dumps(body).replace('"enum": ["draft", "target"]', '"type": "colour"')

    reply = demo_server.client.post(path, json={**json.loads(wrong), "stream": stream})

    assert reply.status_code == 400
    assert "colour" in reply.json()["error"]["message"]


def test_the_prompt_describes_a_schema_unless_that_is_off(demo_server: Running) -> None:
    """The line for it takes tokens."""
    fields: dict[str, Any] = {"temperature": 0, "response_format": MODELS}
    shown = demo_server.chat(**fields)["usage"]["prompt_tokens"]
    hidden = demo_server.chat(**fields, show_schema=False)["usage"]["prompt_tokens"]

    assert shown > hidden + 20
