"""Tools are offered to any model: by its template, or else in the system prompt."""

from __future__ import annotations

import json

import pytest

from specchat.formats.answer_reader import AnswerReader
from specchat.formats.chat_format import CALLS_GENERIC, SYSTEM_MOVED, TOOLS_DESCRIBED
from specchat.formats.chat_message import ChatMessage
from specchat.formats.families import format_of
from tables import table

PLAIN = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)
REFUSING = "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system') }}"
REFUSING += "{% endif %}{% endfor %}" + PLAIN
CALLING = PLAIN.replace(
    "<end>",
    "{% for c in m.tool_calls %}<call>{{ c.function.name }}<args>"
    "{{ c.function.arguments | tojson }}</call>{% endfor %}<end>",
)
TAGGED = PLAIN.replace(
    "<end>",
    '{% for c in m.tool_calls %}<call name="{{ c.function.name }}">'
    "{% for k, v in c.function.arguments.items() %}<arg={{ k }}>{{ v }}</arg>{% endfor %}</call>"
    "{% endfor %}<end>",
)
DESCRIBING = "{% if tools %}{{ tools | tojson }}{% endif %}"
UNREADABLE = DESCRIBING + PLAIN.replace(
    "<end>",
    "{% for c in m.tool_calls %}Used {{ c.function.name }} with "
    "{{ c.function.arguments | tojson }}; "
    "{% endfor %}<end>",
)
FIND = {"type": "function", "function": {"name": "find", "description": "Finds.",
        "parameters": {"type": "object", "properties": {"what": {"type": "string"}}}}}  # fmt: skip
ASKED: list[ChatMessage] = [{"role": "user", "content": "Where?"}]
CALL = '<tool_call>\n{"name": "find", "arguments": {"what": "x"}}\n</tool_call>'
CALLED: list[ChatMessage] = [
    *ASKED,
    {
        "role": "assistant",
        "content": "I look.",
        "tool_calls": [
            {"id": number, "type": "function",
             "function": {"name": "find", "arguments": '{"what": "x"}'}}
            for number in ("call00001", "call00002")
        ],
    },
    {"role": "tool", "content": "here", "tool_call_id": "call00001"},
    {"role": "tool", "content": "there", "tool_call_id": "call00002"},
]  # fmt: skip
RESULTS = "<tool_response>\nhere\n</tool_response>\n<tool_response>\nthere\n</tool_response>"


def test_the_system_prompt_describes_tools_that_the_template_leaves_out() -> None:
    """Behind one that is there; without tools nothing is added."""
    form = format_of(PLAIN)
    told: list[ChatMessage] = [{"role": "system", "content": "Be brief."}, *ASKED]

    alone = form.prompt(ASKED, think="auto", tools=[FIND])
    behind = form.prompt(told, think="auto", tools=[FIND])
    without = form.prompt(told, think="auto")

    assert json.dumps(FIND) in alone.text
    assert "\n<tool_call>\n" in alone.text
    assert alone.text.endswith("<end><user>Where?<end><assistant>")
    description = alone.text.partition("<system>")[2]
    assert behind.text == f"<system>Be brief.\n\n{description}"
    assert alone.notices == behind.notices == (CALLS_GENERIC,)
    assert without.text == "<system>Be brief.<end><user>Where?<end><assistant>"
    assert without.notices == ()


@pytest.mark.parametrize("usual", ["You are Small.", "You are\nSmall, made in {{ 'May' }}."])
def test_the_templates_own_system_prompt_stays(usual: str) -> None:
    """Before what the model is told; one of the conversation takes its place as ever."""
    own = usual.replace("{{ 'May' }}", "May")
    form = format_of(
        "{% if messages[0].role != 'system' %}<system>" + usual + "<end>{% endif %}" + PLAIN
    )
    described = form.prompt(ASKED, think="auto", tools=[FIND]).text
    told = form.prompt(ASKED, think="auto", told="Answer briefly.").text
    both = form.prompt(
        [{"role": "system", "content": "Hi."}, *ASKED], think="auto", tools=[FIND], told="Briefly."
    ).text

    assert described.startswith(f"<system>{own}\n\n# Tools\n")
    assert told == f"<system>{own}\n\nAnswer briefly.<end><user>Where?<end><assistant>"
    assert both.startswith("<system>Hi.\n\nBriefly.\n\n# Tools\n")
    assert own not in both


def test_a_template_without_a_system_role_has_the_tools_before_the_question() -> None:
    """As it has system prompts; both are said."""
    prompt = format_of(REFUSING).prompt(ASKED, think="auto", tools=[FIND])

    assert prompt.text.startswith("<user># Tools\n")
    assert prompt.text.endswith("\n\nWhere?<end><assistant>")
    assert prompt.notices == (CALLS_GENERIC, SYSTEM_MOVED)


@pytest.mark.parametrize("offers", [True, False])
@pytest.mark.parametrize("template", [PLAIN, UNREADABLE])
def test_calls_and_results_are_written_in_the_generic_form(template: str, offers: bool) -> None:
    """Several calls of an answer one below the other, and so are their results."""
    form = format_of(template)
    text = form.prompt(CALLED, think="auto", tools=[FIND] if offers else []).text

    is_native = template == UNREADABLE and not offers
    written = 'Used find with {"what": "x"}; ' * 2 if is_native else f"\n{CALL}\n{CALL}"
    assert f"<assistant>I look.{written}<end>" in text
    assert is_native or f"<user>{RESULTS}<end>" in text


@table(
    ("template", "shown"),
    [
        (CALLING, "<call><function-name><args><args-json-object></call>"),
        (TAGGED, '<call name="<function-name>"><arg=<argument-name>><argument-value></arg></call>'),
    ],
)
def test_the_form_that_a_template_shows_is_used(template: str, shown: str) -> None:
    """It writes calls and leaves out tools, as DeepSeek R1's does."""
    form = format_of(template)
    prompt = form.prompt(CALLED, think="auto", tools=[FIND])

    assert f"\n{shown}<end>" in prompt.text
    assert json.dumps(FIND) in prompt.text
    assert "tool_call>" not in prompt.text
    assert prompt.notices == (TOOLS_DESCRIBED,)


def test_a_template_that_has_tools_is_left_alone() -> None:
    """Nothing is described twice."""
    prompt = format_of(DESCRIBING + CALLING).prompt(CALLED, think="auto", tools=[FIND])

    assert prompt.text.count("Finds.") == 1
    assert "# Tools" not in prompt.text
    assert prompt.notices == ()


def test_a_generic_call_is_text_where_no_tools_are_offered() -> None:
    """The model explains a format there."""
    form = format_of(PLAIN)
    for tools, calls in (([FIND], 1), ([], 0)):
        reader = AnswerReader(form, "start", tools)
        parts = [*reader.read(CALL), *reader.finish()]
        text = "".join(part for kind, part in parts if kind == "answer")
        assert (text, len(reader.calls)) == ("" if calls else CALL, calls)
