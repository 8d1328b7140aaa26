"""The chat API: whole replies, streams, and what they contain."""

from __future__ import annotations

import json
from typing import Any

from server.conftest import Running


def events_of(server: Running, **fields: Any) -> list[dict[str, Any]]:
    """Return the events of a stream; the last one was [DONE]."""
    messages = [{"role": "user", "content": "What is specchat?"}]
    body = {"messages": messages, "stream": True, "temperature": 0, **fields}
    with server.client.stream("POST", "/v1/chat/completions", json=body) as reply:
        assert reply.headers["content-type"].startswith("text/event-stream")
        lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def test_a_reply_has_the_text_of_the_engine_and_all_figures(demo_server: Running) -> None:
    """The same tokens as plainly decoded ones, with usage, timings, metrics and specchat's own."""
    reply = demo_server.chat(temperature=0, max_tokens=24, verify=True)
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["usage"]["completion_tokens"] == reply["timings"]["predicted_n"] == 24
    assert reply["specchat"]["verify"]["identical"]
    assert reply["metrics"]["speculative_decoding"]["num_draft_tokens"] == sum(
        each["drafted"] for each in reply["specchat"]["by_origin"].values()
    )


def test_a_reply_says_what_was_read_again(demo_server: Running) -> None:
    """Of the text behind an edit, which the timings count as read."""
    first = [
        {"role": "user", "content": "What is specchat? " * 8 + end} for end in ("", "Eh?", "Oh!")
    ]
    answer = {"role": "assistant", "content": "It is a chat for models on your own machine. " * 8}
    question = {"role": "user", "content": "And then?"}
    again = [
        (reply["specchat"]["read_again"], reply["timings"]["prompt_n"])
        for asked in (first[1], first[1], first[2])
        for reply in [demo_server.chat(messages=[asked, answer, question], max_tokens=1)]
    ]

    assert again[1] == ({}, 1)
    counts, num_read = again[2]
    assert counts.keys() == {"edited"}
    assert 40 < counts["edited"] < num_read


def test_a_stream_adds_up_to_the_whole_reply(demo_server: Running) -> None:
    """The deltas are the text, the last event before the usage has the reason and the figures."""
    whole = demo_server.chat(temperature=0, max_tokens=24)
    *steps, last, usage = events_of(
        demo_server, max_tokens=24, stream_options={"include_usage": True}
    )
    text = "".join(each["choices"][0]["delta"].get("content", "") for each in steps)
    assert text == whole["choices"][0]["message"]["content"]
    assert last["choices"][0]["finish_reason"] == "length"
    assert last["timings"]["predicted_n"] == 24
    assert usage["choices"] == []
    assert usage["usage"]["completion_tokens"] == 24
