"""MiniMax M3: a mark before each tag of a call; an argument's tag is its name.

<mm:think>reasoning</mm:think>answer]<]minimax[>[<tool_call>
]<]minimax[>[<invoke name="NAME">]<]minimax[>[<KEY>value]<]minimax[>[</KEY>]<]minimax[>[</invoke>
]<]minimax[>[</tool_call>
"""

import re
from dataclasses import replace

from specchat.chat.formats.call_syntax import KEY_AGAIN, CallSyntax, TaggedArguments
from specchat.chat.formats.chat_format import ChatFormat
from specchat.chat.formats.marks import Mark, usual_marks

SPACE = "]<]minimax[>["
CALLS = TaggedArguments(
    re.compile(rf'{re.escape(SPACE)}<invoke name="(?P<name>[^"<]+)">'),
    f"{SPACE}</invoke>",
    re.compile(rf"{re.escape(SPACE)}<(?P<key>[\w.-]+)>"),
    f"{SPACE}</{KEY_AGAIN}>",
)


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with calls."""
    calls = CallSyntax(f"{SPACE}<tool_call>", f"{SPACE}</tool_call>", CALLS)
    with_calls = replace(form, calls=calls)
    marks = dict(usual_marks(with_calls))
    marks["start"] = (*marks["start"], Mark("</mm:think>", "answer"))  # closed at once
    return replace(with_calls, marks=marks)
