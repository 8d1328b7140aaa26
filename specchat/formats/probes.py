"""Rendering a template with made-up messages."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from specchat.formats.template import Variables, render_all, variables_of

SYSTEM, QUESTION, ANSWER, NEXT = "Sx7 guide", "Qx7 ask", "Ax7 reply", "Nx7 follow"
REMINDER = "Mx7 remind"
REASONING, RESULT = "Rx7 muse", "Tx7 result"
FUNCTION, OTHER_FUNCTION = "fx7_first", "gx7_second"
KEY, OTHER_KEY = "kx7_one", "lx7_two"
VALUE, OTHER_VALUE = "vx7a", "wx7b"
NUMBER = 70707
CALL_ID, OTHER_CALL_ID = "callx7777", "callx8888"
LONGEST_PROBE = 100_000
"""Rendered probes with more characters are ignored; those of real templates have under 20,000."""
FIELDS = ("reasoning_content", "thinking", "reasoning")

MARK = r"(?:<[^<>\s][^<>\n]{0,60}>|\[/?[A-Z][A-Z_ ]*\]|◁[^◁▷\n]{1,30}▷|[\[\]][~a-z!]{1,6}[\[\]])"
"""A mark: a tag, an upper-case name in square brackets, or MiniMax's `]~b]` and `[e~[`."""


def user(content: str) -> dict[str, Any]:
    """Return a question."""
    return {"role": "user", "content": content}


def system(content: str = SYSTEM) -> dict[str, Any]:
    """Return a system prompt."""
    return {"role": "system", "content": content}


def assistant(content: str = ANSWER, **fields: Any) -> dict[str, Any]:
    """Return an answer."""
    return {"role": "assistant", "content": content, **fields}


def call(
    name: str = FUNCTION, arguments: Mapping[str, Any] | str | None = None, number: str = CALL_ID
) -> dict[str, Any]:
    """Return a tool call, by default with two string arguments."""
    given = {KEY: VALUE, OTHER_KEY: OTHER_VALUE} if arguments is None else arguments
    return {"id": number, "type": "function", "function": {"name": name, "arguments": given}}


def _tool(name: str) -> dict[str, Any]:
    properties = {key: {"type": "string", "description": "d"} for key in (KEY, OTHER_KEY)}
    parameters = {"type": "object", "properties": properties, "required": []}
    function = {"name": name, "description": "d", "parameters": parameters}
    return {"type": "function", "function": function}


MADE_UP = {"date_string": "01 Jan 2000", "datetime": "Jan 01 2000", "functions": ""}
"""Variables that templates of some families expect."""
TOOLS = [_tool(FUNCTION), _tool(OTHER_FUNCTION)]


@dataclass(slots=True)
class Probes:
    """A template and its rendered texts by case; "" for a case that failed."""

    template: str
    bos: str
    eos: str
    texts: dict[str, str] = field(default_factory=dict)
    variables: Mapping[str, Sequence[str | int]] = field(default_factory=dict)
    fields: tuple[str, ...] = FIELDS[:1]
    """Names that the template uses for message fields, which are therefore not switches."""

    def look(self) -> None:
        """Find the template's variables."""
        self.variables = variables_of(self.template)

    def render(self, wanted: Mapping[str, Variables]) -> None:
        """Render several cases and store their texts by name."""
        fixed = {**MADE_UP, "bos_token": self.bos, "eos_token": self.eos}
        given = [{**fixed, **each} for each in wanted.values()]
        rendered = render_all(self.template, given)
        # perhaps a busy machine caused timeouts
        if not any(isinstance(text, str) for text in rendered):
            rendered = render_all(self.template, given)
        for name, text in zip(wanted, rendered, strict=True):
            is_usable = isinstance(text, str) and len(text) <= LONGEST_PROBE
            self.texts[name] = str(text) if is_usable else ""

    def __getitem__(self, name: str) -> str:
        return self.texts[name]


def conversation(*messages: Mapping[str, Any], generate: bool = False, **more: Any) -> Variables:
    """Return the template variables for some messages."""
    return {"messages": list(messages), "add_generation_prompt": generate, **more}


def common_start(first: Sequence[object], second: Sequence[object]) -> int:
    """Return the length of the common beginning of two texts, or of two lists."""
    shorter = min(len(first), len(second))
    return next((at for at in range(shorter) if first[at] != second[at]), shorter)


def common_end(first: str, second: str) -> int:
    """Return the length of the common suffix."""
    return common_start(first[::-1], second[::-1])


def closer_of(opener: str) -> str:
    """Return the mark that closes an opening tag; "" for anything else."""
    if opener.startswith(("</", "[/")):
        return ""
    return opener[0] + "/" + opener[1:] if opener[0] in "<[◁" else ""


def is_closer(mark: str, opener: str) -> bool:
    """Return True if `mark` closes the mark `opener`."""
    is_named = "START" in opener and mark == opener.replace("START", "END")
    return is_named or mark == closer_of(opener)


def marks_in(text: str) -> list[str]:
    """Return the marks in a text, in order."""
    return re.findall(MARK, text)
