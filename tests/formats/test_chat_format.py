"""Prompts follow what was learned: fields of reasoning, switches, and begun answers."""

from __future__ import annotations

import pytest

from specchat.errors import TemplateError
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.chat_message import ChatMessage
from specchat.formats.families import FAMILIES, Family, format_of
from tables import table

ASKED: list[ChatMessage] = [{"role": "user", "content": "Why?"}]
THOUGHT: ChatMessage = {"role": "assistant", "content": "So.", "reasoning_content": "because"}
CALLING: ChatMessage = {
    "role": "assistant",
    "content": "",
    "tool_calls": [
        {"id": number, "type": "function", "function": {"name": "find", "arguments": "{}"}}
        for number in ("call00001", "call00002")
    ],
}
RESULT: ChatMessage = {"role": "tool", "content": "found it", "tool_call_id": "call00001"}
EACH = "{% for m in messages %}<{{ m.role }}>"
ANSWERS = "{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
BLOCKS = (
    "{% if m.content is string %}{{ m.content }}{% else %}{% for part in m.content %}"
    "{% if part.type == 'thinking' %}<muse>{{ part.thinking }}</muse>{% else %}{{ part.text }}"
    "{% endif %}{% endfor %}{% endif %}"
)
FIELD = "{% if m.thinking %}<muse>{{ m.thinking }}</muse>{% endif %}{{ m.content }}"
OPENED = (
    EACH + "{% if m.reasoning_content %}<muse>\n{{ m.reasoning_content }}\n</muse>\n{% endif %}"
    "{{ m.content }}<end>{% endfor %}{% if add_generation_prompt %}<assistant><muse>\n{% endif %}"
)


def text_of(template: str, messages: list[ChatMessage], think: str = "auto") -> str:
    """Return the prompt of a template."""
    return format_of(template).prompt(messages, think=think).text


@table(
    ("begin", "end", "generation", "state"),
    [
        ("<think>", "</think>", "<bot><think>\n", "reasoning"),
        ("<think>", "</think>", "<bot><think>\n\n</think>\n\n", "start"),
        ("<think>", "</think>", "<bot></think>", "start"),
        ("<think>", "</think>", "<bot>", "start"),
        ("<think>", "</think>", "<think></think><bot><think>", "reasoning"),
        ("<|think|>", "<|end|>", "<|end|><|bot|>", "start"),
        ("", "</think>", "<bot>", "reasoning"),
    ],
)
def test_the_end_of_the_prompt_says_where_the_answer_begins(
    begin: str, end: str, generation: str, state: str
) -> None:
    """In the reasoning only if that was opened last, or needs no begin mark."""
    assert ChatFormat("", reasoning=Wrapping(begin, end)).state_after(generation) == state


@pytest.mark.parametrize("written", [BLOCKS, FIELD])
def test_reasoning_goes_into_the_field_that_the_template_reads(written: str) -> None:
    """A field with another name, or a typed part of the content."""
    template = EACH + written + "<end>" + ANSWERS

    assert "<assistant><muse>because</muse>So.<end>" in text_of(template, [*ASKED, THOUGHT, *ASKED])


@table(
    ("begun", "added"),
    [
        ({"content": "", "reasoning_content": "be"}, "be"),
        ({"content": "So", "reasoning_content": "be"}, "be\n</muse>\nSo"),
        ({"content": "So"}, "\n</muse>\nSo"),
    ],
)
def test_an_answer_is_continued_in_the_reasoning_that_the_prompt_opens(
    begun: dict[str, str], added: str
) -> None:
    """Its begin mark is not repeated, and its end mark is written where the answer has begun."""
    answer: ChatMessage = {"role": "assistant", **begun}  # type: ignore[typeddict-item]

    assert text_of(OPENED, [*ASKED, answer]) == text_of(OPENED, ASKED) + added


def test_a_prompt_may_open_the_reasoning_after_a_question_only() -> None:
    """After a tool's result the model answers at once."""
    template = (
        EACH + "{{ m.content }}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}{% endfor %}"
        "{% if add_generation_prompt %}<bot><think>{% if messages[-1].role == 'tool' %}</think>"
        "{% endif %}{% endif %}"
    )
    form = format_of(template)

    assert form.prompt(ASKED, think="auto").state == "reasoning"
    assert form.prompt([*ASKED, CALLING, RESULT], think="auto").state == "start"


def test_calls_that_a_template_refuses_are_sent_as_text() -> None:
    """Some take a single call in a message."""
    template = (
        EACH + "{% if m.tool_calls | length > 1 %}{{ raise_exception('one call only') }}{% endif %}"
        "{{ m.content }}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}" + ANSWERS
    )
    text = text_of(template, [*ASKED, CALLING, RESULT])

    assert text.count('{"name": "find", "arguments": ') == 2
    assert "<user><tool_response>\nfound it\n</tool_response>" in text


def test_a_budget_of_nothing_is_off() -> None:
    """A template with a number alone can be switched off, too."""
    template = "{% if thinking_budget is defined %}spend {{ thinking_budget }} {% endif %}"

    assert text_of(template + EACH + FIELD + ANSWERS, ASKED, "off").startswith("spend 0 ")


def test_on_is_a_level_where_the_template_does_not_reason_by_itself() -> None:
    """Its first level, since its default is off."""
    template = (
        "{% set effort = reasoning_effort | default('none') %}{% if effort == 'none' %}calm "
        "{% elif effort == 'deep' %}deep {% endif %}" + EACH + FIELD + ANSWERS
    )

    assert text_of(template, ASKED).startswith("calm ")
    assert text_of(template, ASKED, "on").startswith("deep ")


def test_what_keeps_earlier_reasoning_is_no_switch() -> None:
    """Its name is like that of a switch."""
    template = "{% if preserve_thinking %}<keep>{% endif %}" + EACH + FIELD + ANSWERS

    assert format_of(template).thinking == ()


def test_reasoning_may_show_before_calls_only() -> None:
    """Such a template drops it from other answers."""
    template = (
        EACH + "{% if m.tool_calls and m.reasoning %}<muse>{{ m.reasoning }}</muse>{% endif %}"
        "{{ m.content }}{% for c in m.tool_calls %}{{ c | tojson }}{% endfor %}" + ANSWERS
    )
    form = format_of(template)

    assert form.reasoning == Wrapping("<muse>", "</muse>")
    assert form.reasoning_field == "reasoning"


def test_reasoning_may_have_an_end_mark_only() -> None:
    """The mark before it is that of the turn."""
    template = (
        EACH + "{% if m.reasoning_content %}{{ m.reasoning_content }}</think>{% endif %}"
        "{{ m.content }}<end>" + ANSWERS
    )

    assert format_of(template).reasoning == Wrapping("", "</think>")


def test_the_end_of_text_ends_a_turn_if_the_template_writes_it() -> None:
    """Also if it does not look like a mark."""
    template = EACH + FIELD + "{% if m.role == 'assistant' %}{{ eos_token }}{% endif %}" + ANSWERS

    assert format_of(template, "", "~eos~").ends == ("~eos~",)


@table("family", FAMILIES, ids=lambda family: family.name)
def test_a_template_of_a_family_that_always_fails_has_a_format(family: Family) -> None:
    """It is recognized by its text, although nothing could be learned."""
    form = format_of("{{ raise_exception('no') }}{# " + " ".join(family.signs) + " #}")

    with pytest.raises(TemplateError, match="no"):
        form.prompt(ASKED, think="auto")
