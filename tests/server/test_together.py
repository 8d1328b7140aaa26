"""Several clients whose answers are decoded together, over HTTP."""

from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import pytest

from server.conftest import Running, StartServer

QUESTIONS = ("What is specchat?", "How do I pull a model?", "Which drafters are there?")
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 60, "ignore_eos": True}


@pytest.fixture(scope="module")
def served(start_server: StartServer) -> Running:
    """Return a server that decodes three exact answers together, in an engine process."""
    return start_server(at_once=3, ctx=1024, exact="on")


def text_of(server: Running, question: str, **fields: Any) -> str:
    """Return what a stream says, which must end properly."""
    said, ended = "", False
    with server.stream(question, **GREEDY | fields) as events:
        for event in events:
            if event is None:
                ended = True
            elif event["choices"]:
                said += event["choices"][0]["delta"].get("content") or ""
    assert ended
    return said


def test_each_client_has_the_text_that_it_has_alone(served: Running) -> None:
    """Streams at once, with and without drafts, say what one after the other says."""
    alone = [text_of(served, question, drafter="none") for question in QUESTIONS]
    for drafter in ("none", "suffix", "auto"):
        with ThreadPoolExecutor(len(QUESTIONS)) as pool:
            streams = pool.map(
                lambda each, by=drafter: text_of(served, each, drafter=by), QUESTIONS
            )
            assert list(streams) == alone


def test_one_that_fails_or_leaves_does_not_disturb_the_others(served: Running) -> None:
    """A prompt that is too long, and a client that leaves, beside a stream."""
    alone = text_of(served, QUESTIONS[0], max_tokens=200)
    with ThreadPoolExecutor(1) as pool:
        stream = pool.submit(text_of, served, QUESTIONS[0], max_tokens=200)
        long = {"messages": [{"role": "user", "content": "word " * 3000}]}
        assert served.client.post("/v1/chat/completions", json=long).status_code == 400
        with served.stream(QUESTIONS[1], **GREEDY | {"max_tokens": 900}) as events:
            for _ in zip(range(5), events, strict=False):
                pass
        assert stream.result(60) == alone


def test_slots_and_figures_count_each_answer(served: Running) -> None:
    """Each reply has its own tokens, and all of them are counted once."""

    def asked(question: str) -> dict[str, Any]:
        body = {"messages": [{"role": "user", "content": question}], **GREEDY, "seed": None}
        reply: httpx2.Response = served.client.post("/v1/chat/completions", json=body)
        found: dict[str, Any] = reply.json()
        return found

    assert served.client.get("/props").json()["total_slots"] >= 3
    with ThreadPoolExecutor(len(QUESTIONS)) as pool:
        replies = list(pool.map(asked, QUESTIONS))
    assert [each["usage"]["completion_tokens"] for each in replies] == [60] * 3
    assert all(each["timings"]["predicted_ms"] > 0 for each in replies)
    figures = served.client.get("/metrics").text
    steps, passes, rows = (
        sum(float(value) for value in re.findall(rf"specchat:{name}_total{{.*}} (.*)", figures))
        for name in ("steps", "passes", "rows")
    )
    assert 0 < passes <= steps <= rows  # how many are shared depends on when the requests arrive
