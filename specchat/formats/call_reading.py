"""Reading tool calls: JSON, a name with JSON, a tag per argument, or Python syntax.

The parser follows from the format's description, in any white space, or is the family's own.
"""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from specchat.decoding.chunk import ToolCall
from specchat.formats.call_format import (
    ANY_ID,
    ANY_INDEX,
    ANY_NAME,
    KEY_AGAIN,
    ArgumentText,
    Call,
    CallFormat,
    CallText,
    Parser,
    Tools,
)
from specchat.formats.probes import MARK

LONGEST_CALL = 500_000
"""The most characters of a call; a longer one is treated as text."""
MAX_FAILURES = 100
"""The most brackets to try that turn out not to start valid JSON, as each try costs time."""
NAME_PATTERN = r"[\w.:-]{1,256}+"
"""A function name; bounded and possessive, so that searching a long text takes linear time."""
NAME_FIELDS = ("name", "tool_name", "function_name", "function")
ARGUMENT_FIELDS = ("arguments", "parameters", "args", "input")
ID_FIELDS = ("id", "tool_call_id", "call_id")
NUMBERED_ID = "call{:05}"
QUOTED = ("<![CDATA[", "]]>")
"""XML's quotes around text that may contain tags."""
STRING = re.compile(r'"[^"\\]*+(?:\\.[^"\\]*+)*+"', re.DOTALL)
BEGINNING = re.compile(r"[{\[]")
SURE_BEGINNING = re.compile(r'\{\s*+"|\[\s*+\{\s*+"')
"""A start that must be JSON, not a bracket in prose."""
MORE = "\0"
"""Stands for the missing rest of an answer that was cut short; otherwise a call cut before its
arguments would look like a call without any."""
TRAILING = " \n\t`"
"""White space and code fences, which models write after JSON."""


class CallReader:
    """Reads calls of a format; `tools` are those offered to the model."""

    def __init__(self, form: CallFormat, tools: Tools) -> None:
        """Choose the parser: the family's own, or the one for the form of the calls' text."""
        self._form, self._tools = form, tools
        self._parse = form.parser or (parser_of(form.text) if form.text else read_json)

    @property
    def is_json(self) -> bool:
        """True if the arguments are JSON."""
        return self._parse is read_json or isinstance(self._parse, NamedJson)

    def tail(self, raw: str) -> int:
        """Return the start of text after the calls, or the length of `raw` if there is none.

        Only formats without an end mark can have such text.
        """
        last = max(raw.rfind("}"), raw.rfind("]")) + 1
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


def read_json(raw: str, tools: Tools) -> list[Call] | None:
    """Return calls written as JSON objects: alone, in a list, or inside another object."""
    found = [call for value in json_values(raw) for call in _calls_in(value, tools)]
    return found or None


def in_string(text: str) -> bool:
    """Return True if a text ends within a string of JSON that begins somewhere in it."""
    start = text.find("{")
    return start >= 0 and '"' in STRING.sub("", text[start:])


def json_values(text: str) -> Iterator[Any]:
    """Yield the outermost JSON objects and lists in a text.

    Raises ValueError if one is cut short or malformed, because its inner values are not calls.
    """
    decoder, position, num_failures = json.JSONDecoder(strict=False), 0, 0
    while (found := BEGINNING.search(text, position)) and num_failures < MAX_FAILURES:
        try:
            value, position = decoder.raw_decode(text, found.start())
        except ValueError:
            if SURE_BEGINNING.match(text, found.start()):
                raise
            position, num_failures = found.start() + 1, num_failures + 1
            continue
        yield value


def sections(text: str, opening: re.Pattern[str], end: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each match of `opening` with the text up to the next `end`, or to the end for "".

    Stops at an opening without an end, so that the text is scanned only once.
    """
    position = 0
    while found := opening.search(text, position):
        stop = text.find(end, found.end()) if end else len(text)
        if stop < 0:
            return
        yield found, text[found.end() : stop]
        position = stop + len(end)


def _calls_in(value: Any, tools: Tools) -> Iterator[Call]:
    if isinstance(value, list):
        for each in value:
            yield from _calls_in(each, tools)
        return
    if not isinstance(value, dict):
        return
    inner = value.get("function")
    source = inner if isinstance(inner, dict) else value
    name = next((source[key] for key in NAME_FIELDS if isinstance(source.get(key), str)), "")
    arguments = next((source[key] for key in ARGUMENT_FIELDS if key in source), None)
    if name and (arguments is not None or name in names_of(tools) or len(source) == 1):
        number = next((value[key] for key in ID_FIELDS if key in value), "")
        yield Call(name, _object(arguments), str(number))
    elif len(value) == 1:  # Apertus writes the name as the key
        ((key, arguments),) = value.items()
        if isinstance(arguments, dict) and (not tools or key in names_of(tools)):
            yield Call(key, arguments)


def _object(arguments: Any) -> Any:
    """Return arguments, parsed if the model wrote them as a JSON string."""
    if arguments is None or arguments == "":
        return {}
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def names_of(tools: Tools) -> set[str]:
    """Return the names of the offered functions."""
    return {str(_member(tool, "function", "name")) for tool in tools}


def _member(value: Any, *path: str) -> Any:
    """Return the value at a path in nested objects; None if it does not exist."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


@dataclass(frozen=True, slots=True)
class NamedJson:
    """Parses calls that are a name followed by JSON arguments, such as `<function=f>{"a": 1}`.

    `pattern` matches up to the arguments; it has the group `name`, and optionally `id`.
    """

    pattern: re.Pattern[str]

    def __call__(self, raw: str, _: Tools) -> list[Call] | None:
        """Return the calls in a text. Raises ValueError for arguments that are not JSON."""
        decoder, position = json.JSONDecoder(strict=False), 0
        found: list[Call] = []
        while match := self.pattern.search(raw, position):
            arguments: Any = {}
            position = match.end()
            if match.end() < len(raw) and raw[match.end()] == "{":
                arguments, position = decoder.raw_decode(raw, match.end())
            groups = match.groupdict()
            found.append(Call(groups["name"].strip(), arguments, (groups.get("id") or "").strip()))
        return found or None


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """Parses calls with a tag for each argument: `<call name="f"><arg name="a">1</arg></call>`.

    `call` matches the start of a call and has the group `name`; `argument` matches the start of an
    argument and has the group `key`, and optionally `type`. `KEY_AGAIN` in `value_end` stands for
    the key. `space` is the white space that the model writes before and after values.
    """

    call: re.Pattern[str]
    call_end: str
    argument: re.Pattern[str]
    value_end: str
    space: tuple[str, str] = ("", "")

    def __call__(self, raw: str, tools: Tools) -> list[Call] | None:
        """Return the calls in a text; values are parsed as JSON unless declared as strings."""
        found = []
        for opening, body in sections(raw, self.call, self.call_end):
            name = opening["name"].strip()
            found.append(Call(name, self._arguments(body, argument_types(tools, name))))
        return found or None

    def _arguments(self, body: str, types: Mapping[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        position = 0
        while opening := self.argument.search(body, position):
            key = opening["key"].strip()
            end = self.value_end.replace(KEY_AGAIN, key)
            is_quoted = body.startswith(QUOTED[0], opening.end())
            quoted = body.find(QUOTED[1], opening.end()) if is_quoted else 0
            stop = body.find(end, max(quoted, opening.end()))
            if stop < 0:
                raise ValueError(body)
            value = body[opening.end() : stop].removeprefix(self.space[0])
            if is_quoted:
                value = value.removeprefix(QUOTED[0]).removesuffix(QUOTED[1])
            kind = types.get(key, opening.groupdict().get("type"))
            arguments[key] = typed_value(value.removesuffix(self.space[1]), kind)
            position = stop + len(end)
        return arguments


def argument_types(tools: Tools, name: str) -> dict[str, Any]:
    """Return the JSON types that a tool declares, by argument name."""
    for tool in tools:
        if _member(tool, "function", "name") == name:
            properties = _member(tool, "function", "parameters", "properties")
            declared = properties if isinstance(properties, Mapping) else {}
            return {key: _member(each, "type") for key, each in declared.items()}
    return {}


def typed_value(text: str, kind: Any) -> Any:
    """Return the value of a tagged argument: unchanged if declared as a string, else parsed.

    Some models write Python literals instead of JSON. Text that is neither stays a string.
    """
    if kind == "string":
        return text
    for parsed in (partial(json.loads, strict=False), ast.literal_eval):
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = parsed(text.strip())
            # fails for Python literals without a JSON equivalent
            json.dumps(value, allow_nan=False)
            return value
    return text


def read_python(raw: str, _: Tools) -> list[Call] | None:
    """Return calls written in Python syntax: `[name(argument="value"), ...]`."""
    begin, end = raw.find("["), raw.rfind("]")
    if begin < 0 or end < begin:
        return None
    tree = ast.parse(raw[begin : end + 1].strip(), mode="eval").body
    calls = tree.elts if isinstance(tree, ast.List) else []
    found = []
    for call in calls:
        if not isinstance(call, ast.Call) or call.args:
            return None
        values = {word.arg: _literal(word.value) for word in call.keywords if word.arg}
        found.append(Call(ast.unparse(call.func), values))
    return found or None


def _literal(node: ast.expr) -> Any:
    """Return the value of a Python literal; true, false and null are allowed too."""

    class Words(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            words = {"true": True, "false": False, "null": None}
            return ast.Constant(words[node.id]) if node.id in words else node

    return ast.literal_eval(Words().visit(node))


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
    expression = expression.replace(ANY_ID, r"(?P<id>[^<\[]*+)", 1).replace(ANY_ID, r"[^<\[]*+")
    return re.compile(expression.replace(ANY_INDEX, r"\d+").replace(ANY_NAME, NAME_PATTERN))
