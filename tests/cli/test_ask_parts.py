"""What `specchat ask` prints of an answer's parts, and what it reads from standard input."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from in_process import on_terminal_here
from in_process import say_here as run
from pseudo_terminal import ROOT
from scripts.support.tiny_gguf import CHAT_TEMPLATE, Words, pieces_of, write_parrot

THINK = ("<think>", "</think>")
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'
CALLING = CHAT_TEMPLATE.replace(
    "{{ message['content'] }}",
    "{{ message['content'] }}{% for c in message.tool_calls %}<tool_call>{{ c.function | tojson }}"
    "</tool_call>{% endfor %}",
)
SWITCHED = CHAT_TEMPLATE.replace(
    "assistant\n{%",
    "assistant\n{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}{%",
)


def model(folder: Path, text: str, **words: Any) -> list[str]:
    """Return the options that name a parrot of a text."""
    known = Words(**{"user": THINK, **words})
    pieces = pieces_of(f"{text}<|im_end|>", [*known.control, *known.user])
    path = write_parrot(folder / "parrot.gguf", pieces, known)
    return ["--target", str(path), "--draft", "none", "--threads", "1", "--ctx", "512"]


@pytest.fixture
def thinker(tmp_path: Path) -> list[str]:
    """Return the options that name a model that reasons before it answers."""
    return model(tmp_path, "<think>because of that</think>\n\nYes.")


@pytest.mark.slow
def test_a_pipe_gets_the_answer_alone(thinker: list[str]) -> None:
    """Reasoning goes nowhere, or before the answer if asked for."""
    alone, both = run("ask", "hi", *thinker), run("ask", "hi", *thinker, "--show-reasoning")

    assert (alone.stdout, alone.stderr) == ("Yes.\n", "")
    assert both.stdout == "<think>\nbecause of that\n</think>\n\nYes.\n"


def test_json_has_the_parts_and_all_tokens(thinker: list[str]) -> None:
    """The statistics count the tokens of the reasoning."""
    record = json.loads(run("ask", "hi", *thinker, "--json").stdout)

    assert (record["reasoning"], record["text"]) == ("because of that", "Yes.")
    assert len(record["tokens"]) == record["stats"]["generated_tokens"]
    assert 0 < record["stats"]["reasoning_tokens"] < len(record["tokens"])
    assert record["tool_calls"] == []


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("no_color", ["", "1"])
def test_a_terminal_shows_reasoning_dimmed(thinker: list[str], no_color: str) -> None:
    """Before the answer, which is not; without colours, words say where it begins and ends."""
    shown = on_terminal_here(["ask", "hi", *thinker], NO_COLOR=no_color)
    dim, plain = "\x1b[2m", "\x1b[0m"
    if no_color:
        dim, plain = "Thinking...\r\n", "\r\n...done thinking."

    assert f"{dim}because of that{plain}\r\n\r\nYes.\r\n" in shown
    assert "reasoning" in shown


@pytest.mark.slow
def test_a_tool_call_is_a_line_of_json(tmp_path: Path) -> None:
    """After the text before it; the JSON object has it with its id."""
    words = model(tmp_path, f"Look: {CALL}", template=CALLING)
    printed, record = run("ask", "hi", *words), run("ask", "hi", *words, "--json")

    assert printed.stdout == 'Look: \n{"name": "f", "arguments": {"x": 1}}\n'
    calls = json.loads(record.stdout)["tool_calls"]
    assert calls == [{"id": "call00000", "name": "f", "arguments": {"x": 1}}]


@pytest.mark.slow
def test_the_switch_reaches_the_template(tmp_path: Path) -> None:
    """From the command line and the environment; what the model does not know is named."""
    words = model(tmp_path, "Yes.", template=SWITCHED)

    def prompt_tokens(*more: str, **environment: str) -> int:
        done = run("ask", "hi", *words, "--json", *more, stdin=b"", **environment)
        return int(json.loads(done.stdout)["stats"]["prompt_tokens"])

    assert prompt_tokens("--think", "off") > prompt_tokens("--think", "on") == prompt_tokens()
    assert prompt_tokens(SPECCHAT_THINK="off") == prompt_tokens("--think", "off")
    wrong = run("ask", "hi", *words, "--think", "medium")
    assert wrong.returncode == 2
    assert wrong.stderr.count("\n") == 1
    assert "choose auto, on or off" in wrong.stderr


def test_a_model_without_a_switch_answers_with_a_notice(thinker: list[str]) -> None:
    """On standard error, in one line."""
    done = run("ask", "hi", *thinker, "--think", "off")

    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    assert done.stderr.count("\n") == 1
    assert "cannot switch reasoning" in done.stderr


@pytest.mark.slow
def test_a_loop_keeps_its_input(thinker: list[str], tmp_path: Path) -> None:
    """With --no-stdin; without it the first question would take all other lines."""
    questions = tmp_path / "questions"
    questions.write_text("one\ntwo\nthree\n", "utf-8")
    command = f'{sys.executable} -m specchat ask "$q" --no-stdin {" ".join(thinker)}'
    with questions.open() as lines:
        done = subprocess.run(
            ["sh", "-c", f"while read q; do {command}; done"],
            stdin=lines, capture_output=True, check=True, cwd=ROOT, text=True,
        )  # fmt: skip

    assert done.stdout == "Yes.\n" * 3


@pytest.mark.slow
def test_an_input_that_stays_open_is_named(thinker: list[str]) -> None:
    """As soon as it is waited for; what comes later is read all the same."""
    with subprocess.Popen(
        [sys.executable, "-m", "specchat", "ask", "hi", *thinker],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT, text=True,
    ) as process:  # fmt: skip
        assert process.stderr is not None
        assert "--no-stdin" in process.stderr.readline()
        out, _ = process.communicate("late", timeout=60)

    assert (process.returncode, out) == (0, "Yes.\n")


@pytest.mark.slow
def test_an_answer_that_is_all_reasoning_is_explained(thinker: list[str]) -> None:
    """On standard error; it names the option that shows the reasoning, unless that was given."""
    done = run("ask", "hi", *thinker, "--max-tokens", "3")
    seen = run("ask", "hi", *thinker, "--max-tokens", "3", "--show-reasoning")

    reason = "no answer: --max-tokens ended its reasoning after 3 tokens"
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"{reason}; use --show-reasoning to see it\n"
    assert seen.stderr == f"{reason}\n"


@pytest.mark.slow
def test_a_word_of_the_environment_that_the_model_does_not_know_is_replaced(
    tmp_path: Path,
) -> None:
    """With a notice: it may be meant for another model."""
    words = model(tmp_path, "Yes.", template=SWITCHED)
    done = run("ask", "hi", *words, SPECCHAT_THINK="medium")

    assert (done.returncode, done.stdout) == (0, "Yes.\n")
    assert "does not support think = medium" in done.stderr


@pytest.mark.slow
def test_raw_says_what_it_ignores(thinker: list[str]) -> None:
    """Options of a chat that were given with it."""
    done = run("ask", "hi", *thinker, "--raw", "--think", "off", "--system", "Be brief.")

    assert done.stderr == "--raw ignores --system\n--raw ignores --think\n"
    assert "<think>because of that</think>" in done.stdout
