"""gpt-oss: messages in channels, each with a header that says what it is (OpenAI's harmony format).

<|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>answer
<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{arguments}<|call|>
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from specchat.chat.conversation import ChatMessage
from specchat.chat.formats.call_syntax import CallSyntax, NamedJson
from specchat.chat.formats.chat_format import ChatFormat, Wrapping
from specchat.chat.formats.marks import Mark, Marks, State

CALL = re.compile(r"to=(?:functions\.)?(?P<name>[\w.-]+)[^{]{0,200}?<\|message\|>\s*(?={|$)")
HEADERS = (
    Mark("<|channel|>", "header"),
    Mark("<|start|>", "header"),
    Mark(" to=", "header"),
)
MESSAGE_ENDS = (
    Mark("<|end|>", "start"),
    Mark("<|channel|>", "header"),
    Mark("<|start|>", "header"),
)
MARKS: Marks = {
    "start": (*HEADERS, Mark("<|end|>", "start")),
    "header": (Mark("<|message|>", "answer"), Mark("<|channel|>", "header")),
    "reasoning": MESSAGE_ENDS,
    "answer": MESSAGE_ENDS,
    "call": (Mark("<|end|>", "start"), Mark("<|call|>", "aside")),
}


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with channels."""
    return replace(
        form,
        marks=MARKS,
        decide=_decide,
        reasoning=Wrapping("<|channel|>analysis<|message|>", "<|end|><|start|>assistant"),
        content=Wrapping("<|channel|>final<|message|>"),
        reasoning_field="thinking",
        ends=("<|return|>", "<|call|>"),
        calls=CallSyntax("<|channel|>commentary to=", "<|call|>", NamedJson(CALL)),
        adjust=_adjust,
    )


def _decide(header: str) -> State:
    if re.search(r"to=(?!assistant|user)", header):
        return "call"
    return "reasoning" if "analysis" in header else "answer"


def _adjust(message: ChatMessage) -> Mapping[str, Any]:
    """A message may have reasoning or text beside calls, not both."""
    given = dict(message)
    if given.get("thinking") and given.get("tool_calls"):
        given.pop("content")
    return given
