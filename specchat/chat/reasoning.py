"""Where a model thinks aloud before it answers."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["Parts", "split_reasoning"]

MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
)


class Parts(NamedTuple):
    """An answer taken apart: its reasoning, what it says, and whether the reasoning goes on."""

    reasoning: str
    answer: str
    is_open: bool


def split_reasoning(text: str) -> Parts:
    """Take the reasoning off the beginning of an answer, as far as it has come.

    Some templates open the reasoning in the prompt, so its end may stand without a beginning.
    """
    start = text.lstrip()
    for begin, end in MARKS:
        if start.startswith(begin):
            reasoning, closed, answer = start.removeprefix(begin).partition(end)
            return Parts(reasoning.strip("\n"), answer.lstrip("\n"), is_open=not closed)
        if start and begin.startswith(start):  # the mark itself is still on its way
            return Parts("", "", is_open=True)
    for _, end in MARKS:
        before, closed, answer = text.partition(end)
        if closed:
            return Parts(before.strip("\n"), answer.lstrip("\n"), is_open=False)
    return Parts("", text, is_open=False)
