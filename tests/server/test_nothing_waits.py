"""What needs no answer's turn is answered while the engine is held by another one."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psutil
import pytest

from server.conftest import SECONDS, Running, StartServer
from specchat.engine.api import Engine
from specchat.server import bodies
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
    """Beside OpenAI's code; of a very long prompt, what was counted."""
    for messages in (TOO_LONG, TOO_LONG * 30):
        reply = held.client.post("/v1/chat/completions", json={"messages": messages})
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
    held.service.prompts._process._process.kill()
    held.service.prompts._process._process.join()
    for _ in range(2):
        assert held.client.post("/tokenize", json={"content": "so"}).status_code == 200


def test_what_takes_too_long_is_given_up(held: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """The next request gets a new process."""
    assert held.client.post("/tokenize", json={"content": "so"}).status_code == 200
    with monkeypatch.context() as patch:
        patch.setattr("specchat.sharing.prompt_process.LONGEST", 0.0)
        psutil.Process(held.service.prompts._process._process.pid).suspend()  # so as not to win
        reply = held.client.post("/tokenize", json={"content": "so"})
    assert reply.status_code == 400
    assert "to prepare: shorten it" in reply.json()["error"]["message"]
    assert held.client.post("/tokenize", json={"content": "so"}).json()["count"]


def test_a_request_is_not_refused_because_the_machine_is_busy(
    held: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What counts is the time that preparing takes of a processor."""
    assert held.client.post("/tokenize", json={"content": "so"}).status_code == 200
    monkeypatch.setattr("specchat.sharing.prompt_process.LONGEST", 0.5)
    process = psutil.Process(held.service.prompts._process._process.pid)
    process.suspend()
    with ThreadPoolExecutor() as pool:
        reply = pool.submit(held.client.post, "/tokenize", json={"content": "so"})
        time.sleep(1.2)
        assert not reply.done()
        process.resume()
        assert reply.result(SECONDS).status_code == 200


BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": ASKED},
    "/v1/chat/completions/input_tokens": {"messages": ASKED},
    "/v1/completions": {"prompt": "Once"},
    "/v1/responses": {"input": "Why?"},
    "/v1/responses/input_tokens": {"input": "Why?"},
    "/v1/messages": {"messages": ASKED, "max_tokens": 5},
    "/v1/messages/count_tokens": {"messages": ASKED},
    "/completion": {"prompt": "Once"},
    "/infill": {"input_prefix": "a", "input_suffix": "b"},
    "/tokenize": {"messages": ASKED},
    "/detokenize": {"tokens": [5]},
    "/apply-template": {"messages": ASKED},
}


@table("path", BODIES)
@table("step", ["decoded", "_converted"])
def test_what_grows_with_a_request_is_not_done_by_the_thread_of_streams(
    held: Running, path: str, step: str
) -> None:
    """For a large one it takes seconds, in which others are answered."""
    has_begun, may_go_on = threading.Event(), threading.Event()
    usual = getattr(bodies, step)

    def slow(*given: Any) -> Any:
        has_begun.set()
        assert may_go_on.wait(SECONDS)
        return usual(*given)

    body = {**BODIES[path], "temperature": -1}  # so that none waits for a turn
    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as executor:
        patch.setattr(bodies, step, slow)
        posted = executor.submit(held.client.post, path, json=body)
        try:
            assert has_begun.wait(SECONDS)
            assert held.client.get("/health", timeout=SECONDS / 2).status_code == 200
        finally:
            may_go_on.set()
        posted.result()


def test_a_long_answer_in_parts_is_read_in_the_time_of_its_length(held: Running) -> None:
    """Each part added to the text before it would take minutes."""
    text = "so " * 300
    part = {"type": "thinking", "thinking": text}
    thought = {"type": "reasoning", "summary": [{"text": text}]}
    thinking = {"role": "assistant", "content": [part] * 25_000}
    for path, body in (
        ("/v1/messages/count_tokens", {"messages": [thinking]}),
        ("/v1/responses/input_tokens", {"input": [thought] * 25_000}),
    ):
        reply = held.client.post(path, json=body)
        assert "prompt is too long" in reply.json()["error"]["message"]
