"""Chat templates: rendered as their makers meant, harmless whatever they try."""

from __future__ import annotations

import pytest

from specchat.chat.template import Message, render
from specchat.errors import TemplateError

MESSAGES: list[Message] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi {{ 7 * 7 }}"},
]
CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def test_a_conversation_is_rendered_up_to_the_answer() -> None:
    """What users write is text, never a template."""
    assert render(CHATML, MESSAGES) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n"
        "<|im_start|>user\nHi {{ 7 * 7 }}<|im_end|>\n<|im_start|>assistant\n"
    )


def test_what_templates_of_the_hub_use_is_there() -> None:
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


@pytest.mark.parametrize("template", HOSTILE)
def test_a_hostile_or_broken_template_is_an_error(template: str) -> None:
    """It is refused with a message, and reaches nothing of Python or the machine."""
    with pytest.raises(TemplateError, match=r"template"):
        render(template, MESSAGES)
