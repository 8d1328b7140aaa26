"""GigaChat 3: a call is a message with its own role.

answer<|message_sep|>

function call<|role_sep|>
{"name": NAME, "arguments": {arguments}}
"""

from dataclasses import replace

from specchat.formats.call_format import CallFormat, CallText
from specchat.formats.chat_format import ChatFormat
from specchat.formats.marks import Mark, usual_marks

BEGIN = "<|message_sep|>\n\nfunction call<|role_sep|>"
CALLED = CallText(begin=f'{BEGIN}\n{{"name": "', named='", "arguments": ', end="}")


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with calls.

    `<|message_sep|>` also comes before a call, so only the vocabulary's end tokens end the turn.
    """
    with_calls = replace(form, ends=(), calls=CallFormat(BEGIN, "", CALLED))
    marks = dict(usual_marks(with_calls))
    marks["aside"] = marks["answer"]
    marks["answer"] = (*marks["answer"], Mark("<|message_sep|>", "aside"))
    return replace(with_calls, marks=marks)
