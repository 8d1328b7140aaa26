"""The responses API: whole replies, the events of streams, and errors."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

from server.conftest import Running

BODY = {"input": "What is specchat?", "temperature": 0, "max_output_tokens": 24}


def posted(server: Running, **fields: Any) -> dict[str, Any]:
    """Return a whole reply."""
    return server.posted("/v1/responses", {**BODY, **fields})


def events_of(
    server: Running, then: Callable[[], None] | None = None, **fields: Any
) -> list[dict[str, Any]]:
    """Return the events of a stream; act at the first text."""
    return server.named_events("/v1/responses", {**BODY, **fields}, then)


def test_a_response_has_the_text_of_the_engine_and_all_figures(demo_server: Running) -> None:
    """The same text as by the chat API; usage in this API's words."""
    response = posted(demo_server, verify=True)
    chat = demo_server.chat(temperature=0, max_tokens=24)

    (item,) = response["output"]
    assert item["content"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert response["usage"]["output_tokens"] == response["timings"]["predicted_n"] == 24
    assert response["usage"]["input_tokens"] == chat["usage"]["prompt_tokens"]
    assert response["metrics"]["tokens_per_second"] > 0
    assert response["specchat"]["verify"]["identical"]
    assert (response["store"], response["previous_response_id"]) == (False, None)
    assert response["system_fingerprint"] == chat["system_fingerprint"]


def test_an_answer_cut_short_is_incomplete(demo_server: Running) -> None:
    """One that ended by itself is complete."""
    cut, whole = posted(demo_server), posted(demo_server, max_output_tokens=None)

    assert (cut["status"], cut["output"][0]["status"]) == ("incomplete", "incomplete")
    assert cut["incomplete_details"] == {"reason": "max_output_tokens"}
    assert (whole["status"], whole["output"][0]["status"]) == ("completed", "completed")
    assert whole["incomplete_details"] is None


def test_a_stream_has_every_event_in_order(demo_server: Running) -> None:
    """From its creation to the whole response, numbered; deltas add up to the text."""
    *events, last = events_of(demo_server, max_output_tokens=None)
    item = last["response"]["output"][0]

    assert [each["sequence_number"] for each in (*events, last)] == list(range(len(events) + 1))
    assert [name for name, _ in groupby(each["type"] for each in events)] == [
        "response.created",
        "response.in_progress",
        "response.output_item.added",
        "response.content_part.added",
        "response.output_text.delta",
        "response.output_text.done",
        "response.content_part.done",
        "response.output_item.done",
    ]
    deltas = [each["delta"] for each in events if each["type"].endswith(".delta")]
    (part,) = item["content"]
    assert "".join(deltas) == events[-3]["text"] == part["text"]
    assert events[-2]["part"] == part
    assert events[-1]["item"] == item
    assert events[2]["item"] == {**item, "content": [], "status": "in_progress"}
    assert {each["item_id"] for each in events if "item_id" in each} == {item["id"]}
    assert events[0]["response"]["status"] == "in_progress"
    assert last["type"] == "response.completed"
    assert last["response"]["usage"]["total_tokens"] > 0
    assert last["response"]["timings"]["predicted_n"] > 0


def test_a_stream_that_is_cut_short_ends_incomplete(demo_server: Running) -> None:
    """Clients of OpenAI's look at the name of the last event."""
    last = events_of(demo_server, max_output_tokens=4)[-1]

    assert last["type"] == "response.incomplete"
    assert last["response"]["incomplete_details"] == {"reason": "max_output_tokens"}


def test_a_prompt_that_is_too_long_says_how_long_it_is(demo_server: Running) -> None:
    """Also of a stream, since nothing was sent before; agents then shorten the conversation."""
    for stream in (False, True):
        body = {"input": "What is specchat? " * 1000, "stream": stream}
        reply = demo_server.client.post("/v1/responses", json=body)
        error = reply.json()["error"]

        assert reply.status_code == 400
        assert error["code"] == "context_length_exceeded"
        assert "prompt is too long: 4009 tokens > 2048 maximum" in error["message"]
        assert "maximum context length is 2048 tokens" in error["message"]


def test_a_conversation_that_is_too_long_may_be_truncated(demo_server: Running) -> None:
    """The oldest turns are left out, if the client asks for that."""
    turns = [{"role": "user", "content": "What is specchat? " * 120} for _ in range(5)]
    assert demo_server.client.post("/v1/responses", json={**BODY, "input": turns}).is_client_error

    response = posted(demo_server, input=turns, truncation="auto")

    assert response["usage"]["input_tokens"] < 1000
    assert response["truncation"] == "auto"
    assert response["specchat"]["left_out_messages"] == 4


def test_an_answer_that_fails_in_a_stream_says_so(demo_server: Running) -> None:
    """With the response as it began, the error, and the next number."""
    endless = {"max_output_tokens": None, "ignore_eos": True}
    events = events_of(demo_server, then=demo_server.service.engine.cancel_all, **endless)
    *before, failed = events

    assert failed["type"] == "response.failed"
    assert failed["sequence_number"] == before[-1]["sequence_number"] + 1
    response = failed["response"]
    assert (response["id"], response["status"]) == (before[0]["response"]["id"], "failed")
    assert response["error"]["message"]
    assert response["error"]["code"]
    assert posted(demo_server, max_output_tokens=2)["usage"]["output_tokens"] == 2
