"""LFM2: calls in Python syntax, which some templates of the family do not show.

<|tool_call_start|>[NAME(key="text", other=1)]<|tool_call_end|>
"""

from dataclasses import replace

from specchat.formats.call_pattern import ArgumentPattern, CallPattern, for_types
from specchat.formats.call_syntax import CallSyntax, read_python
from specchat.formats.chat_format import ChatFormat
from specchat.formats.marks import usual_marks

BEGIN, END = "<|tool_call_start|>", "<|tool_call_end|>"
CALLED = CallPattern(
    begin=f"{BEGIN}[",
    between="), ",
    end=f")]{END}",
    arguments=ArgumentPattern(
        first="(",
        following=", ",
        none="(",
        before=for_types("="),
        after=for_types(""),
        quotes='"',
        has_words=True,
    ),
)


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with calls; the template reads reasoning from the field "thinking"."""
    calls, called = CallSyntax(BEGIN, END, read_python), form.call_pattern or CALLED
    field = form.reasoning_field or ("thinking" if form.reasoning else "")
    with_calls = replace(form, calls=calls, call_pattern=called, reasoning_field=field)
    return replace(with_calls, marks=usual_marks(with_calls))
