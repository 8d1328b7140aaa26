"""Bodies of Anthropic's API mean what a chat request means that says the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from specchat.server.api_errors import ApiError
from specchat.server.asked_tools import asked_tools, notices_of_tools
from specchat.server.chat_body import ChatBody
from specchat.server.messages_api import MessagesBody, to_chat
from specchat.server.sent_fields import with_own_names
from tables import table

QUESTION = {"role": "user", "content": "Why?"}
CACHED = {"cache_control": {"type": "ephemeral"}}
BILLING = "x-anthropic-billing-header: cc_version=2.1.197.123; cc_entrypoint=cli; cch=00001;"
CALL = {
    "id": "c1",
    "type": "function",
    "function": {"name": "look", "arguments": '{"at":1}'},
}
USE = {"type": "tool_use", "id": "c1", "name": "look", "input": {"at": 1}}


def chat_of(**fields: Any) -> ChatBody:
    """Return the chat request for a body as a client sends it."""
    given, _ = with_own_names({"messages": [QUESTION], "max_tokens": 9, **fields})
    return to_chat(msgspec.convert(given, MessagesBody))


def text(content: str) -> dict[str, Any]:
    """Return a block of text."""
    return {"type": "text", "text": content}


def result(content: Any, **fields: Any) -> dict[str, Any]:
    """Return a message of the user with the result of a call."""
    block = {"type": "tool_result", "tool_use_id": "c1", "content": content, **fields}
    return {"role": "user", "content": [block]}


def test_a_system_prompt_is_the_first_message() -> None:
    """As text or in blocks, with whatever says how they are cached."""
    first = {"role": "system", "content": "Be brief."}
    for system in ("Be brief.", [{**text("Be brief."), **CACHED}]):
        assert chat_of(system=system).messages == [first, QUESTION]
    assert chat_of(system=[]).messages == chat_of(system="").messages == [QUESTION]


def test_the_line_that_changes_with_every_request_is_left_out() -> None:
    """Otherwise the prefix cache would be lost; only the first block can be such a line."""
    for system in ([text(BILLING), text("a"), text("b")], f"{BILLING}\na\nb"):
        assert chat_of(system=system).messages[0]["content"] == "a\nb"
    assert chat_of(system=[text("a"), text(BILLING)]).messages[0]["content"] == f"a\n{BILLING}"
    assert chat_of(system=BILLING).messages == [QUESTION]


@table(
    ("given", "messages"),
    [
        (QUESTION, [QUESTION]),
        (
            {"role": "user", "content": [{**text("a"), **CACHED}, text("b")]},
            [{"role": "user", "content": "a\nb"}],
        ),
        ({"role": "system", "content": "Mind."}, [{"role": "system", "content": "Mind."}]),
        (
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "Hm.", "signature": "specchat"},
                    {"type": "redacted_thinking", "data": "gAAAA"},
                    text("Let me see."),
                    USE,
                ],
            },
            [
                {
                    "role": "assistant",
                    "reasoning_content": "Hm.",
                    "content": "Let me see.",
                    "tool_calls": [CALL],
                }
            ],
        ),
        (result("Found."), [{"role": "tool", "tool_call_id": "c1", "content": "Found."}]),
        (
            result([text("a"), text("b"), {"type": "image", "source": {}}]),
            [
                {
                    "role": "tool",
                    "tool_call_id": "c1",
                    "content": [text("a"), text("b"), {"type": "image", "source": {}}],
                }
            ],
        ),
        (
            result("no such file", is_error=True),
            [{"role": "tool", "tool_call_id": "c1", "content": "Error: no such file"}],
        ),
        (result(None), [{"role": "tool", "tool_call_id": "c1", "content": None}]),
        (
            {"role": "user", "content": [*result("Found.")["content"], text("And?")]},
            [
                {"role": "tool", "tool_call_id": "c1", "content": "Found."},
                {"role": "user", "content": "And?"},
            ],
        ),
        (
            {
                "role": "user",
                "content": [{"type": "document", "source": {"type": "text", "data": "Once."}}],
            },
            [{"role": "user", "content": "Once."}],
        ),
        ({"role": "user", "content": []}, [{"role": "user", "content": ""}]),
    ],
)
def test_a_message_is_one_of_the_chat_api_or_several(given: Any, messages: Any) -> None:
    """Results of tools are messages of their own there, before what the user says."""
    assert chat_of(messages=[given]).messages == messages


@table(
    ("fields", "effort"),
    [
        ({}, None),
        ({"thinking": {"type": "disabled"}}, "none"),
        ({"thinking": {"type": "disabled"}, "output_config": {"effort": "high"}}, "none"),
        ({"thinking": {"type": "enabled", "budget_tokens": 2048}}, "2048"),
        ({"thinking": {"type": "enabled"}}, "on"),
        ({"thinking": {"type": "adaptive"}}, None),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, "low"),
    ],
)
def test_thinking_is_a_reasoning_effort(fields: dict[str, Any], effort: str | None) -> None:
    """A budget is a number of tokens; without a word the model has its own way."""
    assert chat_of(**fields).reasoning_effort == effort


def test_options_have_the_names_of_the_chat_api() -> None:
    """Those that are specchat's own stay as they are."""
    body = chat_of(
        model="m",
        stop_sequences=["END"],
        temperature=0.5,
        top_k=3,
        metadata={"user_id": "u"},
        context_management={"edits": []},
        drafter="suffix",
        seed=4,
    )

    assert (body.model, body.max_tokens, body.stop) == ("m", 9, ["END"])
    assert (body.temperature, body.top_k, body.drafter, body.seed) == (0.5, 3, "suffix", 4)


def test_tools_have_the_form_of_the_chat_api() -> None:
    """Those of Anthropic's own types are left to the chat API, which skips them."""
    schema = {"type": "object", "properties": {}}
    tool = {"name": "look", "description": "Look.", "input_schema": schema, **CACHED}

    of_openai = {"type": "function", "function": {"name": "look", "parameters": schema}}
    found = chat_of(tools=[tool, {"type": "bash_20250124", "name": "bash"}, of_openai]).tools

    function = {"name": "look", "description": "Look.", "parameters": schema}
    left_out = [{"type": "bash_20250124"}, {"type": "OpenAI's function"}]
    assert found == [{"type": "function", "function": function}, *left_out]
    assert asked_tools(found, None).tools == found[:1]
    assert notices_of_tools(found)[1] == 'tools of type "OpenAI\'s function" are left out'


@table(
    ("given", "is_parallel"),
    [
        ({"type": "auto", "disable_parallel_tool_use": True}, False),
        ({"type": "any", "disable_parallel_tool_use": False}, True),
        (None, True),
    ],
)
def test_the_choice_of_tools_says_whether_they_are_called_at_once(
    given: Any, is_parallel: bool
) -> None:
    """The chat API has a field of its own for that; the choice itself it understands."""
    chat = chat_of(tool_choice=given)

    assert chat.tool_choice == given
    assert chat.parallel_tool_calls == is_parallel


def test_a_format_is_that_of_the_chat_api() -> None:
    """In its place today, and in the one that it had at first."""
    form = {"type": "json_schema", "schema": {"type": "object"}}

    assert chat_of(output_config={"format": form}).response_format == form
    assert chat_of(output_format=form).response_format == form


@table(
    ("fields", "word"),
    [
        (
            {
                "messages": [
                    {"role": "user", "content": [{"type": "document", "source": {"type": "url"}}]}
                ]
            },
            "'document'",
        ),
        ({"messages": [{"role": "user", "content": ["a"]}]}, "type"),
        ({"messages": [{"role": "user", "content": [{"type": "text"}]}]}, "'text'"),
        ({"messages": [{"role": "user", "content": {"text": "a"}}]}, "list of parts"),
        ({"messages": [{"role": "assistant", "content": [{**USE, "input": "x"}]}]}, "tool_use"),
        ({"system": [{"type": "image"}]}, "system"),
        ({"output_config": {"format": {"type": "json_schema"}}}, "output_config.format"),
    ],
)
def test_what_cannot_be_done_is_refused(fields: dict[str, Any], word: str) -> None:
    """The error names the type or the field."""
    with pytest.raises(ApiError) as refused:
        chat_of(**fields)

    assert refused.value.status == 400
    assert word in refused.value.message
