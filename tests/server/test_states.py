"""What a server of a model that saves states reads of conversations as people and agents go on."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from conftest import WriteModel
from real_templates import needs_templates, template_of
from scripts.support.server_process import ServerProcess
from scripts.support.tiny_gguf import Vocabulary
from specchat.planning.text_copies import LEAST_STEP

Message: TypeAlias = dict[str, Any]
TEMPLATES = {
    "qwen35": "Qwen3.5-4B",
    "lfm2": "LFM2.5-Instruct",
    "granitehybrid": "ibm-granite-granite-4.0",
}
"""The templates of models; others have that of the tiny ones."""
MARKS = 48
"""More tokens than a template puts around a message."""
TOOL = {"type": "function", "function": {"name": "read", "description": "Reads.", "parameters": {}}}


class Talk:
    """A client of a server, which counts the tokens that each of its prompts has and reads."""

    def __init__(self, server: ServerProcess) -> None:
        """Begin with no rows."""
        self._server, self._draw = server, random.Random(1)
        self.more: Message = {}
        self.rows: dict[str, tuple[int, int]] = {}

    def words(self, count: int) -> str:
        """Return words that occur nowhere else."""
        return " ".join(f"w{self._draw.randrange(1500)}" for _ in range(count))

    def user(self) -> Message:
        """Return a question."""
        return {"role": "user", "content": self.words(60)}

    def system(self) -> Message:
        """Return a system prompt, and so the beginning of another conversation."""
        return {"role": "system", "content": self.words(80)}

    def ask(self, row: str, messages: list[Message]) -> None:
        """Let the server answer, and keep what it read."""
        reply = self._server.chat(
            messages=messages, max_tokens=24, temperature=0, drafter="none", **self.more
        )
        timings = reply["timings"]
        self.rows[row] = timings["prompt_n"] + timings["cache_n"], timings["prompt_n"]

    def grown(self, turns: int) -> list[Message]:
        """Return a conversation after some turns, which the server has read one by one."""
        messages = [self.system()]
        for number in range(turns):
            messages.append(self.user())
            self.ask(f"turn {number + 1}", messages)
            messages.append({"role": "assistant", "content": f"w{number} w8 w9 " * 8})
        return messages


def talk_of(server: ServerProcess) -> Talk:
    """Let conversations go on, be edited, take turns and call tools; return what that read."""
    talk = Talk(server)
    whole = talk.grown(6)
    talk.ask("next turn", [*whole, talk.user()])
    last = [*whole, talk.user()]
    talk.ask("last question edited", last)
    talk.ask("regenerated", last)
    talk.ask("second question edited", [*whole[:3], talk.user()])
    whole = talk.grown(6)
    rewritten = [*whole[:5], {**whole[5], "content": "cleared"}, *whole[6:], talk.user()]
    talk.ask("message rewritten, rest kept", rewritten)
    both = talk.grown(3), talk.grown(3)
    for number in range(2):
        for each in both:
            each.append(talk.user())
            talk.ask(f"in turn {number}", each)
            each.append({"role": "assistant", "content": "w1 w2 " * 12})
    talk.more = {"tools": [TOOL]}
    steps = [talk.system(), talk.user()]
    for number in range(10):
        talk.ask(f"tool step {number + 1}", steps)
        call = {"name": "read", "arguments": f'{{"path": "f{number}"}}'}
        calls = [{"id": f"c{number}", "type": "function", "function": call}]
        steps += [
            {"role": "assistant", "content": "", "tool_calls": calls},
            {"role": "tool", "tool_call_id": f"c{number}", "content": talk.words(100)},
        ]
    steps[3] = {**steps[3], "content": "[cleared]"}
    talk.ask("loop: first result cleared", steps)
    talk.ask("loop: last result replaced", [*steps[:-1], {**steps[-1], "content": talk.words(100)}])
    talk.more = {}
    return talk


def rows_of(path: Path, folder: Path) -> dict[str, tuple[int, int]]:
    """Return the tokens of each prompt, and how many of them a server of this model read."""
    words = [
        *("--target", str(path), "--drafter", "none", "--ctx", "32768"),
        *("--cache-ram", "512", "--cache-disk", "512"),
    ]
    with ServerProcess(folder, words) as server:
        talk = talk_of(server)
        whole = talk.grown(6)
        assert not server.end()
    with ServerProcess(folder, words) as server:
        again = Talk(server)
        again.ask("restart, next turn", [*whole, talk.user()])
    return talk.rows | again.rows


@pytest.mark.slow(keep=1)
@needs_templates
@pytest.mark.parametrize("architecture", ["qwen35", "lfm2", "granitehybrid", "mamba", "gemma3"])
def test_a_model_that_saves_states_reads_little_more_than_one_that_drops_any_tail(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, architecture: str
) -> None:
    """The answer before, and at most a step between two states, over a real server."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    words = Vocabulary(size=2000)
    if architecture in TEMPLATES:
        template = template_of(TEMPLATES[architecture])
        template = template.replace("<|end_of_text|>", "<|im_end|>")  # which the vocabulary has
        words = replace(words, chat_template=template)
    path = tiny(architecture, vocabulary=words, context_length=32768)

    rows = rows_of(path, tmp_path)

    question = rows["turn 4"][0] - rows["turn 3"][0]  # with the answer before it
    step = rows["tool step 10"][0] - rows["tool step 9"][0]
    turns = [f"turn {number}" for number in range(2, 7)]
    for row in (*turns, "next turn", "in turn 0", "in turn 1", "restart, next turn"):
        assert rows[row][1] <= question + MARKS, row
    for row in ("last question edited", "second question edited"):
        assert rows[row][1] <= question + LEAST_STEP + MARKS, row
    assert rows["regenerated"][1] == 1
    for row in (*(f"tool step {number}" for number in range(2, 11)), "loop: last result replaced"):
        assert rows[row][1] <= step + LEAST_STEP + MARKS, row
