"""What programs send that were written for another server means here what it means there."""

from __future__ import annotations

from typing import Any

import pytest

from server.conftest import Running, StartServer
from server.test_chat_completions import events_of
from specchat.catalogue.pairs import find_pair
from specchat.decoding.statistics import Statistics
from specchat.server.answer_figures import timings_of
from specchat.server.json_text import decoded
from specchat.server.service import Service
from tables import table

CHAT, TEXT, RESPONSES, MESSAGES = (
    *("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages"),
)
QUESTION = "What is specchat?"
ASKED = [{"role": "user", "content": QUESTION}]
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": ASKED, "temperature": 0},
    TEXT: {"prompt": "specchat is a terminal chat", "temperature": 0},
    RESPONSES: {"input": QUESTION, "temperature": 0},
    MESSAGES: {"messages": ASKED, "temperature": 0},
}


def answered(server: Running, path: str, **fields: Any) -> dict[str, Any]:
    """Post a request that must succeed."""
    return server.posted(path, {**BODIES[path], **fields})


def num_tokens(reply: dict[str, Any]) -> int:
    """Return how many tokens an answer has."""
    count: int = reply["timings"]["predicted_n"]
    return count


@pytest.fixture(scope="module")
def length(demo_server: Running) -> int:
    """Return how many tokens the answer has without a limit."""
    reply = answered(demo_server, CHAT)
    assert reply["choices"][0]["finish_reason"] == "stop"
    return num_tokens(reply)


@table("field", ["max_tokens", "max_completion_tokens", "n_predict", "num_predict"])
def test_a_limit_has_many_names(demo_server: Running, length: int, field: str) -> None:
    """Of tokens; below 1 it is none."""
    assert num_tokens(answered(demo_server, CHAT, **{field: 3})) == 3
    for none in (-1, -2, 0, None):
        assert num_tokens(answered(demo_server, CHAT, **{field: none})) == length
    assert num_tokens(answered(demo_server, TEXT, **{field: 3})) == 3


@table(
    ("path", "fields"),
    [
        (CHAT, {"max_tokens": 5, "n_predict": 3}),
        (CHAT, {"max_tokens": 5, "max_completion_tokens": 3}),
        (CHAT, {"max_tokens": 3, "max_completion_tokens": None}),
        (TEXT, {"max_tokens": 5, "n_predict": 3}),
        (RESPONSES, {"max_output_tokens": 3}),
        (MESSAGES, {"max_tokens": 3}),
    ],
)
def test_the_programs_own_name_counts(
    demo_server: Running, path: str, fields: dict[str, Any]
) -> None:
    """Before the one that all have."""
    assert num_tokens(answered(demo_server, path, **fields)) == 3


def test_a_limit_of_the_server_gives_way_to_none(start_server: StartServer, length: int) -> None:
    """A request that asks for no limit has none; one that says nothing has the server's."""
    server = start_server()
    server.service.defaults["max_tokens"] = 3
    assert num_tokens(answered(server, CHAT)) == 3
    assert num_tokens(answered(server, CHAT, max_tokens=-1)) == length


@table(
    ("path", "fields", "param"),
    [
        (CHAT, {"max_completion_tokens": "many"}, "max_completion_tokens"),
        (CHAT, {"n_predict": []}, "n_predict"),
        (CHAT, {"repetition_penalty": 0}, "repetition_penalty"),
        (CHAT, {"repeat_penalty": 0}, "repeat_penalty"),
        (CHAT, {"top_p": 2}, "top_p"),
        (CHAT, {"messages": [{"role": "user", "content": "x " * 9000}]}, "messages"),
        (TEXT, {"prompt": "x " * 9000}, "prompt"),
        (RESPONSES, {"input": "x " * 9000}, "input"),
        (RESPONSES, {"max_output_tokens": "many"}, "max_output_tokens"),
        (CHAT, {"stop_sequences": [1]}, "stop_sequences[0]"),
        ("/tokenize", {"content": "x " * 100000}, "content"),
        ("/tokenize", {"prompt": "x " * 100000}, "prompt"),
    ],
)
def test_an_error_names_the_field_that_was_sent(
    demo_server: Running, path: str, fields: dict[str, Any], param: str
) -> None:
    """Whatever it is called here."""
    reply = demo_server.client.post(path, json={**BODIES.get(path, {}), **fields})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert error["param"] == param
    assert "[" not in param or error["message"].startswith(param)


def test_an_error_names_a_field_of_anthropics(demo_server: Running) -> None:
    """In its text, as that API has no other place."""
    body = {**BODIES[MESSAGES], "stop_sequences": ["x"] * 65}
    reply = demo_server.client.post(MESSAGES, json=body)
    assert reply.json()["error"]["message"].startswith("stop_sequences: at most")


def test_samplers_are_switched_off_as_elsewhere(demo_server: Running) -> None:
    """By -1 for top-k; by 0 for top-p only the most likely token stays."""
    hot: dict[str, Any] = {"temperature": 9, "seed": 3, "max_tokens": 16, "min_p": 0}
    off, least = (
        demo_server.chat(**hot, top_p=1, top_k=top_k)["choices"][0]["message"] for top_k in (0, -1)
    )
    assert off == least
    greedy = demo_server.chat(temperature=0, max_tokens=16)["choices"][0]["message"]
    found = demo_server.chat(**hot, top_k=0, top_p=0)["choices"][0]["message"]
    assert found == greedy != off


def test_what_is_not_here_is_named(demo_server: Running) -> None:
    """If it would change the answer elsewhere; programs send all samplers, most of them off."""
    on = {"xtc_probability": 0.5, "mirostat": 2, "typical_p": 0.9, "stop_token_ids": [2]}
    on |= {"n_probs": 2, "post_sampling_probs": True}
    off = {"dry_multiplier": 0, "dynatemp_range": 0.0, "top_n_sigma": -1, "tfs_z": 1, "typ_p": None}
    without = {"store": True, "metadata": {"a": "b"}, "user": 3, "service_tier": "auto"}
    for path in BODIES:
        reply = answered(demo_server, path, **on, **off, **without, max_tokens=2)
        named = [each.partition(" ")[0] for each in reply["specchat"]["notices"]]
        assert sorted(named) == sorted(on)
    last = events_of(demo_server, **on, max_tokens=2)[-1]
    assert len(last["specchat"]["notices"]) == len(on)


@table(
    ("path", "counted"),
    [(path, f"{path}/{name}") for path, name in (
        (CHAT, "input_tokens"), (RESPONSES, "input_tokens"), (MESSAGES, "count_tokens"),
    )],
)  # fmt: skip
def test_a_prompt_is_counted_beforehand(demo_server: Running, path: str, counted: str) -> None:
    """By the path that each API has for it; the usage says the same."""
    count = demo_server.posted(counted, BODIES[path])
    assert count.get("object") in (None, "response.input_tokens")
    usage = demo_server.chat(BODIES[CHAT]["messages"][0]["content"], max_tokens=1)["usage"]
    assert count["input_tokens"] == usage["prompt_tokens"]


def test_tools_that_are_left_out_are_named(demo_server: Running) -> None:
    """Of the request, and of an item, as Codex sends its own."""
    custom = {"type": "custom", "name": "apply_patch"}
    item = {"type": "additional_tools", "role": "developer", "tools": [custom]}
    asked = {"input": [item, {"role": "user", "content": "Why?"}]}
    for path, fields in ((RESPONSES, asked), (CHAT, {"tools": [custom, custom]})):
        reply = answered(demo_server, path, **fields, max_tokens=1)
        assert reply["specchat"]["notices"] == ["tools of type 'custom' are left out"]


def test_notices_cannot_be_sent(demo_server: Running) -> None:
    """They are the server's."""
    assert answered(demo_server, CHAT, notices=["x"], max_tokens=1)["specchat"]["notices"] == []


@table("prefix", ["", "/v1", "//v1", "/v1/v1"])
@table("ending", ["", "/"])
def test_paths_have_a_version_or_none(demo_server: Running, prefix: str, ending: str) -> None:
    """And a slash at the end or none: base URLs differ."""
    for path, body in BODIES.items():
        bare = path.removeprefix("/v1")
        reply = demo_server.client.post(f"{demo_server.address}{prefix}{bare}{ending}", json=body)
        assert reply.status_code == 200, reply.text
    models = demo_server.client.get(f"{demo_server.address}{prefix}/models{ending}")
    assert models.json()["data"][0]["id"] == "demo"
    error = demo_server.client.post(f"{prefix}/messages{ending}", json={}).json()
    assert error["type"] == "error"


def test_an_unknown_endpoint_is_named_as_it_was_called(demo_server: Running) -> None:
    """So that a wrong base URL shows."""
    reply = demo_server.client.get("/v1/nothing/")
    assert reply.status_code == 404
    assert "/v1/nothing/" in reply.json()["error"]["message"]


def test_other_models_are_answered_with_a_notice(demo_server: Running) -> None:
    """Or refused, if the server is strict."""
    for path in BODIES:
        reply = answered(demo_server, path, model="gpt-4", max_tokens=1)
        assert reply["model"] == "demo"
        assert reply["specchat"]["notices"] == ["unknown model 'gpt-4': answered by demo"]
        for known in ("demo", "demo:plain", "", None):
            known_reply = answered(demo_server, path, model=known, max_tokens=1)
            assert known_reply["specchat"]["notices"] == []


def test_a_strict_server_refuses_other_models(
    start_server: StartServer, demo_server: Running
) -> None:
    """With the status and code at which clients ask for the list."""
    target = find_pair("demo").target
    strict = Service(demo_server.service.engine, target, "demo", is_strict=True)
    server = start_server(service=strict)
    for path, body in BODIES.items():
        reply = server.client.post(path, json={**body, "model": "gpt-4", "max_tokens": 1})
        assert reply.status_code == 404
        assert "this server has demo" in reply.json()["error"]["message"]
        assert answered(server, path, model="demo:plain", max_tokens=1)["model"] == "demo:plain"
        assert answered(server, path, max_tokens=1)["model"] == "demo"


def test_biases_come_in_many_forms(demo_server: Running) -> None:
    """By token or text, as an object or as pairs; `false` and -100 ban."""
    first = answered(demo_server, CHAT, max_tokens=1, logprobs=True)["choices"][0]
    text = first["logprobs"]["content"][0]["token"]
    (token,) = demo_server.posted("/tokenize", {"content": text})["tokens"]
    banned = [
        {str(token): -100},
        {text: -100},
        [[token, False]],
        [[text, False]],
        [[str(token), -200.5], ["no such text", 0]],
    ]
    others = {
        answered(demo_server, CHAT, max_tokens=1, logit_bias=bias)["choices"][0]["message"][
            "content"
        ]
        for bias in banned
    }
    assert len(others) == 1
    assert others != {first["message"]["content"]}
    nothings: list[Any] = [{}, [], None, {text: 0}]
    for nothing in nothings:
        same = answered(demo_server, CHAT, max_tokens=1, logit_bias=nothing)["choices"][0]
        assert same["message"]["content"] == first["message"]["content"]


@table(
    "bias",
    [
        "x",
        3,
        [1],
        [[1]],
        [["a", "b"]],
        [["a", True]],
        [[True, 1]],
        {"1": None},
        [["a", 1]] * 1001,
        {"5": 10**400},
        [[10**22, 1]],
        [[2**31, 1]],
        [["x " * 100000, 1]],
    ],
    ids=lambda bias: str(bias)[:20],
)
def test_a_wrong_bias_is_refused(demo_server: Running, bias: Any) -> None:
    """Before anything is decoded."""
    reply = demo_server.client.post(CHAT, json={**BODIES[CHAT], "logit_bias": bias})
    assert reply.status_code == 400
    error = reply.json()["error"]
    assert (error["param"], error["type"]) == ("logit_bias", "invalid_request_error")


def test_a_stream_begins_as_openais(demo_server: Running) -> None:
    """With the role and an empty text; usage is null until the last event, if it is asked for."""
    first, *events = events_of(demo_server, max_tokens=2, stream_options={"include_usage": True})
    (choice,) = first["choices"]
    assert choice["delta"] == {"role": "assistant", "content": "", "refusal": None}
    assert (choice["logprobs"], choice["finish_reason"]) == (None, None)
    assert first["system_fingerprint"].startswith("fp_")
    assert [each["usage"] for each in (first, *events[:-1])] == [None] * len(events)
    assert events[-1]["usage"]["completion_tokens"] == 2
    obfuscated = {"include_obfuscation": False}
    assert "usage" not in events_of(demo_server, max_tokens=2, stream_options=obfuscated)[0]


def test_reading_a_cached_prompt_takes_the_time_of_its_pass(demo_server: Running) -> None:
    """The first step reads its last token, so the rates are those of passes."""
    answered(demo_server, CHAT, max_tokens=8)
    reply = answered(demo_server, CHAT, max_tokens=8)
    timings, metrics = reply["timings"], reply["metrics"]
    assert timings["prompt_n"] == 1
    assert 0 < timings["prompt_ms"] <= metrics["time_to_first_token_ms"]
    of_a_read_prompt = Statistics(
        prompt_tokens=40, cached_tokens=39, prompt_s=0.001, steps=2, generated_tokens=5,
        first_step_s=0.008, first_step_tokens=2, decode_s=0.024,
    )  # fmt: skip
    assert timings_of(of_a_read_prompt)["prompt_ms"] == pytest.approx(9)
    assert timings_of(of_a_read_prompt)["predicted_ms"] == pytest.approx(16)


@table(
    ("text", "found"),
    [
        (r'"a\ud83d"', "a\ufffd"),
        (r'"\ude00b"', "\ufffdb"),
        (r'"\ud83d\ude00\ud83d"', "\U0001f600\ufffd"),
        (r'"\uD83D\uD83D\uDE00\uDE00"', "\ufffd\U0001f600\ufffd"),
        (r'"\\ud83d \ud83d"', "\\ud83d \ufffd"),
        (r'"\ud83d\u0041\n"', "\ufffdA\n"),
        ('\ufeff"a"', "a"),
    ],
)
def test_a_character_cut_in_two_is_one_that_cannot_be_read(text: str, found: str) -> None:
    """JavaScript cuts texts within an emoji, and sends half of it."""
    assert decoded(text.encode()) == found
