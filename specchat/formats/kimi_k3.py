"""Kimi K3: every part begins and ends with marks around its name.

<|open|>think<|sep|>reasoning<|close|>think<|sep|><|open|>response<|sep|>answer<|close|>response
<|sep|><|open|>tools<|sep|><|open|>call tool="NAME" index="1"<|sep|><|open|>argument key="KEY"
type="string"<|sep|>value<|close|>argument<|sep|><|close|>call<|sep|><|close|>tools<|sep|>
"""

import json
import re
from dataclasses import replace

from specchat.formats.call_format import (
    ANY_INDEX,
    JSON_TYPES,
    ArgumentText,
    Call,
    CallFormat,
    CallText,
    Tools,
    for_types,
)
from specchat.formats.call_parsers import TaggedArguments, sections
from specchat.formats.chat_format import ChatFormat, Wrapping
from specchat.formats.marks import Mark, Marks


def _opened(name: str) -> str:
    return f"<|open|>{name}<|sep|>"


def _closed(name: str) -> str:
    return f"<|close|>{name}<|sep|>"


CALL = re.compile(r'<\|open\|>call tool="(?P<name>[^"<]+)"[^<]*<\|sep\|>')
ARGUMENT = re.compile(
    r'<\|open\|>argument key="(?P<key>[^"<]+)"(?: type="(?P<type>\w+)")?[^<]*<\|sep\|>'
)
WHOLE = re.compile(r"<\|open\|>json[^<]*<\|sep\|>")
TAGGED = TaggedArguments(CALL, _closed("call"), ARGUMENT, _closed("argument"))
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
CALL_BEGIN, ARGUMENT_BEGIN = '<|open|>call tool="', '<|open|>argument key="'
NUMBERED = f'" index="{ANY_INDEX}"<|sep|>'
CALLED = CallText(
    lead=_opened("response") + _closed("response"),
    begin=_opened("tools") + CALL_BEGIN,
    between=_closed("call") + CALL_BEGIN,
    end=_closed("call") + _closed("tools") + _closed("message"),
    arguments=ArgumentText(
        first=NUMBERED + ARGUMENT_BEGIN,
        following=ARGUMENT_BEGIN,
        none=NUMBERED,
        before={kind: f'" type="{kind}"<|sep|>' for kind in JSON_TYPES},
        after=for_types(_closed("argument")),
    ),
)


def complete(form: ChatFormat) -> ChatFormat:
    """Return the format with named parts."""
    return replace(
        form,
        marks=MARKS,
        reasoning=Wrapping(_opened("think"), _closed("think")),
        content=Wrapping(_opened("response"), _closed("response")),
        ends=("<|end_of_msg|>",),
        calls=CallFormat(_opened("tools"), _closed("tools"), CALLED, read_calls),
    )


def read_calls(raw: str, tools: Tools) -> list[Call] | None:
    """Return the calls in a text; the arguments may also be a single JSON object."""
    found = TAGGED(raw, tools) or []
    bodies = [body for _, body in sections(raw, CALL, _closed("call"))]
    for index, body in enumerate(bodies):
        for _, whole in sections(body, WHOLE, _closed("json")):
            found[index] = Call(found[index].name, json.loads(whole))
    return found or None
