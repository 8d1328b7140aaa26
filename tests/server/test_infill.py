"""Gaps in texts are filled as llama-server does it, for the editors that ask it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from scripts.support.server_fuzz import fuzz
from scripts.support.tiny_gguf import Words, write_parrot
from server.conftest import Running, StartServer, until
from tables import table

MARKS = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>", "<|repo_name|>", "<|file_sep|>")
LINES = ("a + b", "\n    ", "return", " total", "\n", "print", "(1)", "<|im_end|>")
BODY = "a + b\n    return total\nprint(1)"
BEFORE, AFTER = "def add(a, b):\n    total = ", "\n\nadd(1, 2)\n"
ASKED = {"input_prefix": "def add(a, b):\n", "prompt": "    total = ", "input_suffix": AFTER}
VIM_FIELDS = ["content", "timings/prompt_n", "timings/predicted_n", "truncated", "tokens_cached"]


@pytest.fixture(scope="module")
def coder(start_server: StartServer, tmp_path_factory: pytest.TempPathFactory) -> Running:
    """Return a server whose model fills every gap with the same lines."""
    path = tmp_path_factory.mktemp("coder") / "coder.gguf"
    words = Words(("<|im_start|>", "<|im_end|>", *MARKS), whole=LINES[:-1], template=None)
    return start_server("coder", target=write_parrot(path, LINES, words, name="coder"))


def prompt_of(files: str = "") -> str:
    """Return the prompt for the gap, by the names of its special tokens."""
    return f"{files}<|fim_prefix|>{BEFORE}<|fim_suffix|>{AFTER}<|fim_middle|>"


def count(server: Running, prompt: str) -> int:
    """Return how many tokens a prompt has."""
    found: int = server.posted("/tokenize", {"content": prompt})["count"]
    return found


def test_a_gap_is_filled(coder: Running) -> None:
    """With the fields that editors read, and drafts; what was read before is not read again."""
    coder.posted("/infill", ASKED)
    reply = coder.posted("/infill", {**ASKED, "prompt": "    total = a"})
    assert reply["content"] == BODY
    assert reply["stop"] is True
    assert reply["stop_type"] == "eos"
    assert reply["truncated"] is False
    assert reply["generation_settings"]["n_ctx"] == coder.service.facts.context
    assert reply["tokens_evaluated"] == count(coder, prompt_of()) + 1
    assert reply["tokens_cached"] == reply["tokens_evaluated"] + reply["tokens_predicted"]
    assert reply["timings"]["cache_n"] >= count(coder, f"<|fim_prefix|>{BEFORE}")
    assert reply["specchat"]["drafter"]


def test_an_editor_gets_the_fields_it_names(coder: Running) -> None:
    """Under their paths, as llama.vim sends its request; a name that is unknown gives nothing."""
    more = {"id_slot": 0, "samplers": ["top_k", "top_p", "infill"], "cache_prompt": True}
    more |= {"t_max_prompt_ms": 500, "t_max_predict_ms": 10000, "top_k": 40, "top_p": 0.9}
    reply = coder.posted("/infill", {**ASKED, **more, "response_fields": VIM_FIELDS})
    assert list(reply) == VIM_FIELDS
    assert reply["content"] == BODY
    assert coder.posted("/infill", {**ASKED, "response_fields": [""]}) == {}


def test_files_come_before_the_gap(coder: Running) -> None:
    """By their names, after those of the repository; they are read once, before they are needed."""
    files = [{"filename": "sub.py", "text": "def sub(): ..."}, {"text": "x = 1"}]
    asked = {"input_prefix": "", "input_suffix": "", "input_extra": files, "n_predict": 0}
    warm = coder.posted("/infill", asked)
    assert warm["content"] == ""
    begin = (
        "<|repo_name|>myproject\n<|file_sep|>sub.py\ndef sub(): ..."
        "<|file_sep|>tmp\nx = 1<|file_sep|>filename\n"
    )
    reply = coder.posted("/infill", {**ASKED, "input_extra": files})
    assert reply["tokens_evaluated"] == count(coder, prompt_of(begin))
    assert reply["timings"]["cache_n"] == count(coder, f"{begin}<|fim_prefix|>")
    assert reply["content"] == BODY


def test_what_other_files_have_is_drafted(coder: Running) -> None:
    """By lookup: code repeats itself."""
    drafted = {"drafter": "suffix", "draft_length": 3}
    files = [{"filename": "old.py", "text": f"x = {BODY}"}]
    reply = coder.posted("/infill", {**ASKED, **drafted, "input_extra": files})
    assert reply["content"] == BODY
    accepted = reply["specchat"]["by_origin"]["suffix"]["accepted"]
    assert accepted == reply["timings"]["draft_n_accepted"] > 2


@table(
    ("limits", "expected", "stop_type"),
    [
        ({"n_indent": 4}, "a + b\n    return total\n", "limit"),
        ({"n_indent": 5}, "a + b\n    ", "limit"),
        ({"t_max_predict_ms": 1e-6}, "a + b\n", "limit"),
        ({"n_predict": 3}, "a + b\n    return", "limit"),
        ({"stop": ["print"]}, "a + b\n    return total\n", "word"),
    ],
)
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_ends_at_a_limit(
    coder: Running, limits: dict[str, Any], expected: str, stop_type: str, *, is_stream: bool
) -> None:
    """Of indentation, time, length or at a text, whole and in a stream."""
    body = {**ASKED, **limits, "stream": is_stream}
    if is_stream:
        with coder.client.stream("POST", "/infill", json=body) as reply:
            lines = [line[6:] for line in reply.iter_lines() if line.startswith("data: ")]
        events = [json.loads(line) for line in lines]
    else:
        events = [coder.posted("/infill", body)]
    assert "".join(each["content"] for each in events) == expected
    assert [each["stop"] for each in events] == [False] * (len(events) - 1) + [True]
    assert events[-1]["stop_type"] == stop_type
    assert len(events) > 1 or not is_stream


@pytest.mark.parametrize("is_stream", [False, True])
def test_completions_end_at_a_suffix(coder: Running, *, is_stream: bool) -> None:
    """Of the legacy API: each of the texts, whole or in a stream; one may be empty."""
    body = {"prompt": [BEFORE, ""], "suffix": AFTER, "temperature": 0, "stream": is_stream}
    with coder.client.stream("POST", "/v1/completions", json=body) as reply:
        data = reply.read().decode()
    lines = [
        line.removeprefix("data: ")
        for line in data.splitlines()
        if line.startswith(("{", "data: {"))
    ]
    texts = ["", ""]
    for choice in (each for line in lines for each in json.loads(line)["choices"]):
        texts[choice["index"]] += choice["text"]
    assert texts == [BODY, BODY]
    one = {"prompt": BEFORE, "suffix": AFTER, "max_tokens": 1}
    usage = coder.posted("/v1/completions", one)["usage"]
    assert usage["prompt_tokens"] == count(coder, prompt_of())


def test_the_next_keystroke_ends_an_answer(coder: Running) -> None:
    """The editor closes the connection; what was read of the prompt is not read again."""
    activity = coder.service.activity
    before = activity.totals().finishes["native", "cancelled"]
    long = {**ASKED, "ignore_eos": True, "n_predict": 3000, "prompt": "    count = "}
    with coder.client.stream("POST", "/infill", json={**long, "stream": True}) as reply:
        next(reply.iter_lines())
    until(lambda: not activity.live(), "the end of the answer")
    assert activity.totals().finishes["native", "cancelled"] == before + 1
    following = coder.posted("/infill", {**ASKED, "prompt": "    count = a"})
    assert following["content"] == BODY
    expected = count(coder, f"<|fim_prefix|>{ASKED['input_prefix']}    count = ")
    assert following["timings"]["cache_n"] == expected


def test_odd_requests_are_refused_well(coder: Running) -> None:
    """No fault, and a normal request is answered afterwards."""
    assert fuzz(coder.address, 3, 100) == []
    assert coder.posted("/infill", ASKED)["content"] == BODY


@pytest.mark.parametrize("is_stream", [False, True])
def test_texts_are_continued_in_the_same_form(coder: Running, *, is_stream: bool) -> None:
    """By `/completion`, with the options that were used; several texts are a list."""
    asked = {"prompt": prompt_of(), "temperature": 0, "n_predict": 3, "stream": is_stream}
    with coder.client.stream("POST", "/completion", json=asked) as reply:
        lines = reply.read().decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    assert "".join(each["content"] for each in events) == "a + b\n    return"
    settings = events[-1]["generation_settings"]
    assert (settings["temperature"], settings["n_predict"]) == (0, 3)
    assert events[-1]["tokens_evaluated"] == count(coder, prompt_of())
    several = coder.client.post(
        "/completion", json={**asked, "prompt": ["x", "y"], "stream": False}
    )
    assert [each["tokens_predicted"] for each in several.json()] == [3, 3]
    assert [each["index"] for each in several.json()] == [0, 1]


@pytest.mark.parametrize("is_stream", [False, True])
def test_tokens_come_with_their_probabilities(demo_server: Running, *, is_stream: bool) -> None:
    """As llama-server has them: the ids of all tokens, and the likely ones in their places."""
    asked: dict[str, Any] = {"prompt": "A draft\n", "temperature": 0, "n_predict": 6, "n_probs": 3}
    asked |= {"return_tokens": True, "stream": is_stream}
    with demo_server.client.stream("POST", "/completion", json=asked) as reply:
        lines = reply.read().decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]
    tokens = [token for each in events for token in each["tokens"]]
    likely = [entry for each in events for entry in each.get("completion_probabilities", ())]
    text = "".join(each["content"] for each in events)

    assert len(tokens) == 6
    assert [entry["id"] for entry in likely] == tokens
    assert bytes(byte for entry in likely for byte in entry["bytes"]).decode() == text
    for entry in likely:
        assert entry["top_logprobs"][0]["id"] == entry["id"]
        assert len(entry["top_logprobs"]) == 3
        assert entry["top_logprobs"][0]["logprob"] == entry["logprob"] <= 0
    assert events[-1]["has_new_line"] is ("\n" in text)
    assert events[-1]["specchat"]["notices"] == []
    plain = demo_server.posted("/completion", {"prompt": "x", "n_predict": 2})
    assert plain["tokens"] == []
    assert "completion_probabilities" not in plain


def test_a_stream_has_the_tokens_that_show_no_text(demo_server: Running) -> None:
    """Those of a stop string come with the end; more likely tokens than there are give a notice."""
    asked: dict[str, Any] = {"prompt": "A draft\n", "temperature": 0, "n_predict": 12}
    asked |= {"n_probs": 99, "return_tokens": True}
    asked["stop"] = [demo_server.posted("/completion", asked)["content"].strip()[3:6]]
    whole = demo_server.posted("/completion", asked)
    with demo_server.client.stream("POST", "/completion", json=asked | {"stream": True}) as reply:
        lines = reply.read().decode().splitlines()
    events = [json.loads(line.removeprefix("data: ")) for line in lines if line]

    assert whole["stop_type"] == "word"
    assert [token for each in events for token in each["tokens"]] == whole["tokens"]
    assert [entry for each in events for entry in each["completion_probabilities"]] == whole[
        "completion_probabilities"
    ]
    assert len(whole["completion_probabilities"][0]["top_logprobs"]) == 20
    assert events[-1]["specchat"]["notices"] == ["n_probs: the 20 most likely tokens are given"]


def test_several_answers_are_a_list(coder: Running) -> None:
    """Without a temperature they are all the same, which is said once."""
    (only,) = coder.client.post("/infill", json={**ASKED, "n_cmpl": 3}).json()
    assert only["content"] == BODY
    several = coder.client.post("/infill", json={**ASKED, "n_cmpl": 2, "temperature": 0.1}).json()
    assert [each["index"] for each in several] == [0, 1]


def test_a_model_that_cannot_is_named(demo_server: Running) -> None:
    """In a sentence that says which one can."""
    for path, body in (("/infill", ASKED), ("/v1/completions", {"prompt": "x", "suffix": "y"})):
        reply = demo_server.client.post(path, json=body)
        assert reply.status_code == 400
        message = reply.json()["error"]["message"]
        assert "cannot fill in the middle" in message
        assert "qwen25-coder-7b" in message


@table(
    ("body", "param"),
    [
        ({"prompt": [1, 2]}, "prompt"),
        ({"prompt": "x", "echo": True}, "echo"),
        ({"prompt": "x " * 9000}, "prompt"),
    ],
)
def test_a_wrong_suffix_is_refused(coder: Running, body: dict[str, Any], param: str) -> None:
    """By the field at fault; nothing is cut off to make room."""
    reply = coder.client.post("/v1/completions", json={**body, "suffix": "y"})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param


@table(
    ("wrong", "param"),
    [
        ({"input_prefix": None}, "input_prefix"),
        ({"input_extra": [{"filename": "a"}]}, "input_extra[0]"),
        ({"n_cmpl": 0}, "n_cmpl"),
    ],
)
def test_a_wrong_request_is_refused(coder: Running, wrong: dict[str, Any], param: str) -> None:
    """With the field at fault."""
    reply = coder.client.post("/infill", json={**ASKED, **wrong})
    assert reply.status_code == 400
    assert reply.json()["error"]["param"] == param
