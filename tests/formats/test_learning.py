"""Formats are learned from what templates do, not from their names."""

from __future__ import annotations

import pytest

from specchat.errors import InvalidOption, TemplateError
from specchat.formats.answer_reader import AnswerReader
from specchat.formats.call_reading import CallReader
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.chat_message import ChatMessage
from specchat.formats.families import FINAL_RESPONSE, format_of
from tables import table

MESSAGES: list[ChatMessage] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Why?"},
    {"role": "assistant", "content": "So.", "reasoning_content": "because"},
    {"role": "user", "content": "And?"},
]
SWITCHED = (
    "{% for m in messages %}"
    "<u{{ m.role }}>{% if m.reasoning_content and loop.last %}<muse>\n{{ m.reasoning_content }}\n"
    "</muse>\n{% endif %}{{ m.content }}</u>\n{% endfor %}"
    "{% if add_generation_prompt %}<uassistant>"
    "{% if enable_thinking is defined and not enable_thinking %}<muse>\n\n</muse>\n{% endif %}"
    "{% endif %}"
)
"""Reasons unless it is switched off, and drops earlier reasoning."""
OPENED = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}[assistant]<think>\n"
"""Opens the reasoning itself; where it ends, only the model knows: `</think>`."""
STEPS = "Here are my reasoning steps:\n"
LEVELS = (
    "{% set effort = reasoning_effort if reasoning_effort is defined else 'high' %}"
    "{% if effort == 'no_think' %}calm {% elif effort in ['low', 'high'] %}{{ effort }} {% endif %}"
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}<end>{% endfor %}<assistant>"
)
WRITTEN = "effort: {{ reasoning_effort | default('medium') }}." + SWITCHED
ASKED = (
    "{% if enable_thinking is defined and enable_thinking %}"
    "{% if reasoning_effort == 'low' %}briefly "
    "{% elif reasoning_effort == 'high' %}long {% endif %}"
    "{% endif %}" + SWITCHED
)
"""Levels say something only while reasoning is on."""
BUDGET = "{% if thinking_budget is defined %}spend {{ thinking_budget }}{% endif %}" + SWITCHED
WRAPPED = (
    "{% for m in messages %}{% if m.role == 'assistant' %}<bot><|START_TEXT|>{{ m.content }}"
    "<|END_TEXT|><over>{% else %}<{{ m.role }}>{{ m.content }}<over>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<bot>{% endif %}"
)
DEAF = "{% for m in messages %}{% if m.role != 'system' %}[{{ m.content }}]{% endif %}{% endfor %}"
TYPED = "{% for m in messages %}<{{ m.role }}>{{ m.content[0].text }}{% endfor %}"
STRICT = (
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}[{{ m.content }}]{% endfor %}"
)


def form_of(template: str) -> ChatFormat:
    """Return the format of a template."""
    return format_of(template, "<s>", "</s>")


def test_reasoning_marks_are_those_the_template_writes() -> None:
    """With white space, which a continued answer needs; earlier reasoning is dropped here."""
    form = form_of(SWITCHED)

    assert form.reasoning is not None
    assert (form.reasoning.begin, form.reasoning.end) == ("<muse>\n", "\n</muse>\n")
    assert form.reasoning_field == "reasoning_content"
    assert not form.keeps_reasoning
    assert "because" not in form.prompt(MESSAGES, think="auto").text


def test_a_prompt_that_opens_the_reasoning_begins_in_it() -> None:
    """Switched off, the same template closes it at once."""
    assert form_of(SWITCHED).prompt(MESSAGES, think="on").state == "start"
    assert form_of(SWITCHED).prompt(MESSAGES, think="off").state == "start"


def test_a_tag_that_the_prompt_leaves_open_is_reasoning_if_it_is_known_how_it_ends() -> None:
    """Because the template has the end mark, or because all models write that one."""
    unknown = OPENED.replace("<think>", "<muse>")
    closing = unknown + "{% if never %}</muse>{% endif %}"

    for template in (OPENED, closing):
        assert form_of(template).prompt(MESSAGES, think="auto").state == "reasoning"
    assert form_of(OPENED).reasoning == Wrapping("<think>", "</think>")
    assert form_of(unknown).reasoning is None


@table(
    ("text", "reasoning", "answer"),
    [
        (f"{STEPS}Five.\n{FINAL_RESPONSE}\nTwelve.\n[END FINAL RESPONSE]", "Five.", "Twelve."),
        (f"{STEPS}Five", "Five", ""),
        (f"{FINAL_RESPONSE}\nTwelve.", "", "Twelve."),
        ("Twelve.", "", "Twelve."),
    ],
)
def test_reasoning_may_begin_with_a_sentence(text: str, reasoning: str, answer: str) -> None:
    """As Apriel 1.5 writes it, whose template has only what follows in its system prompt."""
    told = f"Answer as {FINAL_RESPONSE} ... [END FINAL RESPONSE]. "
    form = format_of(told + OPENED.replace("<think>", ""))
    reader = AnswerReader(form, form.prompt(MESSAGES, think="auto").state)
    parts = [part for piece in text for part in reader.read(piece)] + reader.finish()
    found = {kind: "".join(each for of, each in parts if of == kind) for kind, _ in parts}
    assert (found.get("reasoning", ""), found.get("answer", "").strip()) == (reasoning, answer)


def test_the_words_of_the_switch_are_those_the_template_knows() -> None:
    """Booleans are on and off; strings that it compares are levels, some of which mean off."""
    assert form_of(SWITCHED).thinking == ("on", "off")
    assert set(form_of(LEVELS).thinking) == {"on", "off", "low", "high"}
    assert form_of(LEVELS).prompt(MESSAGES, think="off").text.startswith("calm ")
    assert set(form_of(WRITTEN).thinking) >= {"on", "off", "low", "medium", "high"}
    assert "effort: low." in form_of(WRITTEN).prompt(MESSAGES, think="low").text


def test_a_level_switches_reasoning_on() -> None:
    """Where a template has both, and levels alone would change nothing."""
    form = form_of(ASKED)

    assert set(form.thinking) == {"on", "off", "low", "high"}
    assert form.prompt(MESSAGES, think="low").text.startswith("briefly ")
    assert form.prompt(MESSAGES, think="off").text.endswith("<muse>\n\n</muse>\n")


def test_a_budget_takes_numbers() -> None:
    """Any number of tokens, as users of such models write it."""
    form = form_of(BUDGET)

    assert "spend 300" in form.prompt(MESSAGES, think="300").text
    assert form.thinking[-1] == "NUMBER"


def test_auto_reasons_where_the_usual_switch_is() -> None:
    """A template that reasons only if asked is asked; one without a switch is left alone."""
    asks = "{% if enable_thinking %}<go>{% endif %}" + SWITCHED

    assert form_of(asks).prompt(MESSAGES, think="auto").text.startswith("<go>")
    assert form_of(WRAPPED).prompt(MESSAGES, think="auto").notices == ()


def test_a_word_the_model_does_not_know_is_an_error_that_lists_those_it_knows() -> None:
    """Without any switch the request is carried out, with a notice."""
    with pytest.raises(InvalidOption, match="choose auto, on or off"):
        form_of(SWITCHED).prompt(MESSAGES, think="medium")

    assert "cannot switch reasoning" in form_of(WRAPPED).prompt(MESSAGES, think="off").notices[0]


def test_marks_around_answers_and_at_the_end_of_turns_are_told_apart() -> None:
    """The first belong to the answer, the second end it."""
    form = form_of(WRAPPED)

    assert (form.content.begin, form.content.end) == ("<|START_TEXT|>", "<|END_TEXT|>")
    assert form.ends == ("<over>",)


def test_a_system_prompt_that_the_template_drops_goes_before_the_question() -> None:
    """With a notice; nothing is said where there is no system prompt."""
    prompt = form_of(DEAF).prompt(MESSAGES, think="auto")

    assert prompt.text == "[Be brief.\n\nWhy?][So.][And?]"
    assert "has no system role" in prompt.notices[0]
    assert form_of(DEAF).prompt(MESSAGES[1:], think="auto").notices == ()


def test_messages_take_the_form_that_the_template_wants() -> None:
    """Typed parts; alternating turns; a developer's message as the system's."""
    developer: list[ChatMessage] = [{"role": "developer", "content": "Hm."}, MESSAGES[1]]

    assert form_of(TYPED).prompt(MESSAGES[1:2], think="auto").text == "<user>Why?"
    assert form_of(STRICT).prompt([MESSAGES[1], MESSAGES[3]], think="auto").text == "[Why?\n\nAnd?]"
    assert (
        form_of(LEVELS)
        .prompt(developer, think="auto")
        .text.endswith("<system>Hm.<end><user>Why?<end><assistant>")
    )


def test_a_template_that_fails_has_a_format_and_says_why_when_it_is_used() -> None:
    """Learning never fails."""
    form = form_of("{{ raise_exception('no') }}")

    assert form.reasoning is None
    with pytest.raises(TemplateError, match="no"):
        form.prompt(MESSAGES, think="auto")


@table(
    ("begun", "added", "state"),
    [
        ({"content": "So"}, "So", "answer"),
        ({"content": "", "reasoning_content": "be"}, "<muse>\nbe", "reasoning"),
        ({"content": "So", "reasoning_content": "be"}, "<muse>\nbe\n</muse>\nSo", "answer"),
    ],
)
def test_an_answer_is_continued_where_it_was(begun: dict[str, str], added: str, state: str) -> None:
    """In its reasoning if that was not complete."""
    form = form_of(SWITCHED)
    answer: ChatMessage = {"role": "assistant", **begun}  # type: ignore[typeddict-item]
    asked = form.prompt(MESSAGES[:2], think="auto").text
    prompt = form.prompt([*MESSAGES[:2], answer], think="auto")

    assert (prompt.text, prompt.state) == (asked + added, state)


JSON_IN_TAG = "{{ c.function | tojson }}"
EACH = "{% for c in m.tool_calls %}"
PARAMETER = '<parameter name="{{ k }}">{{ v }}</parameter>\n'
ITEMS = "{% for k, v in c.function.arguments.items() %}"
KEY_VALUE = "<arg_key>{{ k }}</arg_key>\n<arg_value>{{ v }}</arg_value>\n"
NAMED = "{{ k }}={{ v | tojson }}{% if not loop.last %}, {% endif %}"
END = "{% endfor %}"
CALLS = {
    f"{EACH}<tool_call>\n{JSON_IN_TAG}\n</tool_call>{END}": (
        '<tool_call>\n{"name": "find", "arguments": {"what": "x", "much": 2}}\n</tool_call>'
    ),
    EACH + "<function={{ c.function.name }}>{{ c.function.arguments | tojson }}</function>" + END: (
        '<function=find>{"what": "x", "much": 2}</function>'
    ),
    f'<calls>{EACH}<invoke name="{{{{ c.function.name }}}}">\n{ITEMS}{PARAMETER}{END}</invoke>'
    f"\n{END}</calls>": (
        '<calls><invoke name="find">\n<parameter name="what">x</parameter>\n'
        '<parameter name="much">2</parameter>\n</invoke>\n</calls>'
    ),
    f"{EACH}<tool_call>{{{{ c.function.name }}}}\n{ITEMS}{KEY_VALUE}{END}</tool_call>{END}": (
        "<tool_call>find\n<arg_key>what</arg_key>\n<arg_value>x</arg_value>\n"
        "<arg_key>much</arg_key>\n<arg_value>2</arg_value>\n</tool_call>"
    ),
    f"<|tools|>[{EACH}{{{{ c.function.name }}}}({ITEMS}{NAMED}{END}){END}]": (
        '<|tools|>[find(what="x", much=2)]'
    ),
}


@table(("written", "uttered"), CALLS.items())
def test_calls_are_read_as_the_template_writes_them(written: str, uttered: str) -> None:
    """JSON, a name in a tag, arguments in tags with and without attributes, Python."""
    template = (
        "{% for m in messages %}<{{ m.role }}>{% if m.tool_calls %}" + written + "{% else %}"
        "{{ m.content }}{% endif %}<end>{% endfor %}{% if add_generation_prompt %}<assistant>"
        "{% endif %}"
    )
    calls = form_of(template).calls

    assert calls is not None
    (call,) = CallReader(calls, ()).read(uttered, 0) or []
    assert (call.name, call.arguments) == ("find", '{"what": "x", "much": 2}')


CALLED: list[ChatMessage] = [
    {"role": "user", "content": "Look."},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {"id": "call00000", "type": "function",
             "function": {"name": "find", "arguments": '{"what": "x"}'}},
        ],
    },
    {"role": "tool", "content": "found it", "tool_call_id": "call00000"},
]  # fmt: skip


def test_calls_and_their_answers_are_never_lost() -> None:
    """A template that writes none, or refuses them, gets them as text."""
    strict = STRICT.replace("roles must alternate", "no {{ m.role }}")
    for template in (WRAPPED, DEAF, strict):
        text = form_of(template).prompt(CALLED, think="auto").text
        assert all(word in text for word in ("Look.", "find", "what", "found it")), template


def test_arguments_have_the_form_that_the_template_wants() -> None:
    """An object, or JSON text where an object would be written as Python's."""
    written = "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls %}CALL{% endfor %}"
    for argument in ("c.function.arguments | tojson", "c.function.arguments"):
        call = "<call>{{ c.function.name }} {{ " + argument + " }}</call>"
        form = form_of(written.replace("CALL", call) + "{% endfor %}")
        assert '<call>find {"what": "x"}</call>' in form.prompt(CALLED, think="auto").text


def test_a_system_prompt_that_is_left_out_later_is_reported() -> None:
    """Some templates write it for the last question only."""
    late = (
        "{% for m in messages %}{% if m.role == 'user' and loop.last %}"
        "{{ messages[0].content if messages[0].role == 'system' }} {{ m.content }}{% elif m.role !="
        " 'system' %}[{{ m.content }}]{% for c in m.tool_calls %}{{ c.function.name }}"
        "{{ c.function.arguments | tojson }}{% endfor %}{% endif %}{% endfor %}"
    )
    form = form_of(late)

    assert form.prompt(MESSAGES, think="auto").notices == ()
    assert (
        "dropped the system prompt" in form.prompt([MESSAGES[0], *CALLED], think="auto").notices[0]
    )


PAIRS = ITEMS + "<k>{{ k }}<v>{{ v }}</v>" + END


@pytest.mark.parametrize(
    "template",
    [
        "{% if [NAMES] == [WORDS] %}!{% endif %}",
        "{% for c in m.tool_calls %}<z>y<x{{ ' ' * 90000 }}<{{ c.function.name }}" + PAIRS + END,
    ],
)
def test_learning_from_a_hostile_template_is_bounded(template: str) -> None:
    """Thousands of variables with thousands of words each; white space for a pattern to try."""
    names = ", ".join(f"think{number}" for number in range(1500))
    words = ", ".join(f'"a{number}"' for number in range(1500))
    written = template.replace("NAMES", names).replace("WORDS", words)
    form = form_of("{% for m in messages %}{{ m.content }}" + written + "{% endfor %}")

    assert len(form.thinking) < 200
    assert form.prompt(MESSAGES[1:2], think="auto").text.startswith("Why?")


def test_tags_of_tools_in_the_prompt_are_not_marks_of_reasoning() -> None:
    """Hermes names <tools></tools> and <tool_call></tool_call> before the tools."""
    told = "{% if tools %}In <tools></tools>, call in <tool_call></tool_call>.{% endif %}"
    switch = "{% if enable_thinking %}{% endif %}"
    form = form_of(f"Tags: <tools></tools> <tool_call></tool_call>{switch}{told}{STRICT}")

    assert form.reasoning is None
    assert form.content.begin == ""


HINTED = (
    "{% if thinking %}Write in <think></think>, then in <response></response>. {% endif %}"
    "{% for m in messages %}<u{{ m.role }}>{{ m.content }}</u>\n{% endfor %}"
    "{% if add_generation_prompt %}<uassistant>{% endif %}"
)
"""As Granite 3.3 does: answers after reasoning are in tags, which the template drops."""
NAMED = (
    "{% for m in messages %}<m>{% if m.role == 'assistant' %}<think>{{ m.reasoning_content }}"
    "</think><response>{% endif %}{{ m.content }}{% if m.role == 'assistant' %}</response>"
    "{% endif %}</m>{% endfor %}{% if add_generation_prompt %}<m>"
    "{% if thinking is defined and not thinking %}<think></think><response>{% endif %}{% endif %}"
)


@table(
    ("template", "think", "reasoning", "end"),
    [
        (HINTED, "off", "", "<uassistant>A"),
        (HINTED, "on", "", "<uassistant>A"),
        (HINTED, "on", "R", "<uassistant><think>R</think><response>A"),
        (NAMED, "off", "", "<m><think></think><response>A"),
        (NAMED, "on", "R", "<m><think>R</think><response>A"),
    ],
)
def test_a_continued_answer_has_the_marks_the_model_wrote(
    template: str, think: str, reasoning: str, end: str
) -> None:
    """Not those that only answers after reasoning have, nor those of the prompt twice."""
    begun: ChatMessage = {"role": "assistant", "content": "A"}
    if reasoning:
        begun["reasoning_content"] = reasoning
    prompt = form_of(template).prompt([MESSAGES[1], begun], think=think)

    assert prompt.text.endswith(end)
