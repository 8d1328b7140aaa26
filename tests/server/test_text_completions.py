"""The API for texts, and what shows the tokens of one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from itertools import pairwise
from typing import Any

import httpx2
import pytest

from server.conftest import LONG, SECONDS, Running, StartServer, until
from server.raw_http import connect
from specchat import Engine
from specchat.engine.local_engine import LocalEngine
from specchat.errors import Cancelled
from specchat.server.service import Service
from tables import table

TEXT = "specchat is a terminal chat for people who run language models"


def post(server: Running, path: str, **body: Any) -> dict[str, Any]:
    """Post a request that must succeed."""
    return server.posted(path, body)


def complete(server: Running, prompt: Any = TEXT, **body: Any) -> dict[str, Any]:
    """Continue a text greedily."""
    return post(server, "/v1/completions", prompt=prompt, temperature=0, **body)


def test_a_text_is_continued(demo_server: Running) -> None:
    """By 16 tokens as with OpenAI, from text and from tokens alike, with all figures."""
    reply = complete(demo_server)
    tokens = post(demo_server, "/tokenize", prompt=TEXT)["tokens"]
    again = complete(demo_server, tokens)
    assert reply["usage"]["completion_tokens"] == 16 == reply["timings"]["predicted_n"]
    assert reply["choices"] == again["choices"]
    assert reply["choices"][0]["finish_reason"] == "length"
    assert reply["specchat"]["drafter"]


def test_an_answer_in_a_loop_is_counted_and_not_stopped(demo_server: Running) -> None:
    """A client decides for itself; here it has made the model say a token over and over."""
    token = str(post(demo_server, "/tokenize", prompt="chat")["tokens"][-1])
    reply = complete(demo_server, max_tokens=900, logit_bias={token: 100})

    assert reply["usage"]["completion_tokens"] == 900
    assert reply["choices"][0]["finish_reason"] == "length"
    assert 850 < reply["specchat"]["repeated"] < 900


def test_several_prompts_and_choices_are_answered_in_order(demo_server: Running) -> None:
    """Each prompt counts once in the usage."""
    prompts = [TEXT, "The draft model"]
    lengths = [post(demo_server, "/tokenize", prompt=each)["count"] for each in prompts]
    body = {"prompt": prompts, "n": 2, "max_tokens": 5, "seed": 4, "temperature": 1}
    reply = post(demo_server, "/v1/completions", **body)
    assert [each["index"] for each in reply["choices"]] == [0, 1, 2, 3]
    assert reply["usage"]["prompt_tokens"] == sum(lengths)
    assert reply["usage"]["completion_tokens"] == 20
    again = post(demo_server, "/v1/completions", **body)
    assert [each["text"] for each in again["choices"]] == [
        each["text"] for each in reply["choices"]
    ]


def test_a_prompts_probabilities_are_those_of_its_continuation(demo_server: Running) -> None:
    """What is echoed scores each token as generating it does, and offsets cut the text."""
    written = complete(demo_server, max_tokens=8, logprobs=3)["choices"][0]
    whole = TEXT + written["text"]
    echo = complete(demo_server, whole, max_tokens=0, echo=True, logprobs=3)["choices"][0]
    found, expected = echo["logprobs"], written["logprobs"]
    assert echo["text"] == whole
    assert found["token_logprobs"][0] is None
    assert found["tokens"][-8:] == expected["tokens"]
    assert found["token_logprobs"][-8:] == pytest.approx(expected["token_logprobs"], abs=0.02)
    ends = [*found["text_offset"][1:], len(whole)]
    cut = [whole[start:end] for start, end in zip(found["text_offset"], ends, strict=True)]
    assert cut == found["tokens"]
    assert all(sum(2.718281828**each for each in top.values()) <= 1.0001
               for top in found["top_logprobs"][1:])  # fmt: skip


def test_an_echo_with_an_answer_is_one_text(demo_server: Running) -> None:
    """Streamed and whole."""
    body = {"max_tokens": 6, "echo": True, "logprobs": 1}
    whole = complete(demo_server, **body)["choices"][0]
    stream = {"prompt": TEXT, "temperature": 0, "stream": True, **body}
    with demo_server.client.stream("POST", "/v1/completions", json=stream) as reply:
        lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: ")]
    assert lines.pop() == "[DONE]"
    parts = [json.loads(line)["choices"][0] for line in lines]
    assert "".join(part["text"] for part in parts) == whole["text"]
    assert whole["text"].startswith(TEXT)
    offsets = [at for part in parts if part["logprobs"] for at in part["logprobs"]["text_offset"]]
    assert offsets == whole["logprobs"]["text_offset"]
    assert all(first < second for first, second in pairwise(offsets))


def test_a_prompt_is_counted_and_scored_once_for_all_its_choices(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that nothing is written after; a stream beside goes on between its parts."""
    scored, score = list[int](), Service.score

    async def noted(service: Service, tokens: Sequence[int], count: int) -> Any:
        scored.append(len(tokens))
        return await score(service, tokens, count)

    monkeypatch.setattr(Service, "score", noted)
    monkeypatch.setattr("specchat.server.service.SLICE_SECONDS", 0.0)
    prompts = [TEXT, TEXT * 12]
    lengths = [post(demo_server, "/tokenize", prompt=each)["count"] for each in prompts]
    body = {"prompt": prompts, "n": 3, "max_tokens": 0}
    assert post(demo_server, "/v1/completions", **body)["usage"]["prompt_tokens"] == sum(lengths)
    with demo_server.stream(**LONG) as events:
        next(events)
        reply = post(demo_server, "/v1/completions", **body, echo=True, logprobs=1)
        assert next(events)
    assert reply["usage"]["prompt_tokens"] == sum(lengths)
    assert scored == lengths
    assert len(reply["choices"][-1]["logprobs"]["token_logprobs"]) == lengths[1] > 65


def test_a_stream_is_not_silent_while_its_prompt_is_scored(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That may take minutes, and a client would give up."""
    is_heard, score = threading.Event(), Service.score

    async def late(service: Service, tokens: Sequence[int], count: int) -> Any:
        assert await asyncio.to_thread(is_heard.wait, SECONDS)
        return await score(service, tokens, count)

    monkeypatch.setattr(Service, "score", late)
    monkeypatch.setattr("specchat.server.text_completions.SECONDS_TO_COMMENT", 0.05)
    body = {"prompt": TEXT, "max_tokens": 2, "echo": True, "logprobs": 1, "stream": True}
    with demo_server.client.stream("POST", "/v1/completions", json=body) as reply:
        lines = reply.iter_lines()
        assert next(lines) == ": scoring the prompt"
        is_heard.set()
        assert "data: [DONE]" in list(lines)


@table("body", [{}, {"echo": True}, {"echo": True, "logprobs": 1}])
def test_a_prompt_that_is_only_read_may_not_be_too_long(
    demo_server: Running, body: dict[str, Any]
) -> None:
    """It is counted before the engine has it; far longer ones are not even counted."""
    context = demo_server.service.facts.context
    for prompt, is_far in (([5] * (context + 1), False), (TEXT * 2000, True)):
        whole = {"prompt": prompt, "max_tokens": 0, **body}
        reply = demo_server.client.post("/v1/completions", json=whole)
        error = reply.json()["error"]
        assert (reply.status_code, error["n_ctx"]) == (400, context)
        assert error["type"] == "exceed_context_size_error"
        assert (error["n_prompt_tokens"] > context + 1) is is_far


@table("is_streamed", [False, True])
def test_so_many_requests_are_scored_at_a_time(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch, is_streamed: bool
) -> None:
    """The next one is refused as by a full queue; others are answered, and it is later."""
    monkeypatch.setattr("specchat.server.service.MOST_SCORING", 1)
    body = {"prompt": TEXT, "max_tokens": 1, "echo": True, "logprobs": 1, "stream": is_streamed}
    with demo_server.service.scoring():
        refused = demo_server.client.post("/v1/completions", json=body)
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "queue_full")
        assert refused.headers["retry-after"]
        for field in ("echo", "logprobs"):
            others = {name: each for name, each in body.items() if name != field}
            assert demo_server.client.post("/v1/completions", json=others).status_code == 200
    for _ in range(2):
        assert demo_server.client.post("/v1/completions", json=body).status_code == 200


def test_scoring_ends_with_the_server_and_with_its_client(
    start_server: StartServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is stopped in the middle of a part."""
    running = start_server(process=False)
    calls, is_over = list[Callable[[], bool]](), threading.Event()

    def endless(
        _: Engine, tokens: Sequence[int], count: int, *, is_stopped: Callable[[], bool], **__: Any
    ) -> Any:
        calls.append(is_stopped)
        while not is_stopped():
            time.sleep(0.01)
        is_over.set()
        raise Cancelled("stopped")

    monkeypatch.setattr(LocalEngine, "score", endless)
    body = {"prompt": TEXT, "max_tokens": 0, "echo": True, "logprobs": 1}
    data = json.dumps(body).encode()
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    with closing(connect(running.address)) as leaving:
        leaving.sendall(f"{head}Content-Length: {len(data)}\r\n\r\n".encode() + data)
        until(lambda: calls, "the first part")
    assert is_over.wait(SECONDS)
    replies = list[httpx2.Response]()
    asking = threading.Thread(
        target=lambda: replies.append(running.client.post("/v1/completions", json=body))
    )
    asking.start()
    until(lambda: len(calls) == 2, "the first part of the other")
    running.end()
    asking.join(SECONDS)
    assert (replies[0].status_code, replies[0].json()["error"]["code"]) == (503, "shutting_down")


@table(
    ("body", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [[]]}, "prompt"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": [10**9]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": "x", "best_of": 3}, "best_of"),
        ({"prompt": "x " * 5000}, "prompt"),
    ],
)
def test_a_wrong_request_says_what_is_wrong(
    demo_server: Running, body: dict[str, Any], param: str | None
) -> None:
    """With 400, which clients do not repeat."""
    reply = demo_server.client.post("/v1/completions", json=body)
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


def test_tokens_and_texts_are_translated(demo_server: Running) -> None:
    """There and back, with pieces, of texts and of conversations."""
    found = post(demo_server, "/tokenize", content=TEXT, with_pieces=True)["tokens"]
    assert "".join(each["piece"] for each in found) == TEXT
    tokens = [each["id"] for each in found]
    assert post(demo_server, "/detokenize", tokens=tokens)["content"] == TEXT
    messages = [{"role": "user", "content": "Hello"}]
    prompt = post(demo_server, "/apply-template", messages=messages)
    assert "Hello" in prompt["prompt"]
    assert post(demo_server, "/tokenize", messages=messages)["tokens"] == prompt["tokens"]
    assert demo_server.chat("Hello", max_tokens=1)["usage"]["prompt_tokens"] == len(
        prompt["tokens"]
    )
    bare = {"messages": messages, "add_generation_prompt": False}
    begun, asked = prompt["tokens"], post(demo_server, "/apply-template", **bare)["tokens"]
    assert begun[: len(asked)] == asked != begun
    assert post(demo_server, "/tokenize", **bare)["tokens"] == asked
    for path, body in (
        ("/tokenize", {}),
        ("/detokenize", {"tokens": [-1]}),
        ("/detokenize", {"tokens": "x"}),
    ):
        reply = demo_server.client.post(path, json=body)
        assert (reply.status_code, reply.json()["error"]["param"]) == (400, *(body or {"content"}))
    assert demo_server.client.post("/tokenize", json={"content": ""}).json()["tokens"] == []


def test_an_answer_at_the_end_may_be_over(demo_server: Running) -> None:
    """It has its marks then, and no answer follows; else it is left open."""
    asked = [{"role": "user", "content": "q"}]
    messages = [*asked, {"role": "assistant", "content": "Hi"}]

    def text(messages: Any, **fields: Any) -> str:
        prompt = post(demo_server, "/apply-template", messages=messages, **fields)["prompt"]
        return str(prompt)

    opened, closed = text(messages), text(messages, add_generation_prompt=False)
    assert opened == text(messages, add_generation_prompt=None) == text(asked) + "Hi"
    assert closed.startswith(opened)
    later = text([*messages, *asked])
    assert later.startswith(closed)
    assert len(closed) > len(opened)


def test_a_template_is_not_told_to_open_no_answer(demo_server: Running) -> None:
    """By a variable: the answer would begin in the wrong place."""
    for value in (True, False):
        body = {"messages": [{"role": "user", "content": "q"}]}
        more = {"chat_template_kwargs": {"add_generation_prompt": value}}
        reply = demo_server.client.post("/v1/chat/completions", json={**body, **more})
        assert (reply.status_code, "specchat itself" in reply.text) == (400, True)


def test_a_draft_may_be_a_tree(demo_server: Running) -> None:
    """Of a size that the request sets, and the text is the same; what cannot be done is said."""
    fixed: dict[str, Any] = {"max_tokens": 40, "drafter": "model", "draft_length": 3}
    found = {
        size: complete(demo_server, draft_tree=size, **fixed) for size in ("off", "auto", 9, 32)
    }
    assert len({reply["choices"][0]["text"] for reply in found.values()}) == 1
    figures = {size: reply["specchat"] for size, reply in found.items()}
    drafted = {size: reply["timings"]["draft_n"] for size, reply in found.items()}
    assert figures["off"]["nodes"] == drafted["off"]
    assert figures["auto"]["nodes"] == drafted["auto"]  # a fixed length has branches if asked for
    assert figures[9]["nodes"] > drafted[9]
    assert figures[9]["tokens_per_step"] >= figures["off"]["tokens_per_step"]
    assert figures[9]["notices"] == []
    assert figures[32]["notices"] == ["draft trees have at most 27 tokens here, not 32"]
    exact = complete(demo_server, draft_tree=9, exact="on", max_tokens=5)
    assert all("drafts are chains" in each for each in exact["specchat"]["notices"])


def test_a_prediction_counts_in_the_usage(demo_server: Running) -> None:
    """What was accepted and rejected of it, and the text is the same; plain stays plain."""
    plain = demo_server.chat(temperature=0, max_tokens=40, model="demo:plain")
    text = plain["choices"][0]["message"]["content"]
    body: dict[str, Any] = {"temperature": 0, "max_tokens": 40}
    body |= {"drafter": "suffix", "draft_length": 6}
    found = demo_server.chat(prediction={"type": "content", "content": text}, **body)
    assert found["choices"][0]["message"]["content"] == text
    details = found["usage"]["completion_tokens_details"]
    drafted = found["specchat"]["by_origin"]["prediction"]
    assert details["accepted_prediction_tokens"] == drafted["accepted"] > 20
    assert details["rejected_prediction_tokens"] == drafted["drafted"] - drafted["accepted"]
    assert found["specchat"]["tokens_per_step"] > 2
    foreign = demo_server.chat(prediction={"content": "one two three " * 50}, **body)
    assert foreign["choices"][0]["message"]["content"] == text
    ignored = demo_server.chat(
        prediction={"content": text}, temperature=0, max_tokens=40, model="demo:plain"
    )
    assert ignored["specchat"]["by_origin"] == {}
