"""Reading tool calls as models write them: JSON, tags, tagged arguments, or Python."""

import ast
import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from specchat.decoding.chunk import ToolCall

Tools: TypeAlias = Sequence[Mapping[str, Any]]

LONGEST_CALL = 1_000_000
"""Characters; a longer one stays text."""
NAME_FIELDS = ("name", "tool_name", "function_name", "function")
ARGUMENT_FIELDS = ("arguments", "parameters", "args", "input")
ID_FIELDS = ("id", "tool_call_id", "call_id")


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
            found = self.extract(raw, tools)
        except (ValueError, KeyError, TypeError, SyntaxError, RecursionError):
            return None
        if not found or not all(call.name for call in found):
            return None
        last = len(found) - 1
        return [
            ToolCall(
                call.name,
                json.dumps(call.arguments, ensure_ascii=False),
                call.id or f"call_{num_before + place}",
                raw if place == last else "",
            )
            for place, call in enumerate(found)
        ]


@dataclass(frozen=True, slots=True)
class Call:
    """One call: its arguments are an object."""

    name: str
    arguments: Any
    id: str = ""


def read_json(raw: str, tools: Tools) -> list[Call] | None:
    """Return calls written as JSON objects, alone, in a list, or wrapped in another object."""
    found = [call for value in json_values(raw) for call in _calls_in(value, tools)]
    return found or None


def json_values(text: str) -> Iterator[Any]:
    """Yield the JSON objects and lists in a text, without those inside others."""
    decoder, place = json.JSONDecoder(strict=False), 0
    while found := re.compile(r"[{\[]").search(text, place):
        try:
            value, place = decoder.raw_decode(text, found.start())
        except ValueError:
            place = found.start() + 1
            continue
        yield value


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
    return {str(tool.get("function", {}).get("name", "")) for tool in tools}


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

    `call` finds a call, with the groups `name` and `body`; `argument` finds an argument in the
    body, with the groups `key` and `value`.
    """

    call: re.Pattern[str]
    argument: re.Pattern[str]

    def __call__(self, raw: str, tools: Tools) -> list[Call] | None:
        """Return the calls in a text; values are JSON unless the tool declares a string."""
        found = []
        for match in self.call.finditer(raw):
            name = match["name"].strip()
            types = argument_types(tools, name)
            arguments = {
                each["key"].strip(): typed_value(each["value"], types.get(each["key"].strip()))
                for each in self.argument.finditer(match["body"] or "")
            }
            found.append(Call(name, arguments))
        return found or None


def argument_types(tools: Tools, name: str) -> dict[str, Any]:
    """Return the JSON types that a tool declares for its arguments, by their names."""
    for tool in tools:
        function = tool.get("function", {})
        if function.get("name") == name:
            properties = (function.get("parameters") or {}).get("properties") or {}
            return {key: each.get("type") for key, each in properties.items()}
    return {}


def typed_value(text: str, kind: Any) -> Any:
    """Return a value that stands in tags: a declared string as it is, else what JSON makes of it.

    Some models write Python's literals instead of JSON; what is neither is a string.
    """
    if kind == "string":
        return text
    try:
        return json.loads(text, strict=False)
    except ValueError:
        pass
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, MemoryError, RecursionError):
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
