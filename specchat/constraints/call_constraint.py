"""What an answer that calls tools may consist of, in the chat format's own text of calls."""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

from specchat.constraints.answer_start import AnswerStart
from specchat.constraints.phases import Constrained, Free, Phase
from specchat.decoding.constraint import Constraint
from specchat.errors import InvalidOption
from specchat.formats.bare_text import without_bounds
from specchat.formats.call_grammar import OfferedTool, call_grammar
from specchat.formats.call_pattern import CallPattern
from specchat.formats.chat_format import ChatFormat
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
NEWLINES = 3
"""Line breaks that a model may write between its reasoning and a call."""
UNKNOWN_FORM = (
    "tool_choice: this model's chat template does not show how calls are written: choose auto"
)
ALL_CALLS = "the grammar of the tools' calls"
UNBOUNDED = "patterns and lengths of texts are not enforced: they are too complex"
ANY_OBJECT = {"type": "object", "x-guidance": ONE_LINE}


class Phases(NamedTuple):
    """The phases of an answer, any text if there are none, and what they do not enforce."""

    phases: Mapping[str, Phase]
    notices: tuple[str, ...] = ()


class _Calls(NamedTuple):
    """Calls from their mark on, or from an answer's start if the mark is ""."""

    mark: str
    start: Callable[[], Constraint]
    notices: tuple[str, ...] = ()


class CallPhases:
    """Makes the phases of answers that call tools, from one model's vocabulary."""

    def __init__(self, texts: GrammarVocabulary) -> None:
        """Keep the vocabulary."""
        self._texts = texts
        self._compiled = lru_cache(maxsize=NUM_KEPT)(self._compile)

    def required(self, request: ChatRequest, start: AnswerStart) -> Phases:
        """Return the phases of an answer that must call tools, after reasoning if any.

        Raises InvalidOption if that cannot be enforced.
        """
        if start.form.call_pattern is None:
            raise InvalidOption(UNKNOWN_FORM)
        calls = self._calls(request, start.form.call_pattern, "")
        answer = Constrained(calls.start, NEWLINES)
        return Phases(_after_reasoning(answer, request, start), calls.notices)

    def possible(self, request: ChatRequest, start: AnswerStart) -> Phases:
        """Return the phases of an answer of any text that may call tools.

        There are none if the chat format does not show what calls begin with.
        """
        calls, notices = self._after_mark(request, start)
        if calls is None:
            return Phases({}, notices)
        answer, call = Free({calls.mark: "call"}, may_end=True), Constrained(calls.start)
        if _is_anywhere(start.form):
            phases = _after_reasoning(answer, request, start)
        else:
            any_text = Free({}, may_end=True)
            phases = {"answer": replace(answer, otherwise="any"), "any": any_text}
        return Phases({**phases, "call": call}, notices)

    def beside(
        self, phases: Mapping[str, Phase], request: ChatRequest, start: AnswerStart
    ) -> Phases:
        """Return the phases of an answer with a structure that may call tools instead."""
        calls, notices = self._after_mark(request, start)
        if calls is None:
            return Phases(phases, notices)
        marked: dict[str, Phase] = {}
        for name, phase in phases.items():
            if name == "reasoning":
                marked[name] = phase
            elif isinstance(phase, Free):
                marked[name] = replace(phase, marks={**phase.marks, calls.mark: "call"})
            else:
                marked[name] = replace(phase, openings={**phase.openings, calls.mark: "call"})
        return Phases({**marked, "call": Constrained(calls.start)}, notices)

    def _after_mark(
        self, request: ChatRequest, start: AnswerStart
    ) -> tuple[_Calls | None, tuple[str, ...]]:
        """Return the calls that an answer may hold, None if they cannot be enforced, and notices.

        Raises InvalidOption if a tool is to be followed strictly and cannot.
        """
        form = start.form
        mark = _mark_of(form)
        may_begin = start.state == "start" or _is_anywhere(form)
        if not mark or form.call_pattern is None or not may_begin:
            return None, ()
        try:
            calls = self._calls(request, form.call_pattern, mark)
        except InvalidOption as error:
            if request.tool_names or _has_strict(request.tools):
                raise
            return None, (f"calls of tools are not enforced: {error}",)
        return calls, calls.notices

    def _calls(self, request: ChatRequest, pattern: CallPattern, mark: str) -> _Calls:
        offered, split = _offered(request), self._texts.split
        is_parallel = request.parallel_tool_calls
        refused: InvalidOption | None = None
        for tools, notices in _attempts(offered, pattern, split):
            try:
                grammar = call_grammar(pattern, tools, split, mark=mark, is_parallel=is_parallel)
                constraint = self._compiled(grammar)
            except InvalidOption as error:
                refused = refused or error
            else:
                return _Calls(mark, constraint.restarted, notices)
        raise refused or InvalidOption(UNKNOWN_FORM)

    def _compile(self, grammar: str) -> GrammarConstraint:
        return GrammarConstraint(lark_grammar(grammar, ALL_CALLS), self._texts)


def _is_strict(function: Mapping[str, Any]) -> bool:
    """Return True if a tool's schema is to be followed or refused."""
    return function.get("strict") is True


def _has_strict(tools: Sequence[Mapping[str, Any]]) -> bool:
    functions = [tool.get("function") for tool in tools]
    return any(isinstance(each, Mapping) and _is_strict(each) for each in functions)


def _is_anywhere(form: ChatFormat) -> bool:
    """Return True if calls may follow other text: a single brace counts at the start only."""
    return form.calls is not None and len(form.calls.begin) > 1


def _mark_of(form: ChatFormat) -> str:
    """Return the text that all calls begin with, and nothing else; "" if there is none."""
    if form.call_pattern is None or form.calls is None:
        return ""
    fixed = form.call_pattern.fixed_begin
    mark = fixed if form.calls.is_bare else form.calls.begin
    return mark if fixed.startswith(mark) else ""


def _after_reasoning(answer: Phase, request: ChatRequest, start: AnswerStart) -> dict[str, Phase]:
    """Return the phases of an answer that reasoning may come before."""
    form = start.form
    end = form.reasoning.end.strip() if form.reasoning else ""
    if form.reasoning is None or not end or start.state not in {"start", "reasoning"}:
        return {"answer": answer}
    may_end = isinstance(answer, Free)
    marks = {end: "answer"}
    if isinstance(answer, Free):  # in some formats a call ends the reasoning
        endings = {mark.text for mark in form.marks.get("reasoning", ())}
        marks |= {mark: phase for mark, phase in answer.marks.items() if mark in endings}
    reasoning = Free(marks, may_end=may_end)
    if start.state == "reasoning":
        return {"reasoning": reasoning, "answer": answer}
    begin = form.reasoning.begin.strip()
    if not begin or request.think == "off":
        return {"answer": answer}
    opened = {begin: "reasoning"}
    first: Phase
    if isinstance(answer, Free):
        first = replace(answer, marks={**answer.marks, **opened})
    else:
        first = replace(answer, openings={**answer.openings, **opened})
    return {"start": first, "reasoning": reasoning, "answer": answer}


def _offered(request: ChatRequest) -> list[Mapping[str, Any]]:
    """Return the functions that may be called. Raises InvalidOption if there are none."""
    offered = [tool["function"] for tool in checked_tools(request.offered_tools)]
    known, names = [each["name"] for each in offered], request.tool_names
    if missing := next((name for name in names if name not in known), ""):
        raise InvalidOption(f"tool_choice: there is no tool {missing}: choose one of the tools")
    if not offered:
        raise InvalidOption("tool_choice: there are no tools to call: give some")
    return [each for each in offered if not names or each["name"] in names]


def _attempts(
    functions: Sequence[Mapping[str, Any]], pattern: CallPattern, split: Split
) -> Iterator[tuple[list[OfferedTool], tuple[str, ...]]]:
    """Yield tools with less and less of their schemas, and what is not enforced of these.

    If all of them cannot be compiled together, one may be at fault, so each is compiled by itself.
    Raises InvalidOption if one is to be followed strictly and cannot.
    """
    yield _all_enforced(functions, pattern, split)
    tools, notices = _all_enforced(functions, pattern, split, is_each_compiled=True)
    yield tools, notices
    if pattern.arguments is not None and not all(map(_is_strict, functions)):
        fewer = [
            tool if _is_strict(function) else _unbounded(tool)
            for tool, function in zip(tools, functions, strict=True)
        ]
        yield fewer, (*notices, f"tools: {UNBOUNDED}")


def _all_enforced(
    functions: Sequence[Mapping[str, Any]],
    pattern: CallPattern,
    split: Split,
    *,
    is_each_compiled: bool = False,
) -> tuple[list[OfferedTool], tuple[str, ...]]:
    """Return tools, and what cannot be enforced of their schemas, in the form of calls too.

    Raises InvalidOption if one is to be followed strictly and cannot.
    """
    tools, notices = [], list[str]()
    for function in functions:
        tool, told = _enforced(function)
        try:
            _require_form(tool, pattern, split, is_compiled=is_each_compiled)
        except InvalidOption as error:
            reason = f"tool {tool.name}: {error}"
            if _is_strict(function):
                raise InvalidOption(reason) from None
            tool, told = OfferedTool(tool.name, ANY_OBJECT), [*told, reason]
        tools.append(tool)
        notices += told
    return tools, tuple(notices)


def _require_form(
    tool: OfferedTool, pattern: CallPattern, split: Split, *, is_compiled: bool
) -> None:
    """Raise InvalidOption if the form of calls cannot hold a tool's arguments."""
    text = call_grammar(pattern, [tool], split)
    if is_compiled:
        lark_grammar(text, "its schema")


def _unbounded(tool: OfferedTool) -> OfferedTool:
    """Return a tool without the bounds of its texts."""
    return replace(tool, schema=without_bounds(tool.schema))


def _enforced(function: Mapping[str, Any]) -> tuple[OfferedTool, Sequence[str]]:
    """Return a tool with what can be enforced of its schema, and what cannot in words.

    Raises InvalidOption if it is to be followed strictly and cannot.
    """
    name, is_strict = function["name"], _is_strict(function)
    source = json.dumps(function["parameters"], sort_keys=False)
    schema, told = _enforceable(source, is_strict=is_strict)
    if is_strict and told:
        raise InvalidOption(f"tools: {name}: {told[0]}")
    return OfferedTool(name, schema), [f"tool {name}: {each}" for each in told]


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
