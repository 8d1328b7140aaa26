"""Parsers of tool calls: JSON, a name with JSON, a tag per argument, or Python syntax."""

import ast
import json
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from specchat.formats.call_format import KEY_AGAIN, Call, Tools

MAX_FAILURES = 100
"""The most brackets to try that turn out not to start valid JSON, as each try costs time."""
NAME_PATTERN = r"[\w.:-]{1,256}+"
"""A function name; bounded and possessive, so that searching a long text takes linear time."""
NAME_FIELDS = ("name", "tool_name", "function_name", "function")
ARGUMENT_FIELDS = ("arguments", "parameters", "args", "input")
ID_FIELDS = ("id", "tool_call_id", "call_id")
QUOTED = ("<![CDATA[", "]]>")
"""XML's quotes around text that may contain tags."""
BEGINNING = re.compile(r"[{\[]")
SURE_BEGINNING = re.compile(r'\{\s*+"|\[\s*+\{\s*+"')
"""A start that must be JSON, not a bracket in prose."""


def read_json(raw: str, tools: Tools) -> list[Call] | None:
    """Return calls written as JSON objects: alone, in a list, or inside another object."""
    found = [call for value in json_values(raw) for call in _calls_in(value, tools)]
    return found or None


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
