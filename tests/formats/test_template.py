"""Chat templates render as intended, and hostile ones do no harm."""

from __future__ import annotations

import pytest

from specchat.errors import TemplateError
from specchat.formats import template as templates
from specchat.formats.chat_message import ChatMessage
from tables import table

MESSAGES: list[ChatMessage] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi {{ 7 * 7 }}"},
]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def render(template: str, messages: list[ChatMessage], bos: str = "", eos: str = "") -> str:
    """Render a conversation, up to where the answer begins."""
    given = {"messages": messages, "add_generation_prompt": True, "bos_token": bos}
    return templates.render(template, {**given, "eos_token": eos})


def test_a_conversation_is_rendered_up_to_the_answer() -> None:
    """What users write is text, never a template."""
    assert render(CHATML, MESSAGES) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi {{ 7 * 7 }}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_features_that_hub_templates_use_work() -> None:
    """BOS and EOS, loop controls, tojson, and the date."""
    template = (
        "{{ bos_token }}{% for m in messages %}{% if loop.index > 1 %}{% break %}{% endif %}"
        "{{ m | tojson }}{% endfor %}{{ eos_token }}{{ strftime_now('%Y') | length }}"
    )
    assert render(template, MESSAGES, bos="<s>", eos="</s>").startswith("<s>{")


HOSTILE = [
    "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "{{ messages.append(1) }}",
    "{{ raise_exception('roles must alternate') }}",
    "{% for i in range(99999999) %}{{ 'x' * 1000 }}{% endfor %}",
    "{% for i in range(99000) %}{{ 'x' * 1000 }}{% endfor %}",
    "{% import 'os' as os %}",
    "{% include '/etc/passwd' %}",
    "{{ 1 / 0 }}",
    "{{ messages[5].content }}",
    "{% if %}",
]


@table("template", HOSTILE)
def test_a_hostile_or_broken_template_is_an_error(template: str) -> None:
    """The template reaches neither Python nor the machine."""
    with pytest.raises(TemplateError, match=r"template"):
        render(template, MESSAGES)


def test_generation_blocks_are_plain_text() -> None:
    """Generation blocks mark the text to train on; a chat ignores them."""
    template = "{% generation %}{{ messages[0].content }}{% endgeneration %}!"

    assert render(template, [{"role": "user", "content": "hi"}]) == "hi!"


def test_json_is_written_as_hugging_face_does() -> None:
    """Not escaped for HTML, other alphabets as they are, indented when asked."""
    template = "{{ {'a': '<&\\'> é'} | tojson }}{{ [1] | tojson(indent=1) }}"

    assert render(template, MESSAGES) == '{"a": "<&\'> é"}[\n 1\n]'


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    "template",
    [
        "{{ 'x' * 10000000000000 }}",
        "{{ 10000000000000 * 'x' }}",
        "{{ [1] * 1000000000 }}",
        "{{ 7 ** (10 ** 8) }}",
        "{{ '%0100000000d' % 1 }}",
        "{{ '%*d' % (100000000, 1) }}",
        "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
        "{{ 3 | dictsort }}",
        "{% break %}",
    ],
)
def test_templates_out_for_memory_or_time_are_refused(template: str) -> None:
    """Soon, by a TemplateError."""
    with pytest.raises(TemplateError):
        render(template, MESSAGES)


def test_common_arithmetic_still_works() -> None:
    """Multiplying, formatting and powers of sensible size."""
    assert render("{{ 6 * 7 }} {{ 'ab' * 2 }} {{ 2 ** 10 }} {{ '%03d' % 7 }}", MESSAGES) == (
        "42 abab 1024 007"
    )
