"""Bodies of the responses API mean what a chat request means that says the same."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from specchat.server.api_errors import ApiError
from specchat.server.chat_body import ChatBody
from specchat.server.response_events import REASONING_PREFIX
from specchat.server.responses_api import ResponsesBody, to_chat
from tables import table

QUESTION = {"role": "user", "content": "Why?"}
FUNCTION = {"name": "look", "arguments": '{"at": 1}'}
CALL = {"id": "c1", "type": "function", "function": FUNCTION}
CALLED = {"type": "function_call", "id": "fc_1", "call_id": "c1", "status": "completed", **FUNCTION}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "Found."}
PARAMETERS = {"type": "object", "properties": {}}


def chat_of(**fields: Any) -> ChatBody:
    """Return the chat request for a body as a client sends it."""
    body = msgspec.json.encode({"input": "Why?", **fields})
    return to_chat(msgspec.json.decode(body, type=ResponsesBody))


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
                "content": "a\n[input_image: this model reads text only]",
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


def test_tools_have_the_form_of_the_chat_api() -> None:
    """Those of other types are left as they are, and the chat API skips them."""
    tool = {"type": "function", "name": "look", "parameters": PARAMETERS, "strict": True}
    others = [{"type": "web_search"}, {"type": "namespace", "name": "agents", "tools": [tool]}]

    found = chat_of(tools=[tool, *others]).tools

    function = {"name": "look", "parameters": PARAMETERS, "strict": True}
    assert found == [{"type": "function", "function": function}, *others]


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
        ({"input": [{"type": "computer_call"}]}, "input", "computer_call"),
        ({"input": [{"type": ["message"]}]}, "input", "message"),
        ({"input": [{"type": "function_call", "name": "look"}]}, "input", "arguments"),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
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
