"""The grammars of calls: the offered tools' schemas in the chat format's own text of calls."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from specchat.decoding.constraint import Constraint
from specchat.errors import InvalidOption
from specchat.formats.bare_text import without_bounds
from specchat.formats.call_format import CallText
from specchat.formats.call_grammar import OfferedTool, call_grammar
from specchat.formats.grammar_rules import OPTIONS
from specchat.formats.messages import checked_tools
from specchat.requests.answer_request import ChatRequest
from specchat.structured.bare_schema import bare_schema
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import Split, lark_grammar
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.json_schema_grammar import ONE_LINE, json_schema_entry

NUM_KEPT = 16
"""Compiled grammars that are kept: all requests of a conversation offer the same tools."""
ALL_CALLS = "the grammar of the tools' calls"
UNBOUNDED = "patterns and lengths of texts are not enforced: they are too complex"
ANY_OBJECT = {"type": "object", "x-guidance": ONE_LINE}


class Calls(NamedTuple):
    """Calls from their mark on, or from an answer's start if the mark is ""."""

    mark: str
    start: Callable[[], Constraint]
    notices: tuple[str, ...] = ()


class ToolGrammars:
    """Compiles the calls of offered tools for one model's vocabulary."""

    def __init__(self, texts: GrammarVocabulary) -> None:
        """Keep the vocabulary."""
        self._texts = texts
        self._compiled = lru_cache(maxsize=NUM_KEPT)(self._compile)

    def calls(self, request: ChatRequest, text: CallText, mark: str) -> Calls:
        """Return the calls that a request allows, with as much of the schemas as can be enforced.

        Raises InvalidOption if a tool is to be followed strictly and cannot, or nothing can be
        enforced.
        """
        offered, split = _offered(request), self._texts.split
        is_parallel = request.parallel_tool_calls
        refused: list[InvalidOption] = []
        for tools, notices in _attempts(offered, text, split):
            try:
                grammar = call_grammar(text, tools, split, mark=mark, is_parallel=is_parallel)
                constraint = self._compiled(grammar)
            except InvalidOption as error:
                refused.append(error)
            else:
                return Calls(mark, constraint.restarted, notices)
        raise refused[0]

    def _compile(self, grammar: str) -> GrammarConstraint:
        return GrammarConstraint(lark_grammar(grammar, ALL_CALLS), self._texts)


def _is_strict(function: Mapping[str, Any]) -> bool:
    """Return True if a tool's schema is to be followed or refused."""
    return function.get("strict") is True


def has_strict(tools: Sequence[Mapping[str, Any]]) -> bool:
    """Return True if the schema of one of these tools is to be followed or refused."""
    functions = [tool.get("function") for tool in tools]
    return any(isinstance(function, Mapping) and _is_strict(function) for function in functions)


def _offered(request: ChatRequest) -> list[Mapping[str, Any]]:
    """Return the functions that may be called. Raises InvalidOption if there are none."""
    offered = [tool["function"] for tool in checked_tools(request.offered_tools)]
    offered_names = [function["name"] for function in offered]
    names = request.tool_names
    if missing := next((name for name in names if name not in offered_names), ""):
        raise InvalidOption(f"tool_choice: there is no tool {missing}: choose one of the tools")
    if not offered:
        raise InvalidOption("tool_choice: there are no tools to call: give some")
    return [function for function in offered if not names or function["name"] in names]


def _attempts(
    functions: Sequence[Mapping[str, Any]], text: CallText, split: Split
) -> Iterator[tuple[list[OfferedTool], tuple[str, ...]]]:
    """Yield tools with less and less of their schemas, and what is not enforced of these.

    If all of them cannot be compiled together, one may be at fault, so each is compiled by itself.
    Raises InvalidOption if one is to be followed strictly and cannot.
    """
    yield _all_enforced(functions, text, split)
    tools, notices = _all_enforced(functions, text, split, is_each_compiled=True)
    yield tools, notices
    if text.arguments is not None and not all(map(_is_strict, functions)):
        fewer = [
            tool if _is_strict(function) else replace(tool, schema=without_bounds(tool.schema))
            for tool, function in zip(tools, functions, strict=True)
        ]
        yield fewer, (*notices, f"tools: {UNBOUNDED}")


def _all_enforced(
    functions: Sequence[Mapping[str, Any]],
    text: CallText,
    split: Split,
    *,
    is_each_compiled: bool = False,
) -> tuple[list[OfferedTool], tuple[str, ...]]:
    """Return tools, and what cannot be enforced of their schemas, in the form of calls too.

    Raises InvalidOption if one is to be followed strictly and cannot.
    """
    tools, notices = [], list[str]()
    for function in functions:
        tool, not_enforced = _enforced(function)
        try:
            _require_form(tool, text, split, is_compiled=is_each_compiled)
        except InvalidOption as error:
            reason = f"tool {tool.name}: {error}"
            if _is_strict(function):
                raise InvalidOption(reason) from None
            tool, not_enforced = OfferedTool(tool.name, ANY_OBJECT), [*not_enforced, reason]
        tools.append(tool)
        notices += not_enforced
    return tools, tuple(notices)


def _require_form(tool: OfferedTool, text: CallText, split: Split, *, is_compiled: bool) -> None:
    """Raise InvalidOption if the form of calls cannot hold a tool's arguments."""
    grammar = call_grammar(text, [tool], split)
    if is_compiled:
        lark_grammar(grammar, "its schema")


def _enforced(function: Mapping[str, Any]) -> tuple[OfferedTool, Sequence[str]]:
    """Return a tool with what can be enforced of its schema, and what cannot in words.

    Raises InvalidOption if it is to be followed strictly and cannot.
    """
    name, is_strict = function["name"], _is_strict(function)
    source = json.dumps(function["parameters"], sort_keys=False)
    schema, not_enforced = _enforceable(source, is_strict=is_strict)
    if is_strict and not_enforced:
        raise InvalidOption(f"tools: {name}: {not_enforced[0]}")
    return OfferedTool(name, schema), [f"tool {name}: {notice}" for notice in not_enforced]


@lru_cache(maxsize=256)
def _enforceable(source: str, *, is_strict: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a schema for arguments as far as it can be enforced, and what cannot; cached.

    If nothing can, it is any object.
    """
    refused = ""
    for is_relaxed in (False, True):
        try:
            entry, notices = json_schema_entry(source, is_relaxed=is_relaxed)
        except InvalidOption as error:
            refused = refused or str(error)
            if is_strict:
                break
            continue
        enforced = entry["json_schema"]
        options = enforced.pop(OPTIONS)
        return {**bare_schema(enforced), OPTIONS: options}, tuple(notices)
    return ANY_OBJECT, (refused,)
