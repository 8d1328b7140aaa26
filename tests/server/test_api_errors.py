"""Errors reach a client in the shape that its API has, with the status it acts on."""

from __future__ import annotations

from typing import Any

import pytest

from server.conftest import Running
from specchat.errors import InvalidOption
from specchat.options.declarations import LONGEST_DRAFT
from specchat.server.api_errors import of_exception
from specchat.server.bodies import DEEPEST, MOST_VALUES
from specchat.server.json_text import AT_ONCE, extent_of
from tables import table

QUESTION = {"messages": [{"role": "user", "content": "hi"}]}


@table(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard"}]}, "messages"),
        ({"stop": ["x"] * 65}, "stop"),
        ({"draft_tree": 0}, "draft_tree"),
        ({"draft_tree": LONGEST_DRAFT + 1}, "draft_tree"),
        ({"draft_tree": "on"}, "draft_tree"),
    ],
)
def test_a_wrong_field_is_named(demo_server: Running, fields: dict[str, Any], param: str) -> None:
    """With status 400, which clients do not try again."""
    reply = demo_server.client.post("/v1/chat/completions", json={**QUESTION, **fields})

    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == param
    assert error["type"] == "invalid_request_error"
    assert error["message"]


def test_what_is_not_there_is_an_error_of_its_own(demo_server: Running) -> None:
    """Paths, methods and models."""
    found = [
        demo_server.client.get("/v1/nothing"),
        demo_server.client.get("/v1/chat/completions"),
        demo_server.client.get("/v1/models/another"),
    ]
    assert [each.status_code for each in found] == [404, 405, 404]
    assert [each.json()["error"]["code"] for each in found] == [None, None, "model_not_found"]


@table(
    ("text", "depth", "num_values"),
    [
        ("1", 0, 0),
        ("[]", 1, 1),
        ('[{"a": [1]}, []]', 3, 5),
        (r'["[[[", "\"[[", "\\"]', 1, 3),
        ('{"[": {"]": "}"}}', 2, 2),
        ("[" * 1000, 1000, 1000),
        ("", 0, 0),
    ],
)
@pytest.mark.parametrize("at_once", [1, 2, 3, AT_ONCE])
def test_json_is_measured_without_reading_it(
    monkeypatch: pytest.MonkeyPatch, at_once: int, text: str, depth: int, num_values: int
) -> None:
    """Brackets in strings do not count, wherever the parts end that are looked at in one go."""
    monkeypatch.setattr("specchat.server.json_text.AT_ONCE", at_once)
    assert extent_of(text.encode(), 10_000) == (depth, num_values)


def test_a_string_that_never_closes_is_searched_once() -> None:
    """Searched from each of its quotes, this one would take hours."""
    assert extent_of(b'["' + rb"\"" * 2_000_000, 10).depth == 1


@table("part", ["{}", '""', '{"role":"user","content":"x"}'])
def test_a_body_of_more_values_than_any_prompt_has_is_refused(
    demo_server: Running, part: str
) -> None:
    """Its size is that of a long text, but reading it would stop all streams for seconds."""
    most = MOST_VALUES + demo_server.service.facts.context
    reply = demo_server.client.post(
        "/v1/chat/completions", content=f'{{"messages": [{",".join([part] * (most + 1))}]}}'
    )
    assert reply.status_code == 413
    assert str(most) in reply.json()["error"]["message"]


@table("levels", [50, 200, 900])
def test_deep_nesting_is_refused_before_anything_reads_it(
    demo_server: Running, levels: int
) -> None:
    """Templates and what carries a request to the engine go down it level by level."""
    deep = '{"a":' * levels + "1" + "}" * levels
    tool = f'{{"type": "function", "function": {{"name": "f", "parameters": {deep}}}}}'
    messages = '[{"role": "user", "content": "hi"}]'
    body = f'{{"messages": {messages}, "max_tokens": 1, "tools": [{tool}]}}'
    reply = demo_server.client.post(
        "/v1/chat/completions", content=body, headers={"content-type": "application/json"}
    )
    assert reply.status_code == (200 if levels < DEEPEST else 400), reply.text


@table(
    ("text", "param"),
    [
        ("temperature must be 0 to 2, not 3", "temperature"),
        ("messages: each message needs a role", "messages"),
        ("tokens: token -1 is not in the vocabulary (0 to 9)", "tokens"),
        ("token -1 is not in the vocabulary (0 to 9)", None),
        ("text must follow the image: the answer continues it", None),
        ("structured output needs a model with a tokenizer", None),
        ("another model wrote the beginning of this answer", None),
        ("unknown option colour", None),
        ("", None),
    ],
)
def test_only_a_field_is_named_as_the_one_at_fault(text: str, param: str | None) -> None:
    """Not the first word of a sentence."""
    assert of_exception(InvalidOption(text)).param == param
