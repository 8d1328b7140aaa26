"""LFM2: calls in Python syntax, which some templates of the family do not show.

<|tool_call_start|>[NAME(key="text", other=1)]<|tool_call_end|>
"""

from dataclasses import replace

from specchat.formats.call_format import ArgumentText, CallFormat, CallText, for_types
from specchat.formats.chat_format import ChatFormat
from specchat.formats.marks import usual_marks

BEGIN, END = "<|tool_call_start|>", "<|tool_call_end|>"
CALLED = CallText(
    begin=f"{BEGIN}[",
    between="), ",
    end=f")]{END}",
    arguments=ArgumentText(
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
    is_shown = form.calls.begin == BEGIN
    calls = form.calls if is_shown else CallFormat(BEGIN, END, CALLED)
    field = form.reasoning_field or ("thinking" if form.reasoning else "")
    with_calls = replace(form, calls=calls, reasoning_field=field)
    return replace(with_calls, marks=usual_marks(with_calls))
