"""Kimi K2: calls in a section, with the function's name in the id; a call may end the reasoning.

<think>reasoning</think>answer<|tool_calls_section_begin|><|tool_call_begin|>functions.NAME:0
<|tool_call_argument_begin|>{arguments}<|tool_call_end|><|tool_calls_section_end|>
"""

import re
from dataclasses import replace

from specchat.formats.call_format import CallFormat
from specchat.formats.call_parsers import NamedJson
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.marks import Mark, usual_marks

SECTION, SECTION_END = "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"
CALL = re.compile(
    r"<\|tool_call_begin\|>\s*(?P<id>(?:functions\.)?(?P<name>[\w.-]+)(?::\d+)?)\s*"
    r"<\|tool_call_argument_begin\|>\s*+(?={|<|$)"
)


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with calls and reasoning, which one of the templates does not show."""
    with_calls = replace(
        form,
        reasoning=Wrapping("<think>", "</think>"),
        reasoning_field="reasoning_content",
        content=Wrapping(),
        calls=CallFormat(SECTION, SECTION_END, form.calls.text, NamedJson(CALL)),
    )
    marks = dict(usual_marks(with_calls, call_ends_reasoning=True))
    single = Mark("<|tool_call_begin|>", "call")
    marks |= {state: (*marks[state], single) for state in ("start", "reasoning", "answer")}
    return replace(with_calls, marks=marks)
