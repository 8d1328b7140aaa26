"""Gemma 4's first templates expect the results of tools in the message that called them."""

from __future__ import annotations

from typing import Any

from specchat.formats.chat_format import ChatFormat
from specchat.formats.gemma4 import complete

QUESTION = {"role": "user", "content": "Which?"}


def call(name: str) -> dict[str, Any]:
    """Return a call of a function."""
    return {"type": "function", "function": {"name": name, "arguments": {}}}


def arranged(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the messages as such a template gets them."""
    arrange = complete(ChatFormat("", "<s>", "</s>")).arrange
    assert arrange is not None
    return arrange(list(messages))


def test_results_and_the_answer_are_part_of_the_message_with_the_calls() -> None:
    """Each result has the name of its call; JSON is given as what it stands for."""
    found = arranged(
        QUESTION,
        {"role": "assistant", "content": "", "tool_calls": [call("f"), call("g")]},
        {"role": "tool", "content": '{"n": 1}'},
        {"role": "tool", "content": "no JSON"},
        {"role": "assistant", "content": "This one."},
        QUESTION,
    )

    assert found == [
        QUESTION,
        {
            "role": "assistant",
            "content": "This one.",
            "tool_calls": [call("f"), call("g")],
            "tool_responses": [
                {"name": "f", "response": {"n": 1}},
                {"name": "g", "response": "no JSON"},
            ],
        },
        QUESTION,
    ]


def test_further_calls_are_a_message_of_their_own() -> None:
    """They are not taken for the answer to the first ones."""
    calls = [{"role": "assistant", "content": "", "tool_calls": [call(name)]} for name in "fg"]
    found = arranged(QUESTION, calls[0], {"role": "tool", "content": "1"}, calls[1])

    assert [message.get("tool_calls") for message in found] == [None, [call("f")], [call("g")]]
    assert "tool_responses" not in found[2]
