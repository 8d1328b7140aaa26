"""Errors reach a client in the shape that its API has, with the status it acts on."""

from __future__ import annotations

from typing import Any

import pytest

from server.conftest import Running

QUESTION = {"messages": [{"role": "user", "content": "hi"}]}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": "hot"}, "temperature"),
        ({"temperature": -1}, "temperature"),
        ({"messages": "hi"}, "messages"),
        ({"messages": [{"role": "wizard"}]}, "messages"),
        ({"stop": ["x"] * 65}, "stop"),
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
