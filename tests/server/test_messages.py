"""Anthropic's API: whole replies, the events of streams, counting, and errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest

from server.conftest import Running
from specchat.server import served_answer
from tables import table

QUESTION = {"role": "user", "content": "What is specchat?"}
BODY = {"messages": [QUESTION], "temperature": 0, "max_tokens": 24}


def posted(server: Running, **fields: Any) -> dict[str, Any]:
    """Return a whole reply."""
    return server.posted("/v1/messages", {**BODY, **fields})


def events_of(
    server: Running, then: Callable[[], None] | None = None, **fields: Any
) -> list[dict[str, Any]]:
    """Return the events of a stream; act at the first text."""
    return server.named_events("/v1/messages?beta=true", {**BODY, **fields}, then)


@pytest.mark.slow
def test_a_message_has_the_text_of_the_engine_and_all_figures(demo_server: Running) -> None:
    """The same text as by the chat API; cached tokens are counted apart."""
    message = posted(demo_server, verify=True)
    chat = demo_server.chat(temperature=0, max_tokens=24)

    assert message["content"] == [
        {"type": "text", "text": chat["choices"][0]["message"]["content"]}
    ]
    assert message["stop_reason"] == "max_tokens"
    usage = message["usage"]
    assert usage["output_tokens"] == message["timings"]["predicted_n"] == 24
    read = usage["input_tokens"] + usage["cache_read_input_tokens"]
    assert read == chat["usage"]["prompt_tokens"]
    assert message["metrics"]["tokens_per_second"] > 0
    assert message["specchat"]["verify"]["identical"]


def test_an_answer_says_why_it_ended(demo_server: Running) -> None:
    """By itself, at one of the request's own strings, or at the limit."""
    word = posted(demo_server)["content"][0]["text"].split()[3]

    assert posted(demo_server, max_tokens=None)["stop_reason"] == "end_turn"
    stopped = posted(demo_server, stop_sequences=["not there", word])
    assert (stopped["stop_reason"], stopped["stop_sequence"]) == ("stop_sequence", word)
    assert word not in stopped["content"][0]["text"]


def test_a_stream_has_every_event_in_order(demo_server: Running) -> None:
    """Deltas add up to the text; the usage comes at the end, as do the figures."""
    whole = posted(demo_server)
    events = events_of(demo_server)
    start, delta = events[0]["message"], events[-2]

    assert [name for name, _ in groupby(each["type"] for each in events)] == [
        "message_start",
        "ping",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]
    assert (start["content"], start["stop_reason"]) == ([], None)
    texts = [each["delta"]["text"] for each in events if each["type"] == "content_block_delta"]
    assert [{"type": "text", "text": "".join(texts)}] == whole["content"]
    assert delta["delta"] == {"stop_reason": "max_tokens", "stop_sequence": None}
    assert delta["usage"]["output_tokens"] == delta["timings"]["predicted_n"] == 24
    assert delta["specchat"]["tokens_per_step"] > 0


def test_an_answer_that_fails_in_a_stream_says_so(demo_server: Running) -> None:
    """By the event that Anthropic's client raises; the next request works."""
    endless = {"max_tokens": None, "ignore_eos": True}
    events = events_of(demo_server, then=demo_server.service.engine.cancel_all, **endless)

    assert events[-1]["type"] == "error"
    assert events[-1]["error"]["type"] == "overloaded_error"
    assert events[-1]["error"]["message"]
    assert {"message_delta", "message_stop"}.isdisjoint(each["type"] for each in events)
    assert posted(demo_server, max_tokens=2)["usage"]["output_tokens"] == 2


def test_a_stream_that_waits_says_so(demo_server: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    """It begins, with a comment and pings, so that no client takes it for dead."""
    monkeypatch.setattr(served_answer, "SECONDS_TO_COMMENT", 0.05)
    monkeypatch.setattr(served_answer, "SILENT_SECONDS", 0.05)
    with demo_server.stream(ignore_eos=True, max_tokens=None) as events:
        next(events)
        body = {**BODY, "max_tokens": 2, "stream": True}
        with demo_server.client.stream("POST", "/v1/messages", json=body) as reply:
            lines = [line for line in reply.iter_lines() if line]

    assert lines[0] == "event: message_start"
    waits = [index for index, line in enumerate(lines) if line.startswith(": queued, ")]
    assert waits
    assert all(lines[index + 1] == "event: ping" for index in waits)
    assert lines[-2] == "event: message_stop"


def test_a_prompt_is_counted_as_it_is_read(demo_server: Running) -> None:
    """With its system prompt, but without an answer."""
    asked = {"messages": [QUESTION], "system": "Be brief."}
    reply = demo_server.client.post("/v1/messages/count_tokens?beta=true", json=asked)
    usage = posted(demo_server, **asked)["usage"]

    assert reply.status_code == 200, reply.text
    assert reply.json() == {
        "input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]
    }


def test_a_prompt_that_changes_only_in_its_billing_line_is_in_the_cache(
    demo_server: Running,
) -> None:
    """Claude Code's does so with every request."""
    known = {"type": "text", "text": "You know specchat well. " * 9}
    billing = [{"type": "text", "text": f"x-anthropic-billing-header: cch={n}"} for n in range(2)]

    usages = [posted(demo_server, system=[each, known], max_tokens=1)["usage"] for each in billing]

    assert usages[1]["input_tokens"] == 1
    assert usages[1]["cache_read_input_tokens"] > 50


def test_the_last_message_of_the_assistant_is_continued(demo_server: Running) -> None:
    """As with Anthropic, the answer is what follows it."""
    whole = posted(demo_server)["content"][0]["text"]
    begun = whole[: whole.index(" language")]

    answer = posted(demo_server, messages=[QUESTION, {"role": "assistant", "content": begun}])

    assert (begun + answer["content"][0]["text"]).startswith(whole)


@table("path", ["/v1/messages", "/v1/messages/count_tokens"])
@table(
    ("fields", "words"),
    [
        ({"messages": "hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": ["user"]}]}, "role"),
        ({"messages": [{"role": "user", "content": [{"type": "image"}]}]}, "'image'"),
        ({"tool_choice": {"type": "some"}, "tools": [{"name": "f"}]}, "tool_choice"),
        ({"tools": [{"input_schema": {}}]}, "tools"),
        ({"tools": [{"type": ["custom"], "name": "f"}], "temperature": -1}, "temperature"),
        (
            {
                "messages": [
                    {
                        "role": "assistant",
                        "content": [{"type": "tool_use", "id": "c", "name": "f", "input": {}}],
                    }
                ]
            },
            "result",
        ),
    ],
)
def test_an_error_has_the_form_of_this_api(
    demo_server: Running, path: str, fields: dict[str, Any], words: str
) -> None:
    """It names what is wrong, and is not tried again."""
    reply = demo_server.client.post(path, json={**BODY, **fields})

    assert reply.status_code == 400
    body = reply.json()
    assert body["type"] == "error"
    assert body["error"]["type"] == "invalid_request_error"
    assert words in body["error"]["message"]


def test_a_prompt_that_is_too_long_says_how_long_it_is(demo_server: Running) -> None:
    """In the words at which Claude Code shortens the conversation; it can still be counted."""
    asked = {"messages": [{"role": "user", "content": "What is specchat? " * 1000}]}
    for stream in (False, True):
        reply = demo_server.client.post("/v1/messages", json={**asked, "stream": stream})
        assert reply.status_code == 400
        assert reply.json()["error"]["type"] == "invalid_request_error"
        assert "prompt is too long: 4009 tokens > 2048 maximum" in reply.text
    counted = demo_server.client.post("/v1/messages/count_tokens", json=asked)
    assert counted.json() == {"input_tokens": 4009}


def test_models_are_listed_for_anthropics_client_too(demo_server: Running) -> None:
    """One form has the fields of both."""
    listed = demo_server.client.get("/v1/models").json()
    first, last = listed["data"][0], listed["data"][-1]

    assert (listed["object"], listed["has_more"]) == ("list", False)
    assert (listed["first_id"], listed["last_id"]) == (first["id"], last["id"])
    assert (first["type"], first["display_name"]) == ("model", "demo")
    assert first["created_at"].endswith("+00:00")
    assert demo_server.client.head("/").status_code == 200
