"""What clients of llama-server ask about a server, and endpoints that are not there."""

from __future__ import annotations

from typing import Any

import pytest

from server.conftest import LONG, Running, until
from specchat.server.guard import Access
from tables import table


def get(server: Running, path: str) -> Any:
    """Return what an endpoint says."""
    reply = server.client.get(path)
    assert reply.status_code == 200, reply.text
    return reply.json()


def test_props_describe_the_server(demo_server: Running) -> None:
    """Its context, template and usual options, but not where the model's file is."""
    found = get(demo_server, "/props")
    usual = found["default_generation_settings"]
    assert usual["n_ctx"] == demo_server.service.facts.context
    assert usual["params"]["temperature"] == 0.8
    assert usual["params"]["n_predict"] == -1
    assert found["total_slots"] == len(get(demo_server, "/slots")) > 1
    assert found["model_path"].endswith(".gguf")
    assert "/" not in found["model_path"]
    assert "messages" in found["chat_template"]
    assert found["eos_token"]
    assert found["modalities"] == {"vision": False, "audio": False}


def test_slots_show_the_answers_in_progress(demo_server: Running) -> None:
    """How far they are, without their texts."""

    def written() -> list[int]:
        busy = [each for each in get(demo_server, "/slots") if each["is_processing"]]
        return [each["next_token"][0]["n_decoded"] for each in busy]

    assert written() == []
    with demo_server.stream("What is a draft?", **LONG) as events:
        next(events)
        until(lambda: written() and written()[0] > 1, "an answer in a slot")
        assert len(written()) == 1
        assert "draft" not in str(get(demo_server, "/slots"))
        assert get(demo_server, "/props")["default_generation_settings"]["is_processing"]
    until(lambda: not written(), "a free slot")


@table(
    ("path", "status", "words"),
    [
        ("/v1/embeddings", 501, "embeddings are not supported"),
        ("/v1/v1/embeddings", 501, "embeddings"),
        ("//v1//embeddings/", 501, "embeddings"),
        ("/rerank", 501, "rankings are not supported"),
        ("/v1/score", 501, "rankings are not supported"),
        ("/classify", 501, "classification"),
        ("/v1/images/generations", 501, "images"),
        ("/v1/audio/speech", 501, "speech"),
        ("/v1/moderations", 501, "moderations"),
        ("/lora-adapters", 501, "adapters"),
        ("/v1/responses/resp_1/cancel", 501, "stores nothing"),
        ("/v1/files", 501, "stores nothing"),
        ("/slots/0", 501, "slots"),
        ("/v1/nothing", 404, "no such endpoint: /v1/nothing"),
    ],
)
def test_what_is_not_served_says_so(
    demo_server: Running, path: str, status: int, words: str
) -> None:
    """In a sentence, whatever is asked of it."""
    url = demo_server.address + path
    for reply in (demo_server.client.post(url, json={}), demo_server.client.get(url)):
        assert reply.status_code == status
        assert reply.headers.get("x-should-retry") == ("false" if status == 501 else None)
        error = reply.json()["error"]
        assert words in error["message"]
        assert error["type"] == (
            "not_supported_error" if status == 501 else "invalid_request_error"
        )


def test_a_wrong_method_is_named_with_the_right_one(demo_server: Running) -> None:
    """Also in the header for it."""
    for method, path, right in (
        ("GET", "/v1/completions", "POST"),
        ("DELETE", "/v1/models", "GET"),
    ):
        reply = demo_server.client.request(method, path)
        assert (reply.status_code, right in reply.headers["Allow"]) == (405, True)
        error = reply.json()["error"]["message"]
        assert error.startswith(f"{method} is not possible here: use ")
        assert right in error


@pytest.mark.parametrize("path", ["/api/tags", "/api/chat", "/api/v0/models", "/v1/api/tags"])
def test_ollamas_clients_learn_that_it_is_another_server(demo_server: Running, path: str) -> None:
    """In the shape of Ollama's errors."""
    for reply in (demo_server.client.post(path, json={}), demo_server.client.get(path)):
        assert reply.status_code == 404
        assert "specchat" in reply.json()["error"]


def test_anthropics_batches_are_refused_in_its_shape(demo_server: Running) -> None:
    """As an error that its package knows how to read."""
    reply = demo_server.client.post("/v1/messages/batches", json={})
    assert reply.status_code == 501
    assert reply.json()["error"]["type"] == "not_supported_error"
    assert reply.json()["type"] == "error"


def test_facts_need_the_key(start_server: Any, demo_server: Running) -> None:
    """Only whether the server is there is told to everybody."""
    locked = start_server(access=Access(key="secret"), service=demo_server.service)
    for path in ("/props", "/slots", "/v1/embeddings", "/api/tags"):
        assert locked.client.get(path).status_code == 401
