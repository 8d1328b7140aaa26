"""Bodies of the responses API mean what a chat request means that says the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from specchat.server.api_errors import ApiError
from specchat.server.asked_tools import asked_tools
from specchat.server.chat_body import ChatBody
from specchat.server.response_events import REASONING_PREFIX
from specchat.server.response_tools import ToolName, offered_tools
from specchat.server.responses_api import ResponsesBody, to_chat
from specchat.server.sent_fields import with_own_names
from tables import table

QUESTION = {"role": "user", "content": "Why?"}
FUNCTION = {"name": "look", "arguments": '{"at": 1}'}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c1", "status": "completed", **FUNCTION}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "Found."}
PARAMETERS = {"type": "object", "properties": {}}


def chat_of(**fields: Any) -> ChatBody:
    """Return the chat request for a body as a client sends it."""
    given, _ = with_own_names({"input": "Why?", **fields})
    return to_chat(msgspec.convert(given, ResponsesBody))


def messages_of(*items: Any, **fields: Any) -> list[Any]:
    """Return the messages for some input items."""
    return list(chat_of(input=list(items), **fields).messages)


def test_a_text_is_a_question() -> None:
    """With instructions before it."""
    assert chat_of().messages == [QUESTION]
    assert chat_of(instructions="Be brief.").messages == [
        {"role": "system", "content": "Be brief."},
        QUESTION,
    ]


@table(
    ("item", "message"),
    [
        (QUESTION, QUESTION),
        ({"type": "message", **QUESTION}, QUESTION),
        (
            {"role": "developer", "content": [{"type": "input_text", "text": "Be brief."}]},
            {"role": "developer", "content": "Be brief."},
        ),
        (
            {
                "type": "message",
                "id": "msg_1",
                "status": "completed",
                "role": "assistant",
                "content": [
                    {"type": "output_text", "text": "So.", "annotations": []},
                    {"type": "refusal", "refusal": "No."},
                ],
            },
            {"role": "assistant", "content": "So.\nNo."},
        ),
        (CALLED, {"role": "assistant", "content": "", "tool_calls": [CALL]}),
        (RESULT, {"role": "tool", "tool_call_id": "c1", "content": "Found."}),
        (
            {**RESULT, "output": [{"type": "input_text", "text": "a"}, {"type": "input_image"}]},
            {
                "role": "tool",
                "tool_call_id": "c1",
                "content": [{"type": "input_text", "text": "a"}, {"type": "input_image"}],
            },
        ),
        (
            {"type": "custom_tool_call", "call_id": "c1", "name": "patch", "input": "*** a"},
            {
                "role": "assistant",
                "content": "",
                "tool_calls": [
                    {
                        **CALL,
                        "function": {"name": "patch", "arguments": '{"input": "*** a"}'},
                    }
                ],
            },
        ),
        (
            {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
            {"role": "assistant", "content": "", "reasoning_content": "Hm."},
        ),
        (
            {"type": "reasoning", "summary": [], "encrypted_content": REASONING_PREFIX + "Hm."},
            {"role": "assistant", "content": "", "reasoning_content": "Hm."},
        ),
        (
            {
                "type": "reasoning",
                "summary": [{"type": "summary_text", "text": "Short."}],
                "encrypted_content": "gAAAAB",
            },
            {"role": "assistant", "content": "", "reasoning_content": "Short."},
        ),
    ],
)
def test_an_item_is_a_message(item: Any, message: Any) -> None:
    """Of each type that clients send; what another server sealed is left out."""
    assert messages_of(item) == [message]


def test_the_items_of_an_answer_are_one_message_again() -> None:
    """So the next prompt has the answer in the words that the model wrote."""
    items = [
        QUESTION,
        {"type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"role": "assistant", "content": "Let me see."},
        CALLED,
        {**CALLED, "call_id": "c2"},
        RESULT,
        {**RESULT, "call_id": "c2"},
        {"role": "assistant", "content": "So."},
    ]

    found = messages_of(*items)

    assert [each["role"] for each in found] == ["user", "assistant", "tool", "tool", "assistant"]
    assert found[1] == {
        "role": "assistant",
        "reasoning_content": "Hm.",
        "content": "Let me see.",
        "tool_calls": [CALL, {**CALL, "id": "c2"}],
    }


def test_items_of_other_servers_tools_are_skipped() -> None:
    """They hold nothing to read."""
    assert messages_of({"type": "web_search_call", "id": "ws_1"}, QUESTION) == [QUESTION]


def test_options_have_the_names_of_the_chat_api() -> None:
    """Those that are specchat's own stay as they are."""
    body = chat_of(
        model="m",
        max_output_tokens=7,
        reasoning={"effort": "high", "summary": "auto"},
        truncation="auto",
        store=True,
        include=["reasoning.encrypted_content"],
        temperature=0.5,
        seed=3,
        drafter="suffix",
        prediction={"content": "So."},
        unknown_field={"x": 1},
    )

    assert body.model == "m"
    assert body.max_tokens == 7
    assert body.reasoning_effort == "high"
    assert body.make_room
    assert (body.temperature, body.seed, body.drafter) == (0.5, 3, "suffix")
    assert body.prediction is not None
    assert body.prediction.text == "So."


def test_items_of_unknown_types_are_left_out_with_a_notice() -> None:
    """Clients send new ones before a server knows them; each type is named once."""
    unknown = {"type": "computer_call", "id": "cc_1"}
    body = chat_of(input=[unknown, QUESTION, unknown])
    assert body.messages == [QUESTION]
    assert body.notices == ["input: items of type 'computer_call' are left out"]


def named(name: str) -> dict[str, Any]:
    """Return a tool in the form of the chat API."""
    function = {"name": name, "parameters": PARAMETERS, "strict": True}
    return {"type": "function", "function": function}


def test_tools_have_the_form_of_the_chat_api() -> None:
    """Those of other types are left as they are, and the chat API skips them.

    In a namespace a tool keeps its name, unless there is another of that name.
    """
    look = {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": True}
    spaces = [{"type": "namespace", "name": "agents", "tools": [look, {**look, "name": "ask"}]}]

    found = chat_of(tools=[look, {"type": "web_search"}, *spaces]).tools

    assert found == [named("look"), {"type": "web_search"}, named("agents__look"), named("ask")]


def test_the_tools_of_an_item_count() -> None:
    """Codex sends all of its own so, and again each time; calls name the namespace."""
    look = {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": True}
    space = {"type": "namespace", "name": "agents", "tools": [look]}
    added = {"type": "additional_tools", "role": "developer", "tools": [look, space]}
    called = {**CALLED, "namespace": "agents"}

    body = chat_of(input=[added, QUESTION, called, RESULT, added])

    assert body.tools == [named("look"), named("agents__look")]
    assert body.messages[1]["tool_calls"][0]["function"]["name"] == "agents__look"
    assert body.notices == []


def test_a_choice_names_a_tool_of_a_namespace() -> None:
    """As calls do, where several have a tool of that name."""
    look = {"type": "function", "name": "look", "parameters": PARAMETERS}
    spaces = [{"type": "namespace", "name": name, "tools": [look]} for name in ("a", "b")]
    choice = {"type": "function", "name": "look", "namespace": "a"}
    allowed = {"type": "allowed_tools", "mode": "required", "tools": [choice]}
    for given in (choice, allowed):
        body = chat_of(tools=spaces, tool_choice=given)
        assert asked_tools(body.tools, body.tool_choice).names == ["a__look"]


@table(
    ("fields", "param", "word"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "whole conversation"),
        ({"conversation": "conv_1"}, "conversation", "whole conversation"),
        ({"prompt": {"id": "pmpt_1"}}, "prompt", "whole conversation"),
        ({"background": True}, "background", "stores nothing"),
        ({"text": {"format": {"type": "json_schema"}}}, "text.format", "text"),
        ({"reasoning": {"effort": 3}}, "reasoning.effort", "text"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, "input", "item itself"),
        ({"input": [{"type": ["message"]}]}, "input", "message"),
        ({"input": [{"type": "function_call", "name": "look"}]}, "input", "arguments"),
        (
            {"input": [{"role": "assistant", "content": [{"type": "input_image"}]}]},
            "input",
            "input_image",
        ),
        ({"input": [{"role": "user", "content": 3}]}, "input", "text"),
    ],
)
def test_what_cannot_be_done_is_refused(fields: dict[str, Any], param: str, word: str) -> None:
    """The error names the field, and says what would work."""
    with pytest.raises(ApiError) as refused:
        chat_of(**fields)

    assert refused.value.status == 400
    assert refused.value.param == param
    assert word in refused.value.message


def test_a_tools_name_is_looked_up_whatever_number_is_offered() -> None:
    """A search through all of them for each item would take many minutes."""
    names = [f"look{number}" for number in range(50_000)]
    tools = [{"type": "function", "name": name} for name in names]
    offered = offered_tools([{"type": "namespace", "name": "web", "tools": tools}], [])

    assert [offered.shown(ToolName("web", name)) for name in names] == names
    assert offered.shown(ToolName("", "other")) == "other"
