"""Solar Open: each part is a separate message.

<|think|>reasoning<|end|><|begin|>assistant<|content|>answer<|end|>
<|tool_calls|><|tool_call:begin|>ID<|tool_call:name|>NAME<|tool_call:args|>{arguments}<|tool_call:end|>
"""

from dataclasses import replace

from specchat.formats.call_format import ANY_ID, CallFormat, CallText
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.marks import Mark, Marks

PARTS = (
    Mark("<|think|>", "reasoning"),
    Mark("<|begin|>assistant", "start"),
    Mark("<|content|>", "answer"),
    Mark("<|tool_calls|>", "call"),
)
MARKS: Marks = {
    "start": PARTS,
    "reasoning": (Mark("<|end|>", "start"), *PARTS[1:]),
    "answer": (*PARTS[1:], Mark("<|end|>", "aside")),
    "aside": PARTS,
    "call": (Mark("<|calls|>", "aside"), Mark("<|end|>", "aside")),
}
START = f"<|tool_call:begin|>{ANY_ID}<|tool_call:name|>"
CALLED = CallText(
    begin=f"<|tool_calls|>{START}",
    named="<|tool_call:args|>",
    between=f"<|tool_call:end|>{START}",
    end="<|tool_call:end|>",
)


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with its parts. `<|end|>` ends reasoning too, so it does not end a turn."""
    return replace(
        form,
        marks=MARKS,
        reasoning=Wrapping("<|think|>", "<|end|><|begin|>assistant"),
        content=Wrapping("<|content|>"),
        ends=("<|calls|>", "<|flush|>"),
        calls=CallFormat("<|tool_calls|>", "<|calls|>", CALLED),
    )
