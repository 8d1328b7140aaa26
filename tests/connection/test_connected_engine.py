"""Answers over HTTP: of recorded servers, and what is sent to them."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

import pytest

from connection.recording import Recording, read_recording
from connection.scripted_server import (
    Answer,
    ScriptedServer,
    event_answer,
    json_answer,
    text_answer,
)
from specchat.connection.address import parse_address
from specchat.connection.connected_engine import ConnectedEngine
from specchat.connection.dialects import LLAMA_SERVER, OTHER, SGLANG, SPECCHAT, VLLM, Dialect
from specchat.connection.http_session import MOST_WAITING
from specchat.connection.request_body import chat_body
from specchat.decoding.chunk import Chunk
from specchat.errors import Cancelled, ContextFull, InvalidOption, ServerFailed
from specchat.formats.chat_message import ChatMessage
from specchat.requests.answer_request import ChatRequest
from specchat.structured.structure import Structure, StructureKind
from tables import table

QUESTION: list[ChatMessage] = [{"role": "user", "content": "What is the capital of France?"}]
CHAT = "/v1/chat/completions"


@contextmanager
def connected(server: ScriptedServer, **changes: Any) -> Iterator[ConnectedEngine]:
    """Connect to a server."""
    with ConnectedEngine(parse_address(server.address), **changes) as engine:
        yield engine


def parts(chunks: list[Chunk]) -> tuple[str, str]:
    """Return the reasoning and the answer."""
    return "".join(each.reasoning for each in chunks), "".join(each.text for each in chunks)


RECORDED: dict[str, tuple[Any, ...]] = {
    "vllm": ("vLLM 0.29.0", 32768, 24, 24, 15, 8, [2, 1, 1, 4]),
    "vllm_0_10": ("vLLM 0.10.1.1", 32768, 18, None, None, None, None),
    "sglang": ("SGLang 0.5.19", 40960, 24, 24, 15, 8, [2, 1, 1, 4]),
    "lm_studio": ("LM Studio", 8192, 22, None, None, None, None),
    "ollama": ("Ollama 0.14.2", 4096, 19, None, None, None, None),
    "llama_server": ("llama-server b1-0c1e570", 2048, 24, 0, 0, 24, None),
    "llama_server_draft": ("llama-server", 2048, 24, 20, 17, 7, None),
}
"""What each recording says: program, context, tokens, drafted, accepted, steps, histogram."""


@table("name", RECORDED)
def test_figures_are_those_that_the_server_reports(name: str) -> None:
    """Text and figures of each recorded server are shown as it reports them."""
    program, context, tokens, drafted, accepted, steps, histogram = RECORDED[name]
    with read_recording(name).server() as server, connected(server) as engine:
        assert engine.facts.plan == f"{program} at {server.address.removeprefix('http://')}"
        assert engine.facts.context == context
        reasoning, answer = parts(list(engine.answer(QUESTION)))
        stats = engine.stats.as_dict()
    if not name.startswith("llama_server"):  # those were recorded with a model that cannot reason
        assert "capital of France" in reasoning
        assert answer.strip().endswith("Paris.")
    assert "<think>" not in reasoning + answer
    assert stats["prompt_tokens"] in {15, 37, 39}
    found = [stats[each] for each in ("drafted", "accepted", "steps", "acceptance_histogram")]
    assert [stats["generated_tokens"], *found] == [tokens, drafted, accepted, steps, histogram]
    if drafted:
        assert stats["acceptance_rate"] == pytest.approx(accepted / drafted)
        assert stats["tokens_per_step"] == pytest.approx(tokens / steps)
    assert stats["draft_s"] is None


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("name", RECORDED)
@pytest.mark.parametrize("size", [1, 7])
def test_where_the_network_breaks_a_stream_does_not_matter(name: str, size: int) -> None:
    """Streams may break within lines, characters and tags."""
    recording = read_recording(name)
    with recording.server() as server, connected(server) as engine:
        whole = parts(list(engine.answer(QUESTION)))
        sent = server.asked(CHAT)[-1].json()
        wanted = {"stream_options.include_usage": True} if "stream_options" in sent else {}
        server.put("POST", CHAT, recording.stream(**wanted).in_pieces(size))
        assert parts(list(engine.answer(QUESTION))) == whole


def test_line_ends_of_windows_and_comments_are_read_too() -> None:
    """All forms of server-sent events are read."""
    recording = read_recording("ollama")
    with recording.server() as server, connected(server) as engine:
        whole = parts(list(engine.answer(QUESTION)))
        answer = recording.stream(**{"stream_options.include_usage": True})
        server.put(
            "POST",
            CHAT,
            answer.with_bytes(lambda each: b": ping\r\n\r\n" + each.replace(b"\n", b"\r\n")),
        )
        assert parts(list(engine.answer(QUESTION))) == whole
        server.put("POST", CHAT, answer.with_bytes(lambda each: each.replace(b"data: ", b"data:")))
        assert parts(list(engine.answer(QUESTION))) == whole


def test_a_loop_is_found_in_a_stream() -> None:
    """However the server cuts its text; the sum of such tokens only `specchat serve` reports."""
    text = "And so it goes on and on. " * 60
    recording = read_recording("ollama")
    with recording.server() as server, connected(server) as engine:
        for size in (7, 400):
            cut = [text[place : place + size] for place in range(0, len(text), size)]
            events: list[dict[str, Any]] = [{"choices": [{"delta": {"content": e}}]} for e in cut]
            events.append({"choices": [{"delta": {}, "finish_reason": "length"}]})
            server.put("POST", CHAT, event_answer(events))
            list(engine.answer(QUESTION))
            assert 300 < engine.stats.repeating < 480
            assert engine.stats.as_dict()["repeated"] is None


def test_reasoning_without_an_opening_tag_is_named() -> None:
    """Some templates open it within the prompt, so only a parser at the server can tell."""
    recording = read_recording("vllm_0_10")
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, *recording.named["closing_tag"].answers)
        list(engine.answer(QUESTION))
        assert "start it with a reasoning parser" in " ".join(engine.stats.notices)


def test_think_tags_in_the_text_are_reasoning() -> None:
    """A server without a reasoning parser leaves its tags in the text."""
    recording = read_recording("vllm_0_10")
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, *recording.named["tags"].answers)
        reasoning, answer = parts(list(engine.answer(QUESTION)))
    assert "Okay" in reasoning
    assert answer.strip() == "Paris."


def counters(recording: Recording) -> list[Answer]:
    """Return the recorded counters before and after an answer."""
    (route,) = [each for each in recording.routes if each.path == "/metrics"]
    return route.answers


def test_drafts_are_counted_by_metrics_where_the_answer_does_not_say() -> None:
    """Counters before and after an answer give its drafts."""
    recording = read_recording("vllm")
    plain = recording.stream(**{"stream_options.include_usage": True})
    before, after = counters(recording)

    def without_metrics(piece: bytes) -> bytes:
        return piece.replace(b'"metrics"', b'"others"')

    with recording.server() as server, connected(server) as engine:
        server.put("GET", "/metrics", before, after)
        server.put("POST", CHAT, plain.with_bytes(without_metrics))
        list(engine.answer(QUESTION))
        stats = engine.stats.as_dict()
        assert [stats[each] for each in ("drafted", "accepted", "steps")] == [24, 15, 8]
        assert stats["acceptance_histogram"] == [2, 1, 1, 4]


def test_what_a_server_read_again_is_shown_if_it_says_so() -> None:
    """As `specchat serve` does; reasons that nobody knows and odd counts are left out."""
    counts = b'{"edited":7,"seed":-1,"odd":3,"model":"x"}'
    again = b'"specchat":{"repeated":3,"read_again":' + counts + b'},"usage"'
    recording = read_recording("vllm")
    answer = recording.stream(**{"stream_options.include_usage": True})
    with recording.server() as server, connected(server) as engine:
        list(engine.answer(QUESTION))
        assert engine.stats.as_dict()["read_again"] is None
        server.put("POST", CHAT, answer.with_bytes(lambda each: each.replace(b'"usage"', again)))
        list(engine.answer(QUESTION))
        stats = engine.stats.as_dict()
        assert (stats["read_again"], stats["repeated"]) == ({"edited": 7}, 3)


def test_counters_that_others_moved_too_say_nothing() -> None:
    """More tokens than the answer has are somebody else's."""
    recording = read_recording("vllm")
    plain = recording.stream(**{"stream_options.include_usage": True})
    before, after = counters(recording)
    busy = after.with_bytes(
        lambda each: (
            each.replace(b"generation_tokens_total{", b"x{")
            + b'vllm:generation_tokens_total{engine="0"} 999\n'
        )
    )
    with recording.server() as server, connected(server) as engine:
        server.put("GET", "/metrics", before, busy)
        server.put("POST", CHAT, plain.with_bytes(lambda each: each.replace(b'"metrics"', b'"x"')))
        list(engine.answer(QUESTION))
        assert engine.stats.as_dict()["drafted"] is None


def test_stopping_closes_the_connection_at_once() -> None:
    """The server sees the client leave, and the next answer works."""
    recording, gate = read_recording("ollama"), threading.Event()
    answer = recording.stream(**{"stream_options.include_usage": True}).hold(3, gate)
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, answer)
        chunks = []
        for chunk in engine.answer(QUESTION):
            chunks.append(chunk)
            if len(chunks) == 2:
                engine.stop()
        assert chunks[-1].finish == "cancelled"
        server.wait_until_left(CHAT)
        gate.set()
        server.put("POST", CHAT, recording.stream(**{"stream_options.include_usage": True}))
        assert list(engine.answer(QUESTION))[-1].finish == "stop"


def test_stopping_ends_the_wait_for_the_first_token() -> None:
    """A long prompt can be given up."""
    recording, gate = read_recording("ollama"), threading.Event()
    answer = recording.stream(**{"stream_options.include_usage": True}).hold(0, gate)
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, answer)

        def stop() -> None:
            server.wait_until_asked(CHAT)
            engine.stop()

        threading.Thread(target=stop).start()
        (chunk,) = engine.answer(QUESTION)
        assert chunk.finish == "cancelled"
        server.wait_until_left(CHAT)
        gate.set()


def test_an_answer_that_is_given_up_leaves_nothing_open() -> None:
    """Closing the iterator closes the connection."""
    recording, gate = read_recording("ollama"), threading.Event()
    answer = recording.stream(**{"stream_options.include_usage": True}).hold(3, gate)
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, answer)
        chunks = engine.answer(QUESTION)
        next(iter(chunks))
        chunks.close()  # type: ignore[attr-defined]  # it is a generator
        server.wait_until_left(CHAT)
        gate.set()


def test_a_server_that_loads_its_model_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """503 while a model loads does not fail."""
    monkeypatch.setattr("specchat.connection.connected_engine.LOADING_POLL_SECONDS", 0.01)
    loading = json_answer({"error": {"message": "Loading model", "code": 503}}, 503)
    ready = read_recording("ollama").answer("GET", "/v1/models")
    with read_recording("ollama").server() as server:
        server.put("GET", "/v1/models", loading, loading, ready)
        with connected(server) as engine:
            assert engine.facts.target == "qwen3:8b"


def test_a_server_that_says_nothing_can_be_left() -> None:
    """Progress is reported while it is waited for, and connecting ends when that is refused."""
    reports = list[float]()

    def take(stage: str, share: float) -> bool:
        assert stage == "target"
        reports.append(share)
        return len(reports) < 4

    with ScriptedServer() as server:
        server.put("GET", "/v1/models", Answer(ending="stall"))
        with pytest.raises(Cancelled), connected(server, on_progress=take):
            pass
        server.wait_until_left("/v1/models")
    assert reports == [0.0] * 4


def test_the_oldest_turns_are_left_out_where_a_conversation_does_not_fit() -> None:
    """Whole turns go, the last question stays."""
    recording = read_recording("vllm")
    messages: list[ChatMessage] = []
    for number in range(9):
        messages.append({"role": "user", "content": f"question {number} " + "word " * 400})
        messages.append({"role": "assistant", "content": f"answer {number}"})
    messages.append({"role": "user", "content": "the last question"})
    refused, answer = (
        recording.named["too_long"].answers[0],
        recording.stream(**{"stream_options.include_usage": True}),
    )
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, refused, answer)
        list(engine.answer(messages, make_room=True))
        first, second = [each.json()["messages"] for each in server.asked(CHAT)]
        assert len(first) == 19
        assert len(second) < 19
        assert second[-1]["content"] == "the last question"
        assert second[0]["role"] == "user"
        assert engine.stats.left_out == 19 - len(second)
        server.put("POST", CHAT, refused)
        with pytest.raises(ContextFull, match="32768"):
            list(engine.answer(messages))


def test_a_silent_refusal_of_a_long_prompt_is_named() -> None:
    """LM Studio answers nothing to a prompt that is too long."""
    recording = read_recording("lm_studio")
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, *recording.named["too_long_and_silent"].answers)
        with pytest.raises(ContextFull, match=r"9012 tokens.*8192"):
            list(engine.answer(QUESTION))


@pytest.mark.parametrize("name", ["vllm", "ollama"])
def test_tool_calls_are_put_together(name: str) -> None:
    """A call's parts arrive in many events."""
    recording = read_recording(name)
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": {}}}
    with recording.server() as server, connected(server) as engine:
        server.put("POST", CHAT, *recording.named["tool_call"].answers)
        chunks = list(engine.answer(QUESTION, tools=[tool]))
        (call,) = [call for chunk in chunks for call in chunk.tool_calls]
        assert (call.name, call.arguments.replace(" ", "")) == ("get_weather", '{"city":"Paris"}')
        assert server.asked(CHAT)[-1].json()["tools"] == [tool]


def ended_with(*endings: Any, **options: Any) -> Chunk:
    """Return the last chunk of a short answer whose stream ends in some way."""
    part = {"choices": [{"delta": {"content": "Paris"}}]}
    with read_recording("ollama").server() as server, connected(server) as engine:
        server.put("POST", CHAT, event_answer([part, part, *endings], is_done=False))
        return list(engine.answer(QUESTION, **options))[-1]


def ending(reason: str) -> dict[str, Any]:
    """Return the event that ends an answer."""
    return {"choices": [{"delta": {}, "finish_reason": reason}]}


def test_either_mark_of_the_end_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """The connection may be lost behind it, or stay open without a word."""
    assert ended_with(ending("stop")).finish == "stop"
    assert ended_with(b"data: [DONE]\n\n").finish == "stop"
    monkeypatch.setattr("specchat.connection.connected_engine.LAST_FIGURES_SECONDS", 0.1)
    gate = threading.Event()
    assert ended_with(ending("stop"), gate).finish == "stop"
    gate.set()


@pytest.mark.parametrize("reason", ["abort", "error"])
def test_an_answer_that_the_server_gave_up_is_not_complete(reason: str) -> None:
    """VLLM and SGLang end such a stream with a reason of its own."""
    with pytest.raises(ServerFailed, match="ended the answer early"):
        ended_with(ending(reason))


def test_a_stream_that_was_collected_on_the_way_is_not_called_fast() -> None:
    """Proxies do that; then the server's own time counts, if it reports one."""
    recording = read_recording("llama_server_draft")
    with recording.server() as server, connected(server) as engine:
        list(engine.answer(QUESTION))
        assert 1 < engine.stats.tokens_per_second < 500


def test_nothing_is_shown_behind_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """And a server that never ends its stream is not waited for."""
    monkeypatch.setattr("specchat.connection.connected_engine.LAST_FIGURES_SECONDS", 0.3)
    part = {"choices": [{"delta": {"content": "Paris"}}]}
    endless = [each for _ in range(2000) for each in (0.02, part)]
    with read_recording("ollama").server() as server, connected(server) as engine:
        server.put("POST", CHAT, event_answer([part, ending("stop"), *endless], is_done=False))
        began = monotonic()
        assert parts(list(engine.answer(QUESTION))) == ("", "Paris")
        assert monotonic() - began < 20


@pytest.mark.slow
@table(
    ("kind", "source", "answer", "is_valid"),
    [
        ("json_schema", '{"type": "integer"}', "7", True),
        ("json_schema", '{"type": "integer"}', '"x"', False),
        ("json_schema", '{"type": "integer"}', "not JSON", False),
        ("choices", '["a", "b"]', "b", True),
        ("choices", '["a", "b"]', "c", False),
        ("regex", "a+", "b", True),
    ],
)
def test_a_server_may_ignore_a_structure(
    kind: StructureKind, source: str, answer: str, *, is_valid: bool
) -> None:
    """What can be checked here is; of the rest it is said that it was not."""
    text = {"choices": [{"delta": {"content": answer}}]}
    with read_recording("vllm").server() as server, connected(server) as engine:
        server.put("POST", CHAT, event_answer([text, ending("stop")]))
        list(engine.answer(QUESTION, structure=Structure(kind, source)))
        assert engine.stats.is_valid is is_valid
        reason = engine.stats.invalid_reason
        assert bool(reason) is not is_valid
        assert ("did not follow" in reason) is (not is_valid and answer != '"x"')
        assert ("not checked here" in " ".join(engine.stats.notices)) is (kind == "regex")


def test_a_call_has_a_first_token_too() -> None:
    """Its parts are written like any others; one that is cut off is named."""
    with read_recording("vllm").server() as server, connected(server) as engine:
        server.put("POST", CHAT, *read_recording("vllm").named["tool_call"].answers)
        list(engine.answer(QUESTION, tools=[{"type": "function", "function": {"name": "f"}}]))
        assert engine.stats.time_to_first_token_s > 0
        function = {"name": "f", "arguments": '{"a": '}
        broken = {"choices": [{"delta": {"tool_calls": [{"index": 0, "function": function}]}}]}
        server.put("POST", CHAT, event_answer([broken, ending("length")]))
        assert not any(chunk.tool_calls for chunk in engine.answer(QUESTION))
        assert "a tool call was cut off" in " ".join(engine.stats.notices)


def test_a_full_context_is_told_from_the_limit() -> None:
    """By the number of tokens, where the server reports it."""
    usage = {"choices": [], "usage": {"completion_tokens": 3}}
    assert ended_with(ending("length"), usage, max_tokens=3).finish == "length"
    assert ended_with(ending("length"), usage, max_tokens=9).finish == "context"
    assert ended_with(ending("length"), usage).finish == "context"
    assert ended_with(ending("length"), max_tokens=9).finish == "length"


def test_a_server_that_is_faster_than_its_reader_waits() -> None:
    """Its events are not collected in memory without end."""
    part = {"choices": [{"delta": {"content": "x" * 500_000}}]}
    with read_recording("ollama").server() as server, connected(server) as engine:
        server.put("POST", CHAT, event_answer([*[part] * 100, ending("stop")]))
        chunks = engine.answer(QUESTION)
        next(iter(chunks))
        assert engine._stream is not None
        sleep(0.3)
        assert engine._stream.num_waiting <= 2 * MOST_WAITING
        assert sum(len(chunk.text) for chunk in chunks) == 99 * 500_000


def test_halves_of_characters_in_a_question_do_no_harm() -> None:
    """They come from terminals and files."""
    with read_recording("vllm").server() as server, connected(server) as engine:
        assert list(engine.answer([{"role": "user", "content": "a\ud83d"}]))[-1].finish == "stop"


def test_tokens_of_a_conversation_are_those_that_the_server_counts() -> None:
    """Where it does not count them, nothing is said."""
    with read_recording("vllm").server() as server, connected(server) as engine:
        size = engine.size(ChatRequest(messages=QUESTION))
        assert size is not None
        (counted,) = {each.json().get("prompt") for each in server.asked("/tokenize")} - {None}
        assert counted == QUESTION[0]["content"]
        recorded = read_recording("vllm").answer("POST", "/tokenize").body
        assert size.prompt_tokens == json.loads(recorded)["count"]
    with read_recording("ollama").server() as server, connected(server) as engine:
        assert engine.size(ChatRequest(messages=QUESTION)) is None


def test_counting_ends_when_the_engine_is_stopped() -> None:
    """A server that says nothing does not hold up what comes next."""
    with read_recording("vllm").server() as server, connected(server) as engine:
        server.put("POST", "/tokenize", Answer(ending="stall"))

        def stop() -> None:
            server.wait_until_asked("/tokenize")
            engine.stop()

        threading.Thread(target=stop).start()
        assert engine.size(ChatRequest(messages=QUESTION)) is None
        server.wait_until_left("/tokenize")
        assert len(server.asked("/tokenize")) == 1
        assert list(engine.answer(QUESTION))[-1].finish == "stop"


def test_texts_are_continued_as_they_are() -> None:
    """`--raw` uses the API for texts."""
    events = [{"choices": [{"text": part}]} for part in ("Paris", ".")]
    events.append({"choices": [{"text": "", "finish_reason": "stop"}]})
    with read_recording("vllm").server() as server, connected(server) as engine:
        server.put("POST", "/v1/completions", event_answer(events))
        assert parts(list(engine.generate("The capital is"))) == ("", "Paris.")
        assert server.asked("/v1/completions")[0].json()["prompt"] == "The capital is"
        with pytest.raises(InvalidOption, match="as text"):
            engine.generate([1, 2])


def body_for(dialect: Dialect, **options: Any) -> dict[str, Any]:
    """Return the body of a request to a kind of server."""
    messages = options.pop("messages", QUESTION)
    request = ChatRequest(messages=messages, **options)
    return chat_body(request, messages, "m", dialect)


def test_an_unknown_server_gets_only_fields_of_openai() -> None:
    """Some servers refuse fields that they do not know."""
    body = body_for(OTHER, seed=3, max_tokens=5, stop=["x"])
    known = {"model", "stream", "stream_options", "messages", "temperature", "top_p"}
    assert set(body) == known | {"seed", "max_tokens", "stop"}


def test_sampling_has_the_names_of_each_server() -> None:
    """The same option has several names."""
    assert body_for(LLAMA_SERVER, repeat_penalty=1.1)["repeat_penalty"] == 1.1
    assert body_for(VLLM, repeat_penalty=1.1)["repetition_penalty"] == 1.1
    assert body_for(SGLANG, top_k=0)["top_k"] == -1
    assert body_for(SPECCHAT, drafter="none")["drafter"] == "none"
    assert "drafter" not in body_for(VLLM, drafter="none")


def test_reasoning_is_switched_in_the_words_of_each_server() -> None:
    """There are two ways to switch reasoning off."""
    assert body_for(VLLM, think="off")["chat_template_kwargs"] == {"enable_thinking": False}
    assert body_for(OTHER, think="off")["reasoning_effort"] == "none"
    assert body_for(OTHER, think="high")["reasoning_effort"] == "high"
    assert "reasoning_effort" not in body_for(OTHER)


def test_a_structure_that_the_question_describes_is_not_described_again() -> None:
    """Only specchat's own server does that, and is told whether to."""
    for is_shown in (True, False):
        schema = Structure("json_schema", '{"type": "integer"}', is_shown=is_shown)
        assert body_for(SPECCHAT, structure=schema)["show_schema"] == is_shown
        assert "show_schema" not in body_for(VLLM, structure=schema)


def test_an_answer_is_continued_where_the_server_can() -> None:
    """It takes fields of its own in vLLM and SGLang."""
    begun: list[ChatMessage] = [*QUESTION, {"role": "assistant", "content": "It is"}]
    body = body_for(VLLM, messages=begun)
    assert body["continue_final_message"] is True
    assert body["add_generation_prompt"] is False
    with pytest.raises(InvalidOption, match="cannot continue an answer"):
        body_for(OTHER, messages=begun)


def test_reasoning_of_earlier_answers_is_sent_under_both_names() -> None:
    """Servers read one of them and ignore the other."""
    messages: list[ChatMessage] = [
        *QUESTION,
        {"role": "assistant", "content": "Paris.", "reasoning_content": "Hm."},
        *QUESTION,
    ]
    sent = body_for(VLLM, messages=messages)["messages"][1]
    assert sent["reasoning"] == sent["reasoning_content"] == "Hm."


def test_structures_are_written_as_each_server_wants_them() -> None:
    """A schema works everywhere, the rest where there is a way."""
    choices = Structure("choices", '["a", "b\\"c"]')
    assert body_for(VLLM, structure=choices)["structured_outputs"] == {"choice": ["a", 'b"c']}
    assert body_for(VLLM, structure=choices)["guided_choice"] == ["a", 'b"c']
    odd = Structure("choices", json.dumps(["\U0001f600", "a\b\n\\"]))
    assert body_for(LLAMA_SERVER, structure=odd)["grammar"] == (
        'root ::= "\U0001f600" | "a\\x08\\n\\\\"'
    )
    assert body_for(LLAMA_SERVER, structure=choices)["grammar"] == 'root ::= "a" | "b\\"c"'
    assert body_for(SGLANG, structure=choices)["regex"] == '(a)|(b"c)'
    schema = Structure("json_schema", '{"type": "integer"}')
    for dialect in (OTHER, VLLM, LLAMA_SERVER, SGLANG):
        given = body_for(dialect, structure=schema)["response_format"]
        assert given["json_schema"]["schema"] == {"type": "integer"}
        assert given["json_schema"]["name"]
    with pytest.raises(InvalidOption, match="regular expression"):
        body_for(LLAMA_SERVER, structure=Structure("regex", "a+"))


@pytest.mark.parametrize("name", ["logit_bias", "is_exact"])
def test_what_a_server_cannot_do_is_refused(name: str) -> None:
    """Nothing is ignored in silence."""
    with pytest.raises(InvalidOption, match="needs a model on this machine"):
        body_for(SPECCHAT, **{name: {1: 2.0} if name == "logit_bias" else True})


def test_the_model_is_chosen_by_name_or_is_the_first() -> None:
    """A wrong name is answered with the right ones."""
    with read_recording("lm_studio").server() as server:
        with connected(server) as engine:
            assert engine.facts.target == "qwen/qwen3-8b"
            assert "one more model" in " ".join(engine.facts.notices)
        address = parse_address(server.address)
        other = replace(address, model="google/gemma-4-26b-a4b")
        with ConnectedEngine(other) as engine:
            assert engine.facts.target == "google/gemma-4-26b-a4b"
        with pytest.raises(ServerFailed, match=r"no model qwen/qwen3 .did you mean qwen/qwen3-8b"):
            ConnectedEngine(replace(address, model="qwen/qwen3"))


def test_hostile_names_and_figures_are_harmless() -> None:
    """Figures of a wrong type or size are not figures."""
    models = {
        "data": [{"id": "a\x1b[2Jb", "max_model_len": 10**30}, {"id": 5}, "x", {"id": "y" * 500}]
    }
    events = [
        {"choices": [{"delta": {"content": "hi"}}], "usage": {"completion_tokens": -5}},
        {"choices": [{"delta": {"content": None, "tool_calls": [{"index": 10**9}]}}]},
        {"choices": "x", "timings": {"predicted_n": "many", "draft_n": 10**40}},
        {"choices": [7], "metrics": {"speculative_decoding": {"num_draft_tokens": True}}},
        {"choices": [{"delta": {}, "finish_reason": "stop"}], "sglext": [1]},
    ]
    routes = {"/api/version": text_answer("no", 404)}
    with ScriptedServer() as server:
        server.put("GET", "/v1/models", json_answer(models))
        server.put("GET", "/api/version", routes["/api/version"])
        server.put("POST", CHAT, event_answer(events))
        with connected(server) as engine:
            assert engine.facts.context == 0
            assert parts(list(engine.answer(QUESTION))) == ("", "hi")
            assert engine.stats.as_dict()["drafted"] is None
