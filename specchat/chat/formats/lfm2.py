"""LFM2: calls in Python syntax, which some templates of the family do not show.

<|tool_call_start|>[NAME(key="text", other=1)]<|tool_call_end|>
"""

from dataclasses import replace

from specchat.chat.formats.call_syntax import CallSyntax, read_python
from specchat.chat.formats.chat_format import ChatFormat
from specchat.chat.formats.marks import usual_marks


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with calls; the template reads reasoning from the field "thinking"."""
    calls = CallSyntax("<|tool_call_start|>", "<|tool_call_end|>", read_python)
    field = form.reasoning_field or ("thinking" if form.reasoning else "")
    with_calls = replace(form, calls=calls, reasoning_field=field)
    return replace(with_calls, marks=usual_marks(with_calls))
