"""How calls are written is learned from the template, whatever it writes around them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from specchat.formats.answer_reader import AnswerReader
from specchat.formats.call_reading import LONGEST_CALL, CallReader
from specchat.formats.chat_format import ChatFormat
from specchat.formats.families import format_of
from specchat.formats.functionary import complete as functionary
from specchat.formats.generic_calls import GENERIC
from specchat.formats.gpt_oss import complete as gpt_oss
from tables import table

EACH = "{% for c in m.tool_calls %}"
JOINED = (
    EACH + '<tool_call>{{ \'{"name": "\' + c.function.name + \'", "arguments": \''
    " + c.function.arguments + '}' }}</tool_call>{% endfor %}"
)
"""Takes arguments as JSON text only."""
SILENT = EACH + "<think></think><call>{{ c.function | tojson }}</call>{% endfor %}"
"""Writes empty reasoning before a call."""
LINES = (
    EACH + "<call={{ c.function.name }}>{% for k, v in c.function.arguments.items() %}\n"
    "<p={{ k }}>\n{{ v }}\n</p>{% endfor %}\n</call>{% endfor %}"
)


FUNCTIONS = (
    EACH + "<tool_call>\n<function={{ c.function.name }}>"
    "{% for k, v in c.function.arguments.items() %}\n<parameter={{ k }}>\n{{ v }}\n</parameter>"
    "{% endfor %}\n</function>\n</tool_call>{% endfor %}"
)
QUOTING = LINES.replace("\n{{ v }}\n", "{{ v }}")


def template_of(calls: str) -> str:
    """Return a template that writes calls in a way."""
    return (
        "{% for m in messages %}<{{ m.role }}>{% if m.reasoning_content %}<think>"
        "{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}"
        + calls
        + "<end>{% endfor %}{% if add_generation_prompt %}<assistant>{% endif %}"
    )


def calls_in(form: ChatFormat, text: str, state: Any = "start") -> tuple[list[Any], str]:
    """Return the calls in an answer, and the rest of it."""
    reader = AnswerReader(form, state)
    parts = reader.read(text) + reader.finish()
    called = [(call.name, json.loads(call.arguments)) for call in reader.calls]
    return called, "".join(part for kind, part in parts if kind == "answer")


@table(
    ("written", "uttered"),
    [
        (JOINED, '<tool_call>{"name": "find", "arguments": {"what": "x y"}}</tool_call>'),
        (SILENT, '<call>{"name": "find", "arguments": {"what": "x y"}}</call>'),
        (QUOTING, "<call=find>\n<p=what><![CDATA[x y]]></p>\n</call>"),
        (LINES, "<call=find>\n<p=what>\nx y\n</p>\n</call>"),
    ],
)
def test_calls_are_read_without_what_is_written_around_them(written: str, uttered: str) -> None:
    """Neither empty reasoning nor line breaks are part of a call."""
    form = format_of(template_of(written))

    assert calls_in(form, "Look: " + uttered) == ([("find", {"what": "x y"})], "Look: ")


def test_tags_quoted_in_an_argument_do_not_end_it() -> None:
    """Neither they nor a mark of quoting without an end."""
    form = format_of(template_of(QUOTING))
    quoted = "<call=find><p=what><![CDATA[<p></p>]]></p></call>"
    broken = quoted.replace("]]>", "")

    assert calls_in(form, quoted) == ([("find", {"what": "<p></p>"})], "")
    assert calls_in(form, broken)[0] == [("find", {"what": "<p>"})]


@pytest.mark.parametrize("state", ["start", "reasoning"])
def test_a_function_in_a_tag_needs_no_mark_before_it(state: str) -> None:
    """Qwen3-Coder leaves it out, and others write the call before they end their reasoning."""
    form = format_of(template_of(FUNCTIONS))
    call = "<function=find>\n<parameter=what>\nx\n</parameter>\n</function>\n</tool_call>"
    begun = "Look: " if state == "start" else "Hm.\n<tool_call>\n"

    assert calls_in(form, begun + call, state) == (
        [("find", {"what": "x"})],
        "Look: " if state == "start" else "",
    )


def test_calls_of_families_with_headers_are_read() -> None:
    """The header says that a call follows, and to which tool."""
    harmony = (
        "<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>commentary"
        ' to=functions.find <|constrain|>json<|message|>{"what": 1}<|call|>'
    )

    assert calls_in(gpt_oss(ChatFormat("")), harmony) == ([("find", {"what": 1})], "")
    assert calls_in(functionary(ChatFormat("")), 'all\nHi>>>find\n{"what": 1}', "header") == (
        [("find", {"what": 1})],
        "Hi",
    )


def test_an_object_with_a_name_is_a_call_if_it_names_a_tool() -> None:
    """Or has arguments; any other may be an answer."""
    tools = [{"type": "function", "function": {"name": "find"}}]
    reader = CallReader(GENERIC, tools)
    (call,) = reader.read('{"name": "find", "why": "x"}', 0) or []

    assert (call.name, call.arguments) == ("find", "{}")
    assert reader.read('{"name": "Ada", "born": 1815}', 0) is None


def test_a_call_that_is_too_long_stays_text() -> None:
    """It could take long to read."""
    raw = json.dumps({"name": "f", "arguments": {"a": "x" * LONGEST_CALL}})

    assert CallReader(GENERIC, ()).read(raw, 0) is None
