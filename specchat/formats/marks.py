"""The marks that separate the parts of an answer."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, TypeAlias

if TYPE_CHECKING:
    from specchat.formats.chat_format import ChatFormat

State: TypeAlias = Literal["start", "reasoning", "answer", "call", "header", "aside"]
"""The parser's state: before the first part, in one of the parts, in a header that names the next
part, or between parts ("aside"), where text is not shown."""


@dataclass(frozen=True, slots=True)
class Mark:
    """A mark that ends the current state; `to` is the next state."""

    text: str
    to: State


Marks: TypeAlias = Mapping[State, tuple[Mark, ...]]
"""For each state, the marks that end it; all other marks are plain text there."""

KNOWN_REASONING = (
    ("<think>", "</think>"),
    ("<thinking>", "</thinking>"),
    ("<thought>", "</thought>"),
    ("<reasoning>", "</reasoning>"),
    ("<|begin_of_thought|>", "<|end_of_thought|>"),
    ("[THINK]", "[/THINK]"),
    ("<seed:think>", "</seed:think>"),
    ("◁think▷", "◁/think▷"),
    ("<|START_THINKING|>", "<|END_THINKING|>"),
)
"""Reasoning marks that models may write although their templates do not mention reasoning, such as
fine-tuned models. They count only at the very start of an answer; elsewhere they are text."""


def usual_marks(form: "ChatFormat", *, call_ends_reasoning: bool = False) -> Marks:
    """Return the marks of a format that writes reasoning, then the answer, then tool calls.

    Reasoning can only come first. With `call_ends_reasoning`, a call may follow without an end mark
    of the reasoning.
    """
    opening: list[Mark] = []
    if form.content.begin.strip():
        opening.append(Mark(form.content.begin.strip(), "answer"))
    if len(form.calls.begin) > 1:
        opening.append(Mark(form.calls.begin, "call"))
    closing = [Mark(form.content.end.strip(), "answer")] if form.content.end.strip() else []
    if form.reasoning:
        begins = [form.reasoning.begin.strip()] if form.reasoning.begin.strip() else []
        ends = [Mark(form.reasoning.end.strip(), "answer")]
    else:
        begins, ends = [begin for begin, _ in KNOWN_REASONING], []
    starts = [*(Mark(begin, "reasoning") for begin in begins), *opening]
    if len(form.calls.begin) == 1:  # an opening brace of bare JSON
        starts.append(Mark(form.calls.begin, "call"))
    in_call = [Mark(form.calls.end, "answer")] if form.calls.end else []
    return {
        "start": tuple(starts),
        "reasoning": (*ends, *(opening if call_ends_reasoning else ())),
        "answer": (*opening, *closing),
        "call": tuple(in_call),
    }
