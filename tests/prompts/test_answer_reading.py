"""Chunks of an answer are split into parts, and the tokens of reasoning are counted."""

from __future__ import annotations

from typing import Any

import pytest

from specchat.decoding.chunk import Chunk, Finish
from specchat.decoding.statistics import Statistics
from specchat.formats.answer_reader import AnswerReader
from specchat.formats.call_format import CallFormat
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.generic_calls import CALLED
from specchat.formats.marks import usual_marks
from specchat.prompts.answer_reading import read_parts

BARE = ChatFormat(
    "",
    reasoning=Wrapping("<think>", "</think>"),
    calls=CallFormat("<call>", "</call>", CALLED),
)
FORM = ChatFormat("", marks=usual_marks(BARE), reasoning=BARE.reasoning, calls=BARE.calls)
CALL = '<call>{"name": "f", "arguments": {}}</call>'


def read(*pieces: str, last: str = "", finish: Finish = "stop") -> tuple[list[Chunk], Statistics]:
    """Return the chunks of an answer, a token each; the last has text but no token."""
    chunks = [Chunk(piece, (7,), ("target",), (piece,)) for piece in pieces]
    statistics = Statistics(generated_tokens=len(pieces))
    chunks.append(Chunk(last, finish=finish))
    return list(read_parts(chunks, AnswerReader(FORM), statistics)), statistics


def text_of(chunks: list[Chunk], field: str) -> str:
    """Return one of the texts of an answer."""
    texts: list[Any] = [getattr(chunk, field) for chunk in chunks]
    return "".join(texts)


def test_tokens_of_reasoning_are_those_from_mark_to_mark() -> None:
    """Of a begin mark that is several tokens only the last counts."""
    chunks, statistics = read("<think>", "a", " b", "</think>", "c", "d")
    assert (text_of(chunks, "reasoning"), text_of(chunks, "text")) == ("a b", "cd")
    assert statistics.reasoning_tokens == 4

    _, statistics = read("<thi", "nk>", "a", "</th", "ink>", "c")
    assert statistics.reasoning_tokens == 4


def test_text_without_a_token_at_the_end_belongs_to_the_answer() -> None:
    """A stop string may have held it back."""
    chunks, _ = read("<think>a</think>", "b", last=" c")

    assert text_of(chunks, "text") == "b c"


@pytest.mark.parametrize(("finish", "text"), [("stop", "a <ca"), ("length", "a ")])
def test_the_beginning_of_a_mark_is_dropped_where_the_answer_was_cut(
    finish: Finish, text: str
) -> None:
    """One that ended by itself keeps it."""
    assert text_of(read("a", " <ca", finish=finish)[0], "text") == text


def test_each_call_comes_once() -> None:
    """In the chunk that completes it."""
    chunks, _ = read(CALL, CALL, " ")

    assert [len(chunk.tool_calls) for chunk in chunks] == [1, 1, 0, 0]


TOOLS = ({"type": "function", "function": {"name": "f"}},)


@pytest.mark.parametrize(
    ("written", "stop", "text", "num_calls"),
    [
        ('a <call>{"name', "\n", "a ", 0),
        ('a <call>{"name', "<|end|>", 'a <call>{"name', 0),
        (CALL.removesuffix("</call>"), "</call>", "", 1),
        ("a <ca", "\n", "a <ca", 0),
        ("<call> is a mark.", "\n", "<call> is a mark.", 0),
    ],
)
def test_a_stop_string_of_the_request_cuts_a_call_and_no_text(
    written: str, stop: str, text: str, num_calls: int
) -> None:
    """One of the format ends the answer as a token does, and what then looks odd is text."""
    last = Chunk(written, finish="stop", stop_string=stop)
    stops = {"\n", "</call>"}
    chunks = list(read_parts([last], AnswerReader(FORM, tools=TOOLS), Statistics(), stops))

    assert text_of(chunks, "text") == text
    assert [len(chunk.tool_calls) for chunk in chunks] == [num_calls]


@pytest.mark.parametrize(
    ("written", "text"),
    [
        ("Models write <call> and then JSON.", "Models write <call> and then JSON."),
        ('A <call> begins one: <call>{"name": "f", "arg', "A <call> begins one: "),
        ("One <call> and a <call> and a <ca", "One <call> and a <call> and a "),
        ("One <call>", "One "),
    ],
)
def test_prose_that_names_the_mark_of_a_call_is_no_half_call(written: str, text: str) -> None:
    """Where `max_tokens` cuts an answer, only a call that has begun is left out."""
    chunks = list(
        read_parts([Chunk(written, finish="length")], AnswerReader(FORM, tools=TOOLS), Statistics())
    )

    assert text_of(chunks, "text") == text
