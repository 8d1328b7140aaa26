"""Kimi K3: every part is opened and closed by marks around its name.

<|open|>think<|sep|>reasoning<|close|>think<|sep|><|open|>response<|sep|>answer<|close|>response
<|sep|><|open|>tools<|sep|><|open|>call tool="NAME" index="1"<|sep|><|open|>argument key="KEY"
type="string"<|sep|>value<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""

import json
import re
from dataclasses import replace
from typing import Any

from specchat.chat.formats.call_syntax import Call, CallSyntax, Tools, typed_value
from specchat.chat.formats.chat_format import ChatFormat, Wrapping
from specchat.chat.formats.marks import Mark, Marks


def _opened(name: str) -> str:
    return f"<|open|>{name}<|sep|>"


def _closed(name: str) -> str:
    return f"<|close|>{name}<|sep|>"


CALL = re.compile(
    r'<\|open\|>call tool="(?P<name>[^"]+)"[^<]*<\|sep\|>(?P<body>.*?)<\|close\|>call'
)
ARGUMENT = re.compile(
    r'<\|open\|>argument key="(?P<key>[^"]+)"(?: type="(?P<type>\w+)")?[^<]*<\|sep\|>'
    r"(?P<value>.*?)<\|close\|>argument<\|sep\|>",
    re.DOTALL,
)
WHOLE = re.compile(r"<\|open\|>json[^<]*<\|sep\|>(?P<value>.*?)<\|close\|>json<\|sep\|>", re.DOTALL)
PARTS = (Mark(_opened("response"), "answer"), Mark(_opened("tools"), "call"))
AFTER = (Mark(_closed("message"), "aside"), Mark("<|end_of_msg|>", "aside"))
MARKS: Marks = {
    "start": (
        Mark(_opened("think"), "reasoning"),
        *PARTS,
        Mark(_closed("think"), "answer"),
        *AFTER,
    ),
    "reasoning": (Mark(_closed("think"), "answer"), *PARTS),
    "answer": (*PARTS, Mark(_closed("response"), "aside"), *AFTER),
    "aside": PARTS,
    "call": (Mark(_closed("tools"), "aside"),),
}


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with named parts."""
    return replace(
        form,
        marks=MARKS,
        reasoning=Wrapping(_opened("think"), _closed("think")),
        content=Wrapping(_opened("response"), _closed("response")),
        ends=("<|end_of_msg|>",),
        calls=CallSyntax(_opened("tools"), _closed("tools"), read_calls),
    )


def read_calls(raw: str, _: Tools) -> list[Call] | None:
    """Return the calls in a text. Raises ValueError if it cannot be read."""
    found = []
    for call in re.finditer(CALL.pattern, raw, re.DOTALL):
        arguments: Any = {
            each["key"]: typed_value(each["value"], each["type"])
            for each in ARGUMENT.finditer(call["body"])
        }
        if whole := WHOLE.search(call["body"]):
            arguments = json.loads(whole["value"])
        found.append(Call(call["name"], arguments))
    return found or None
