"""gpt-oss: messages in channels, each with a header that names its kind (OpenAI's harmony format).

<|channel|>analysis<|message|>reasoning<|end|><|start|>assistant<|channel|>final<|message|>answer
<|channel|>commentary to=functions.NAME <|constrain|>json<|message|>{arguments}<|call|>
"""

import re
from dataclasses import replace
from typing import Any

from specchat.formats.call_format import CallFormat, CallText
from specchat.formats.call_parsers import NamedJson
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.marks import Mark, Marks, State

CALL = re.compile(
    r"to=(?:functions\.)?(?P<name>[\w.-]{1,256}+)[^{]{0,200}?<\|message\|>\s*+(?={|$)"
)
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
CALLED = CallText(
    begin="<|channel|>commentary to=functions.", named=" <|constrain|>json<|message|>", end=""
)
"""What the model writes; the template shows an older form."""


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
        calls=CallFormat("<|channel|>commentary to=", "<|call|>", CALLED, NamedJson(CALL)),
        arrange=_arrange,
    )


def _decide(header: str) -> State:
    if re.search(r"to=(?!assistant|user)", header):
        return "call"
    return "reasoning" if "analysis" in header else "answer"


def _arrange(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Drop the content of messages with both calls and reasoning, as the template refuses them."""
    for message in messages:
        if message.get("thinking") and message.get("tool_calls"):
            message.pop("content")
    return messages
