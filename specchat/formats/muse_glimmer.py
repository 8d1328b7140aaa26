"""Muse Glimmer: each message names its recipient, which is the model itself, the user or a tool.

to=self<|message|>reasoning<|eom|><|start|>assistant to=user<|message|>answer<|eot|>
"""

from dataclasses import replace

from specchat.formats.call_format import (
    ANY_NAME,
    ArgumentText,
    CallFormat,
    CallText,
    for_types,
)
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.marks import Mark, Marks, State

MESSAGE_END = (Mark("<|eom|>", "start"), Mark("<|start|>", "header"))
MARKS: Marks = {
    "start": (Mark(" to=", "header"), Mark("to=", "header"), Mark("<|start|>", "header")),
    "header": (Mark("<|message|>", "answer"),),
    "reasoning": MESSAGE_END,
    "answer": MESSAGE_END,
    "call": (Mark("<|eom|>", "start"),),
}
BEGIN, CALL_BEGIN = "<atem:function_calls>", '\n<atem:invoke name="'
END = "</atem:invoke>\n</atem:function_calls>"
CALLED = CallText(
    lead=f" to={ANY_NAME}<|message|>",
    begin=BEGIN + CALL_BEGIN,
    between=f"{END}<|eom|><|start|>assistant to={ANY_NAME}<|message|>{BEGIN}{CALL_BEGIN}",
    end=END,
    arguments=ArgumentText(
        first='">\n<atem:parameter name="',
        following='<atem:parameter name="',
        none='">\n',
        before=for_types('">'),
        after=for_types("</atem:parameter>\n"),
    ),
)


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with recipients."""
    return replace(
        form,
        marks=MARKS,
        decide=_decide,
        reasoning=Wrapping(" to=self<|message|>", "<|eom|><|start|>assistant"),
        content=Wrapping(" to=user<|message|>"),
        ends=("<|eot|>",),
        calls=CallFormat(BEGIN, "", CALLED),
    )


def _decide(header: str) -> State:
    recipient = header.rpartition("to=")[2].strip()
    return {"self": "reasoning", "user": "answer", "": "answer"}.get(recipient, "call")  # type: ignore[return-value]
