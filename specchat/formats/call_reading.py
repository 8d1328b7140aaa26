"""Reading the calls that a model writes, by the parser that follows from their format.

White space between the words of a call's text is free. `call_parsers.py` has the parsers.
"""

import json
import re
from typing import Any

from specchat.decoding.chunk import ToolCall
from specchat.formats.call_format import (
    ANY_ID,
    ANY_INDEX,
    ANY_NAME,
    ArgumentText,
    CallFormat,
    CallText,
    Parser,
    Tools,
)
from specchat.formats.call_parsers import (
    NAME_PATTERN,
    NamedJson,
    TaggedArguments,
    names_of,
    read_json,
    read_python,
)
from specchat.formats.probes import MARK

LONGEST_CALL = 500_000
"""The most characters of a call; a longer one is treated as text."""
NUMBERED_ID = "call{:05}"
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|(?P<open>\\?\Z))', re.DOTALL)
"""A string of JSON; one that never closes, `open`, goes to the end, so that no search repeats."""
MORE = "\0"
"""Stands for the missing rest of an answer that was cut short; otherwise a call cut before its
arguments would look like a call without any."""
IN_BRACKETS = re.compile(r"\[[A-Z_]+\]")
"""Marks such as `[ARGS]`, whose brackets are not JSON's."""
TRAILING = " \n\t`"
"""White space and code fences, which models write after JSON."""


class CallReader:
    """Reads calls of a format; `tools` are those offered to the model."""

    def __init__(self, form: CallFormat, tools: Tools) -> None:
        """Choose the parser: the family's own, or the one for the form of the calls' text."""
        self._form, self._tools = form, tools
        self._parse = form.parser or parser_of(form.text)

    def is_in_string(self, raw: str) -> bool:
        """Return True if a text ends within a string of JSON that begins somewhere in it."""
        is_json = self._parse is read_json or isinstance(self._parse, NamedJson)
        start = raw.find("{") if is_json else -1
        if start < 0:
            return False
        return any(found["open"] is not None for found in STRING.finditer(raw, start))

    def is_begun(self, raw: str) -> bool:
        """Return True if a text is the beginning of a call, not prose that names the mark.

        In formats where a name is all that follows, it must be that of an offered tool.
        """
        form = self._form
        opening = form.opening if form.is_bare else form.text.fixed_begin
        mark, fixed, begun = ("".join(each.split()) for each in (form.begin, opening, raw))
        if not begun.startswith(mark):
            return True  # a header, or another mark of the family
        if self._parse is read_json and not form.is_bare:
            return begun.removeprefix(mark)[:1] in {"", "`", "{", "["}  # fields have any order
        if not fixed.startswith(mark):
            return True
        is_named = form.is_bare or fixed == mark
        called = [fixed + name for name in names_of(self._tools)] if is_named else [fixed]
        return any(begun.startswith(each) or each.startswith(begun) for each in called)

    def tail(self, raw: str) -> int:
        """Return the start of text after the calls, or the length of `raw` if there is none.

        Only formats without an end mark can have such text.
        """
        written = IN_BRACKETS.sub(lambda mark: " " * len(mark[0]), raw)
        last = max(written.rfind("}"), written.rfind("]")) + 1
        has_text = not self._form.end and last > 0 and raw[last:].strip(TRAILING)
        return last if has_text else len(raw)

    def read(self, raw: str, num_before: int, *, is_cut: bool = False) -> list[ToolCall] | None:
        """Return the calls in a text; None if it cannot be parsed. The last call holds the text.

        `is_cut` means that the answer was cut short, so the text is incomplete.
        """
        if len(raw) > LONGEST_CALL:
            return None
        try:
            found = (self._parse and self._parse(raw + MORE * is_cut, self._tools)) or []
            arguments = [_as_text(call.arguments) for call in found]
        except (ValueError, KeyError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None  # MemoryError: nested too deeply for Python's parser
        known = names_of(self._tools) if self._form.is_bare else set()
        if not found or not all(call.name and (not known or call.name in known) for call in found):
            return None
        last = len(found) - 1
        return [
            ToolCall(
                _well_formed(call.name),
                arguments[index],
                _well_formed(call.id) or NUMBERED_ID.format(num_before + index),
                raw if index == last else "",
            )
            for index, call in enumerate(found)
        ]


def _as_text(arguments: Any) -> str:
    """Return arguments as JSON. Raises ValueError or TypeError if they are not a JSON object."""
    if not isinstance(arguments, dict):
        raise TypeError(arguments)
    return _well_formed(json.dumps(arguments, ensure_ascii=False, allow_nan=False))


def _well_formed(text: str) -> str:
    """Return a text with U+FFFD in place of lone surrogates, which JSON escapes can produce."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def parser_of(text: CallText) -> Parser | None:
    """Return the parser of calls with a text, in any white space; None for an unknown form."""
    arguments = text.arguments
    if re.search(r'[:{]\s*"$', text.begin):
        return read_json
    if arguments is None:
        return _named_json(text)
    if text.begin.rstrip().endswith("[") and arguments.first == "(":
        return read_python
    return _tagged_arguments(text, arguments) if "<" in arguments.following else None


def _named_json(text: CallText) -> NamedJson:
    """Return the parser of a name and JSON.

    For `[TOOL_CALLS]find[ARGS]{"what": 1}`, it looks for `[TOOL_CALLS]`, the name, and `[ARGS]`.
    """
    named = _pattern(text.named)
    if ANY_ID in text.named:
        before, _, after = text.named.partition(ANY_ID)
        named = rf"(?:{_pattern(before + ANY_ID)})?{_pattern(after)}"
    return NamedJson(_compiled(rf"{_opening(text, text.named)}\s*+{named}\s*+(?={{|$)"))


def _tagged_arguments(text: CallText, arguments: ArgumentText) -> TaggedArguments:
    """Return the parser of arguments in tags.

    In `<call>NAME <key>KEY</key><value>VALUE</value>...` the tags are whatever surrounds the name,
    keys and values: `<call>` starts a call, `<key>` a name, `</key><value>` a value; `</value>`
    ends a value.
    """
    named = arguments.first.removesuffix(arguments.following)
    assigned = arguments.before["string"] + arguments.quotes
    after = arguments.quotes + arguments.after["string"]
    end = re.match(rf"\s*({MARK})", text.end)
    return TaggedArguments(
        _compiled(_opening(text, named) + _pattern(named)),
        end[1] if end else "",
        _compiled(
            rf"{_pattern(arguments.following)}(?P<key>[^<>\"]{{1,256}}?){_assigned(assigned)}"
        ),
        after.strip(),
        (assigned[len(assigned.rstrip()) :], after[: len(after) - len(after.lstrip())]),
    )


def _opening(text: CallText, named: str) -> str:
    """Return an expression for a call's last mark, with an id if one is behind it, and its name.

    Where a quote or tag ends the name, it may be any text.
    """
    before, number, begin = text.begin.rpartition(ANY_ID)
    marks = [part[max(part.rfind("<"), part.rfind("["), 0) :] for part in (before, begin)]
    begin = marks[0] + number + begin if number else marks[1]
    name = r"[^\"<]{1,256}+" if named.lstrip()[:1] in {'"', "<"} else NAME_PATTERN
    return rf"{_pattern(begin)}\s*+(?P<name>{name})"


def _assigned(text: str) -> str:
    """Return an expression for the text between an argument's name and its value.

    If it ends a tag, the tag may have other attributes: some models add them, and templates write
    the value's type there, as in `string="true">`.
    """
    ends_tag = re.fullmatch(r"[^<>]+>\s*", text)
    return rf"{re.escape(text[0])}[^<>]*>" if ends_tag else _pattern(text)


def _pattern(text: str) -> str:
    """Return an expression for a text with any white space between its words."""
    return r"\s*+".join(map(re.escape, text.split()))


def _compiled(expression: str) -> re.Pattern[str]:
    """Return a pattern with expressions in place of what stands for ids, numbers and names."""
    number = r"[^<\[]{0,256}"
    expression = expression.replace(ANY_ID, f"(?P<id>{number})", 1).replace(ANY_ID, number)
    return re.compile(expression.replace(ANY_INDEX, r"\d+").replace(ANY_NAME, NAME_PATTERN))
