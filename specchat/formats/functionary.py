"""Functionary 3.2: each message begins with its recipient, "all" for the user.

>>>all
answer>>>NAME
{arguments}
"""

import re
from dataclasses import replace

from specchat.formats.call_format import CallFormat, CallText
from specchat.formats.call_parsers import NamedJson
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.marks import Mark, Marks, State

CALL = re.compile(r"(?<![\w.-])(?P<name>[\w.-]{1,256}+)\n\s*+(?={|$)")
CALLED = CallText(begin="", named="\n", between=">>>", end="")
MARKS: Marks = {
    "header": (Mark("\n", "answer"),),
    "answer": (Mark(">>>", "header"),),
    "call": (Mark(">>>", "header"),),
}


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with recipients. The prompt ends with `>>>`, so answers begin with one."""
    return replace(
        form,
        marks=MARKS,
        decide=_decide,
        first_state="header",
        content=Wrapping("all\n"),
        calls=CallFormat(">>>", "", CALLED, NamedJson(CALL)),
    )


def _decide(header: str) -> State:
    return "answer" if header.replace(">>>", "").strip() == "all" else "call"
