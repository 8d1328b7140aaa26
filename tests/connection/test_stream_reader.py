"""The parts of a stream: what is text, what is reasoning, what is a call, and what is the end."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from specchat.connection.stream_reader import Repetition, StreamReader
from specchat.decoding.chunk import Chunk
from tables import table


def read_all(*deltas: dict[str, Any], **changes: Any) -> list[Chunk]:
    """Return what some deltas of a stream add."""
    reader = StreamReader(**changes)
    chunks = [reader.read({"choices": [{"delta": delta}]}) for delta in deltas]
    return [chunk for chunk in (*chunks, reader.end()) if chunk is not None]


def split(parts: list[str]) -> tuple[str, str]:
    """Return the reasoning and the answer in the parts of a text."""
    chunks = read_all(*({"content": part} for part in parts))
    return "".join(each.reasoning for each in chunks), "".join(each.text for each in chunks)


TAGGED = {
    "<think>hm</think>\n\nyes": ("hm", "yes"),
    "\n<think>\nhm\n</think>yes": ("hm", "yes"),
    "<think>hm</thi": ("hm</thi", ""),
    "[THINK]hm[/THINK]yes": ("hm", "yes"),
    "<think></think>yes": ("", "yes"),
    "yes <think>no</think>": ("", "yes <think>no</think>"),
    "<thing>": ("", "<thing>"),
    "<think>hm</thi and</think>yes": ("hm</thi and", "yes"),
    "<thi": ("", "<thi"),
}


@table("text", TAGGED)
def test_tags_are_found_wherever_the_stream_breaks(text: str) -> None:
    """In every pair of cuts of the text."""
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            parts = [text[:first], text[first:second], text[second:]]
            assert split(parts) == TAGGED[text], parts


@given(st.text("ab <>/think", max_size=30), st.integers(1, 5))
def test_no_text_is_lost(text: str, size: int) -> None:
    """Whatever is no tag stays, in its order."""
    parts = [text[at : at + size] for at in range(0, len(text), size)]
    assert split(parts) == split([text])
    if not text.lstrip().startswith("<think>"):
        assert split(parts) == ("", text)


@table(
    ("parts", "shown"),
    [
        (["One, two", ", three"], ", three"),
        (["One", ", two, ", "three"], ", three"),
        (["One, ten"], "One, ten"),
        ([", three"], ", three"),
        (["One, t"], "One, t"),
        (["One, two"], ""),
    ],
)
def test_a_repeated_beginning_is_left_out(parts: list[str], shown: str) -> None:
    """llama-server and LM Studio repeat an answer's beginning when they continue it."""
    deltas = [{"content": part} for part in parts]
    chunks = read_all(*deltas, begun="One, two")
    assert "".join(chunk.text for chunk in chunks) == shown
    assert Repetition("").rest("One") == "One"


def test_either_field_is_reasoning_and_both_are_the_same() -> None:
    """`specchat serve` sends both, so that any client finds one."""
    for fields in ({"reasoning": "a"}, {"reasoning_content": "a"}):
        assert read_all(fields)[0].reasoning == "a"
    assert read_all({"reasoning": "a", "reasoning_content": "a"})[0].reasoning == "a"
    (chunk,) = read_all({"reasoning_content": "a", "content": "b"})
    assert [(piece.text, piece.kind) for piece in chunk.pieces] == [
        ("a", "reasoning"),
        ("b", "answer"),
    ]


def test_halves_of_characters_become_replacements() -> None:
    """JSON can hold them; nothing that writes UTF-8 can."""
    (chunk,) = read_all({"content": "\ud83d ok"})
    assert chunk.text == "\ufffd ok"
    chunk.text.encode()


def call(index: int, name: str = "", arguments: str = "", id_: str = "") -> dict[str, Any]:
    """Return the delta of a tool call."""
    function = {"name": name, "arguments": arguments}
    return {"tool_calls": [{"index": index, "id": id_, "function": function}]}


def test_calls_with_one_index_and_several_ids_are_several() -> None:
    """Older Ollama numbers every call 0."""
    first, second = '{"a": 1}', '{"b": 2}'
    chunks = read_all(call(0, "f", first, "x"), call(0, "g", second, "y"))
    assert [each[:3] for each in chunks[0].tool_calls] == [("f", first, "x"), ("g", second, "y")]
    chunks = read_all(call(0, "f", first[:3], "x"), call(0, "", first[3:]))
    assert [json.loads(each.arguments) for each in chunks[0].tool_calls] == [{"a": 1}]


def test_an_unfinished_call_is_none() -> None:
    """Its arguments cannot be read."""
    assert read_all(call(0, "f", '{"a": ', "x")) == []


@table("event", [{}, {"choices": None}, {"choices": [None]}, {"choices": {}}])
def test_events_without_choices_add_nothing(event: dict[str, Any]) -> None:
    """Such as the one with the usage."""
    assert StreamReader().read(event) is None
