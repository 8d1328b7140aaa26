"""Splitting a model's reasoning from its answer."""

from typing import NamedTuple

MARKS = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
)


class Parts(NamedTuple):
    """An answer split into reasoning and the rest; `is_open` while the reasoning goes on."""

    reasoning: str
    answer: str
    is_open: bool


def split_reasoning(text: str) -> Parts:
    """Split the reasoning from the beginning of an answer, complete or in progress.

    Some templates open the reasoning in the prompt, so only its end mark may be in the answer.
    """
    start = text.lstrip()
    for begin, end in MARKS:
        if start.startswith(begin):
            reasoning, closed, answer = start.removeprefix(begin).partition(end)
            return Parts(reasoning.strip("\n"), answer.lstrip("\n"), is_open=not closed)
        if start and begin.startswith(start):  # the mark has not arrived whole
            return Parts("", "", is_open=True)
    for _, end in MARKS:
        before, closed, answer = text.partition(end)
        if closed:
            return Parts(before.strip("\n"), answer.lstrip("\n"), is_open=False)
    return Parts("", text, is_open=False)
