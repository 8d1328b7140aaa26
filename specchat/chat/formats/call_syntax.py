"""Reading tool calls as models write them: JSON, tags, tagged arguments, or Python."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeAlias

from specchat.decoding.chunk import ToolCall

Tools: TypeAlias = Sequence[Mapping[str, Any]]

LONGEST_CALL = 500_000
"""Characters; a longer one stays text."""
MAX_FAILURES = 100
"""How many braces and brackets that begin no JSON are passed over: each is read up to its fault."""
NAME_PATTERN = r"[\w.:-]{1,256}+"
"""Bounded and never taken back in part, so that a search of a long text without a call is fast."""
NAME_FIELDS = ("name", "tool_name", "function_name", "function")
ARGUMENT_FIELDS = ("arguments", "parameters", "args", "input")
ID_FIELDS = ("id", "tool_call_id", "call_id")
KEY_AGAIN = "\0"
BEGINNING = re.compile(r"[{\[]")


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """How calls are written: `begin` and `end` are the marks around them, `end` perhaps empty.

    `extract` returns the names, arguments and ids of the calls in a text that holds all of them,
    marks included; None if it cannot be read.
    """

    begin: str
    end: str
    extract: "Callable[[str, Tools], list[Call] | None]"

    def read(self, raw: str, tools: Tools, num_before: int) -> list[ToolCall] | None:
        """Return the calls in a text; None if it cannot be read as calls."""
        if len(raw) > LONGEST_CALL:
            return None
        try:
            found = self.extract(raw, tools) or []
            arguments = [_as_text(call.arguments) for call in found]
        except (ValueError, KeyError, TypeError, SyntaxError, MemoryError, RecursionError):
            return None  # deep nesting exhausts the parser's own memory, not the machine's
        if not found or not all(call.name for call in found):
            return None
        last = len(found) - 1
        return [
            ToolCall(
                _well_formed(call.name),
                arguments[place],
                _well_formed(call.id) or f"call{num_before + place:05}",
                raw if place == last else "",
            )
            for place, call in enumerate(found)
        ]


@dataclass(frozen=True, slots=True)
class Call:
    """One call. What has arguments that are no object cannot be read."""

    name: str
    arguments: Any
    id: str = ""


def _as_text(arguments: Any) -> str:
    """Return arguments as JSON. Raises ValueError or TypeError for what JSON does not know."""
    if not isinstance(arguments, dict):
        raise TypeError(arguments)
    return _well_formed(json.dumps(arguments, ensure_ascii=False, allow_nan=False))


def _well_formed(text: str) -> str:
    """Return a text with U+FFFD for each half of a character, which JSON's escapes may write."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def read_json(raw: str, tools: Tools) -> list[Call] | None:
    """Return calls written as JSON objects, alone, in a list, or wrapped in another object."""
    found = [call for value in json_values(raw) for call in _calls_in(value, tools)]
    return found or None


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists in a text, without those inside others."""
    decoder, place, num_failures = json.JSONDecoder(strict=False), 0, 0
    while (found := BEGINNING.search(text, place)) and num_failures < MAX_FAILURES:
        try:
            value, place = decoder.raw_decode(text, found.start())
        except ValueError:
            place, num_failures = found.start() + 1, num_failures + 1
            continue
        yield value


def sections(text: str, opening: re.Pattern[str], end: str) -> Iterator[tuple[re.Match[str], str]]:
    """Yield each match of an opening, and the text from there to the end; "" is that of the text.

    An opening without an end is none, and no other can follow it: so no text is read twice.
    """
    place = 0
    while found := opening.search(text, place):
        stop = text.find(end, found.end()) if end else len(text)
        if stop < 0:
            return
        yield found, text[found.end() : stop]
        place = stop + len(end)


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
    if name and (arguments is not None or name in _names(tools) or len(source) == 1):
        number = next((value[key] for key in ID_FIELDS if key in value), "")
        yield Call(name, _object(arguments), str(number))
    elif len(value) == 1:  # the name as key, as Apertus writes it
        ((key, arguments),) = value.items()
        if isinstance(arguments, dict):
            yield Call(key, arguments)


def _object(arguments: Any) -> Any:
    """Return arguments as an object; some models write it as a string."""
    if arguments is None or arguments == "":
        return {}
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _names(tools: Tools) -> set[str]:
    return {str(_member(tool, "function", "name")) for tool in tools}


def _member(value: Any, *path: str) -> Any:
    """Return what is at a path in nested objects; None if there is nothing."""
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


@dataclass(frozen=True, slots=True)
class NamedJson:
    """Reads calls whose name stands outside the JSON of the arguments; `pattern` finds both."""

    pattern: re.Pattern[str]

    def __call__(self, raw: str, _: Tools) -> list[Call] | None:
        """Return the calls in a text. Raises ValueError for arguments that are not JSON."""
        decoder, place = json.JSONDecoder(strict=False), 0
        found: list[Call] = []
        while match := self.pattern.search(raw, place):
            arguments: Any = {}
            place = match.end()
            if match.end() < len(raw) and raw[match.end()] == "{":
                arguments, place = decoder.raw_decode(raw, match.end())
            groups = match.groupdict()
            found.append(Call(groups["name"].strip(), arguments, (groups.get("id") or "").strip()))
        return found or None


@dataclass(frozen=True, slots=True)
class TaggedArguments:
    """Reads calls whose arguments stand in tags of their own.

    `call` finds where a call begins, with the group `name`, and `argument` where an argument does,
    with the group `key` and perhaps its `type`. In `value_end`, `KEY_AGAIN` stands for the key.
    `space` is the white space that is written around values.
    """

    call: re.Pattern[str]
    call_end: str
    argument: re.Pattern[str]
    value_end: str
    space: tuple[str, str] = ("", "")

    def __call__(self, raw: str, tools: Tools) -> list[Call] | None:
        """Return the calls in a text; values are JSON unless the tool declares a string."""
        found = []
        for opening, body in sections(raw, self.call, self.call_end):
            name = opening["name"].strip()
            found.append(Call(name, self._arguments(body, argument_types(tools, name))))
        return found or None

    def _arguments(self, body: str, types: Mapping[str, Any]) -> dict[str, Any]:
        arguments: dict[str, Any] = {}
        place = 0
        while opening := self.argument.search(body, place):
            key = opening["key"].strip()
            end = self.value_end.replace(KEY_AGAIN, key)
            stop = body.find(end, opening.end())
            if stop < 0:
                raise ValueError(body)
            value = body[opening.end() : stop].removeprefix(self.space[0])
            kind = types.get(key, opening.groupdict().get("type"))
            arguments[key] = typed_value(value.removesuffix(self.space[1]), kind)
            place = stop + len(end)
        return arguments


def argument_types(tools: Tools, name: str) -> dict[str, Any]:
    """Return the JSON types that a tool declares for its arguments, by their names."""
    for tool in tools:
        if _member(tool, "function", "name") == name:
            properties = _member(tool, "function", "parameters", "properties")
            declared = properties if isinstance(properties, Mapping) else {}
            return {key: _member(each, "type") for key, each in declared.items()}
    return {}


def typed_value(text: str, kind: Any) -> Any:
    """Return a value that stands in tags: a declared string as it is, else what JSON makes of it.

    Some models write Python's literals instead of JSON; what is neither is a string.
    """
    if kind == "string":
        return text
    for parsed in (partial(json.loads, strict=False), ast.literal_eval):
        with suppress(ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = parsed(text.strip())
            json.dumps(value, allow_nan=False)  # Python has more: {1, 2}, 1j, ...
            return value
    return text


def read_python(raw: str, _: Tools) -> list[Call] | None:
    """Return calls written as Python: `[name(argument="value"), ...]`."""
    begin, end = raw.find("["), raw.rfind("]")
    if begin < 0 or end < begin:
        return None
    tree = ast.parse(raw[begin : end + 1].strip(), mode="eval").body
    calls = tree.elts if isinstance(tree, ast.List) else []
    found = []
    for each in calls:
        if not isinstance(each, ast.Call) or each.args:
            return None
        values = {word.arg: _literal(word.value) for word in each.keywords if word.arg}
        found.append(Call(ast.unparse(each.func), values))
    return found or None


def _literal(node: ast.expr) -> Any:
    """Return a literal's value, with JSON's true, false and null too."""

    class Words(ast.NodeTransformer):
        def visit_Name(self, node: ast.Name) -> ast.AST:
            words = {"true": True, "false": False, "null": None}
            return ast.Constant(words[node.id]) if node.id in words else node

    return ast.literal_eval(Words().visit(node))
