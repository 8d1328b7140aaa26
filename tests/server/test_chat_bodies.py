"""Messages of the chat API reach the engine with roles and fields that chat formats know."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from server.conftest import Running
from specchat.server.api_errors import ApiError
from specchat.server.asked_tools import asked_tools
from specchat.server.chat_body import ChatBody, chat_requests
from tables import table

QUESTION = {"role": "user", "content": "Why?"}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
TOOL = {"type": "function", "function": {"name": "look"}}
CALLED = {"role": "assistant", "content": None, "tool_calls": [CALL]}
RESULT = {"role": "tool", "tool_call_id": "c1", "content": "Found."}


def messages_of(server: Running, *messages: Any, **fields: Any) -> list[Any]:
    """Return the messages that the engine gets."""
    body = msgspec.convert({"messages": list(messages), **fields}, ChatBody)
    (request,), _ = chat_requests(body, server.service)
    return list(request.messages)


@table(
    ("given", "message"),
    [
        (QUESTION, QUESTION),
        ({"role": "user"}, {"role": "user", "content": ""}),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]},
            {"role": "user", "content": "a\nb"},
        ),
        (
            {"role": "assistant", "content": "So.", "reasoning": "Hm."},
            {"role": "assistant", "content": "So.", "reasoning_content": "Hm."},
        ),
        (
            {"role": "assistant", "content": "So.", "reasoning_content": None, "reasoning": 3},
            {"role": "assistant", "content": "So."},
        ),
        (
            {"role": "function", "name": "look", "content": "Found."},
            {"role": "tool", "name": "look", "content": "Found."},
        ),
    ],
)
def test_a_message_has_the_fields_that_formats_know(
    demo_server: Running, given: Any, message: Any
) -> None:
    """Text as one string, reasoning in one field, results as those of tools."""
    assert messages_of(demo_server, given) == [message]


def test_a_result_has_the_name_of_the_tool(demo_server: Running) -> None:
    """Clients send the call's id only, and some templates write the name."""
    found = messages_of(demo_server, QUESTION, CALLED, RESULT, {**RESULT, "name": "other"})

    assert [each.get("name") for each in found] == [None, None, "look", "other"]


def test_an_image_in_a_result_does_not_end_the_conversation(demo_server: Running) -> None:
    """The model learns that there was one."""
    image = {"type": "image_url", "image_url": {"url": "data:"}}
    result = {**RESULT, "content": [{"type": "text", "text": "Look:"}, image]}

    found = messages_of(demo_server, QUESTION, CALLED, result)

    assert found[-1]["content"] == "Look:\n[image_url: this model reads text only]"


@table(
    ("message", "words"),
    [
        ({"role": "wizard"}, "'wizard'"),
        ({"role": None}, "None"),
        ({"role": ["user"]}, "user"),
        ({"role": "user", "content": [{"type": "image_url"}]}, "'image_url'"),
        ({"role": "user", "content": [{"type": "text", "text": 3}]}, "'text'"),
        ({"role": "user", "content": [{"type": ["text"], "text": "a"}]}, "text"),
        ({"role": "user", "content": ["a"]}, "'str'"),
        ({"role": "user", "content": 3}, "list of parts"),
        ({"role": "tool", "content": [{"type": "text"}]}, "'text'"),
        ({"role": "assistant", "tool_calls": 3}, "list"),
        (CALLED, "result"),
    ],
)
def test_what_is_no_message_is_refused(demo_server: Running, message: Any, words: str) -> None:
    """The error says what is wrong."""
    with pytest.raises(ApiError) as refused:
        messages_of(demo_server, message)

    assert (refused.value.status, refused.value.param) == (400, "messages")
    assert words in refused.value.message


def test_a_broken_call_is_named(demo_server: Running) -> None:
    """Whatever a call is, it fails as a fault of the request."""
    for call in ("x", {}, {"id": [], "function": {"name": 1}}, {"function": "x"}):
        messages = [QUESTION, {**CALLED, "tool_calls": [call]}, RESULT]
        reply = demo_server.client.post("/v1/chat/completions", json={"messages": messages})
        assert reply.status_code == 400, reply.text
        assert "tool call" in reply.json()["error"]["message"]


@table(
    ("choice", "mode", "names"),
    [
        (None, "auto", []),
        ("auto", "auto", []),
        ("required", "required", []),
        ("any", "required", []),
        ({"type": "function", "function": {"name": "look"}}, "required", ["look"]),
        ({"type": "function", "name": "look"}, "required", ["look"]),
        ({"type": "tool", "name": "look"}, "required", ["look"]),
        (
            {
                "type": "allowed_tools",
                "allowed_tools": {
                    "mode": "required",
                    "tools": [{"type": "function", "function": {"name": "look"}}],
                },
            },
            "required",
            ["look"],
        ),
        (
            {"type": "allowed_tools", "tools": [{"type": "function", "name": "look"}]},
            "auto",
            ["look"],
        ),
    ],
    ids=str,
)
def test_a_choice_of_tools_is_a_mode_and_names(choice: Any, mode: str, names: list[str]) -> None:
    """In the words of all three APIs."""
    found = asked_tools([TOOL], choice)

    assert (found.choice, found.names, list(found.tools)) == (mode, names, [TOOL])


@table(
    "choice",
    [
        "some",
        7,
        ["auto"],
        {},
        {"type": ["function"]},
        {"type": "function"},
        {"type": "function", "function": {"name": ["look"]}},
        {"type": "function", "function": {"name": "absent"}},
        {"type": "allowed_tools"},
        {"type": "allowed_tools", "allowed_tools": {"mode": ["auto"], "tools": []}},
        {"type": "allowed_tools", "mode": "auto", "tools": [7]},
        {"type": "allowed_tools", "mode": "required", "tools": []},
        {"type": "custom", "custom": {"name": "look"}},
    ],
    ids=str,
)
def test_a_choice_of_no_known_form_is_refused(choice: Any) -> None:
    """With the name of the field, whatever it is."""
    with pytest.raises(ApiError) as refused:
        asked_tools([TOOL], choice)

    assert (refused.value.status, refused.value.param) == (400, "tool_choice")


def test_no_tools_are_offered_that_may_not_be_called() -> None:
    """Nor can one be required where there are none."""
    assert list(asked_tools([TOOL], "none").tools) == []
    assert asked_tools([], "auto").choice == "auto"
    assert list(asked_tools([TOOL], {"type": "allowed_tools", "tools": []}).tools) == []
    with pytest.raises(ApiError):
        asked_tools([{"type": "web_search"}], "required")
