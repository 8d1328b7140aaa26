"""What needs no answer's turn is answered while the engine is held by another one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from server.conftest import SECONDS, Running, StartServer
from specchat.engine.api import Engine
from tables import table

LONG_PROMPT = "What is specchat? " * 2000
ASKED = [{"role": "user", "content": "What is specchat?"}]
TOO_LONG = [{"role": "user", "content": LONG_PROMPT}]
SCHEMA = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "zz"}}}


@pytest.fixture(scope="module")
def held(start_server: StartServer) -> Iterator[Running]:
    """Return a server whose engine does something else all the time."""
    server = start_server()
    is_held, is_over = threading.Event(), threading.Event()

    def hold(engine: Engine) -> None:
        del engine
        is_held.set()
        is_over.wait(10 * SECONDS)

    holding = threading.Thread(target=server.service.engine.call, args=(hold,))
    holding.start()
    assert is_held.wait(SECONDS)
    yield server
    is_over.set()
    holding.join()


@table(
    "path, body, words",
    [
        ("/v1/chat/completions", {"messages": TOO_LONG}, "prompt is too long: "),
        ("/v1/chat/completions", {"messages": TOO_LONG * 30}, "prompt is too long: "),
        ("/v1/chat/completions", {"messages": ASKED, "response_format": SCHEMA}, "zz"),
        ("/v1/chat/completions", {"messages": ASKED, "grammar": "root ::= ("}, "grammar"),
        ("/v1/chat/completions", {"messages": ASKED, "tool_choice": "required"}, "tool"),
        ("/v1/completions", {"prompt": LONG_PROMPT}, "prompt is too long: "),
        ("/v1/completions", {"prompt": "<|im_start|>" * 60_000}, "prompt is too long: "),
        ("/v1/completions", {"prompt": [5, 1_000_000]}, "vocabulary"),
        ("/v1/responses", {"input": LONG_PROMPT}, "prompt is too long: "),
        ("/v1/messages", {"messages": TOO_LONG, "max_tokens": 5}, "prompt is too long: "),
    ],
)
def test_what_is_wrong_is_said_before_its_turn(
    held: Running, path: str, body: dict[str, Any], words: str
) -> None:
    """With its status, whole or as a stream; no turn is waited for."""
    for stream in (False, True):
        reply = held.client.post(path, json={**body, "stream": stream})
        assert reply.status_code == 400
        assert words in reply.json()["error"]["message"]
        assert "--raw" not in reply.text
    assert not held.service.engine.num_waiting


@table(
    "path, body",
    [
        ("/tokenize", {"content": "What is specchat?"}),
        ("/tokenize", {"messages": ASKED, "with_pieces": True}),
        ("/detokenize", {"tokens": [5, 6, 7]}),
        ("/apply-template", {"messages": ASKED}),
        ("/v1/messages/count_tokens", {"messages": ASKED}),
    ],
)
def test_tokens_are_counted_without_a_turn(held: Running, path: str, body: dict[str, Any]) -> None:
    """By editors that show how much room there is, at every key."""
    assert held.client.post(path, json=body).status_code == 200


def test_the_server_is_there(held: Running) -> None:
    """For what watches it."""
    for path in ("/health", "/metrics", "/v1/models"):
        assert held.client.get(path).status_code == 200


def test_an_overflow_has_the_fields_of_llama_servers(held: Running) -> None:
    """Beside OpenAI's code."""
    reply = held.client.post("/v1/chat/completions", json={"messages": TOO_LONG})
    error = reply.json()["error"]
    assert error["type"] == "exceed_context_size_error"
    assert error["code"] == "context_length_exceeded"
    assert error["n_prompt_tokens"] > error["n_ctx"] == held.service.facts.context


def test_a_request_that_is_wrong_counts_as_failed(held: Running) -> None:
    """In the metrics, as any other."""
    before = held.service.activity.totals().finishes["chat", "failed"]
    held.client.post("/v1/chat/completions", json={"messages": TOO_LONG})
    assert held.service.activity.totals().finishes["chat", "failed"] == before + 1


def test_a_dead_process_of_prompts_is_replaced(held: Running) -> None:
    """Native code may crash on a text; only requests in its hands fail."""
    held.service._prompts._process.kill()
    held.service._prompts._process.join()
    for _ in range(2):
        assert held.client.post("/tokenize", json={"content": "so"}).status_code == 200


def test_what_takes_too_long_is_given_up(held: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request gets a new process."""
    assert held.client.post("/tokenize", json={"content": "so"}).status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr("specchat.sharing.prompt_process.LONGEST", 0.0)
        reply = held.client.post("/tokenize", json={"content": "so " * 2000})
    assert reply.status_code == 400
    assert "to prepare: shorten it" in reply.json()["error"]["message"]
    assert held.client.post("/tokenize", json={"content": "so"}).json()["count"]
