"""Messages come in the forms of OpenAI's API, and leave in the form that a template takes."""

from __future__ import annotations

from typing import Any

import pytest

from specchat.errors import InvalidOption
from specchat.formats.families import format_of
from tables import table

TEMPLATE = (
    "{% for m in messages %}[{{ m.role }}:{{ m.content }}{% for c in m.tool_calls %}"
    "{{ c.function.name }}{{ c.function.arguments | tojson }}{% endfor %}]{% endfor %}"
)
QUESTION = {"role": "user", "content": "?"}


def text_of(*messages: dict[str, Any], think: str = "auto") -> str:
    """Return the prompt of a template that writes all it is given."""
    return format_of(TEMPLATE).prompt(messages, think=think).text  # type: ignore[arg-type]


def called(function: Any) -> dict[str, Any]:
    """Return an answer that calls a tool."""
    return {"role": "assistant", "content": None, "tool_calls": [{"function": function}]}


@table(
    ("message", "text"),
    [
        ({"role": "user"}, "[user:]"),
        ({"role": "user", "content": None}, "[user:]"),
        (
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"text": "b"}]},
            "[user:a\nb]",
        ),
        ({**QUESTION, "tool_calls": None, "reasoning_content": None}, "[user:?]"),
    ],
)
def test_content_and_fields_may_be_missing(message: dict[str, Any], text: str) -> None:
    """Null and missing are the same; typed parts are joined."""
    assert text_of(message) == text
    assert text_of({"role": "system", "content": None}, message) == "[system:]" + text


def test_an_answer_without_content_is_not_continued() -> None:
    """There is nothing to go on with."""
    assert text_of(QUESTION, {"role": "assistant", "content": None}) == "[user:?]"


@pytest.mark.parametrize("arguments", ["{x", "[" * 3000])
def test_arguments_that_are_not_json_stay_as_they_are(arguments: str) -> None:
    """A model wrote them; the conversation goes on."""
    call = called({"name": "f", "arguments": arguments})

    assert f'f"{arguments}"' in text_of(QUESTION, call, QUESTION)


@table(
    ("messages", "what"),
    [
        ([], "must not be empty"),
        ([{"content": "a"}], "role"),
        ([{"role": "user", "content": 5}], "content"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "content"),
        ([{**QUESTION, "reasoning_content": 5}], "reasoning_content"),
        ([called({"name": "f"}), QUESTION], "tool call"),
        ([called(None), QUESTION], "tool call"),
    ],
)
def test_what_is_no_message_is_a_usage_error(messages: list[Any], what: str) -> None:
    """It names what is wrong, in one line."""
    with pytest.raises(InvalidOption, match=what):
        text_of(*messages)


def test_a_budget_of_thousands_of_digits_is_a_usage_error() -> None:
    """Python refuses to read such numbers."""
    form = format_of("{{ thinking_budget }}" + TEMPLATE)

    assert form.prompt([QUESTION], think="300").text.startswith("300")  # type: ignore[list-item]
    with pytest.raises(InvalidOption, match=r"or a number of tokens$"):
        form.prompt([QUESTION], think="9" * 5000)  # type: ignore[list-item]


def test_a_tool_needs_only_a_name() -> None:
    """Templates read more, such as gpt-oss's the description; what is missing is empty."""
    template = (
        "{% for t in tools %}{{ t.type }} {{ t.function.name }}:{{ t.function.description }};"
        "{{ t.function.parameters.properties | length }}{% endfor %}{{ messages[0].content }}"
        "{% for c in messages[-1].tool_calls %}<call>{{ c.function | tojson }}</call>{% endfor %}"
    )
    form = format_of(template)
    tools = [{"function": {"name": "now"}}]

    prompt = form.prompt([{"role": "user", "content": "Hi"}], think="auto", tools=tools)
    assert prompt.text == "function now:;0Hi"


@table("tool", [{}, {"function": {}}, {"function": "now"}, {"name": "now"}, 1])
def test_a_tool_without_a_name_is_refused(tool: Any) -> None:
    """The error says what a tool needs."""
    form = format_of("{{ messages[0].content }}")
    with pytest.raises(InvalidOption, match="each tool needs a function with a name"):
        form.prompt([{"role": "user", "content": "Hi"}], think="auto", tools=[tool])


FIRST_ONLY = (
    "{% for m in messages %}{% if loop.first or m.role != 'system' %}"
    "[{{ m.role }}:{{ m.content }}]{% endif %}{% endfor %}"
)
SYSTEM, LATER = {"role": "system", "content": "a"}, {"role": "developer", "content": "b"}


def test_several_system_prompts_reach_a_template_that_writes_only_the_first() -> None:
    """The first ones are joined, later ones become the user's; others write them as they come."""
    messages = [SYSTEM, LATER, QUESTION, LATER]
    form = format_of(FIRST_ONLY)

    text = form.prompt(messages, think="auto").text  # type: ignore[arg-type]

    assert text == "[system:a\n\nb][user:?][user:b]"
    assert text_of(*messages) == "[system:a][system:b][user:?][system:b]"
