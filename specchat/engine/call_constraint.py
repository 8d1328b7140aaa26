"""What an answer that calls tools may consist of, in the chat format's own text of calls."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from specchat.chat.formats import ChatFormat
from specchat.chat.formats.bare_text import without_bounds
from specchat.chat.formats.call_grammar import OfferedTool, call_grammar
from specchat.chat.formats.call_pattern import CallPattern
from specchat.chat.formats.messages import checked_tools
from specchat.decoding.constraint import Constraint
from specchat.engine.api import ChatRequest
from specchat.engine.bare_call import CallAtStart
from specchat.engine.prompts import Prompt
from specchat.errors import InvalidOption
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.json_schema_grammar import ONE_LINE, json_schema_entry
from specchat.structured.phases import Constrained, Free, Phase, PhasedConstraint
from specchat.structured.structure import Structure

NUM_KEPT = 16
"""Compiled grammars that are kept: all requests of a conversation offer the same tools."""
NEWLINES = 3
"""Line breaks that a model may write between its reasoning and a call."""
UNKNOWN_FORM = (
    "tool_choice: this model's chat template does not show how calls are written: choose auto"
)
UNBOUNDED = "tools: patterns and lengths of texts are not enforced: they are too complex"
ANY_OBJECT = {"type": "object", "x-guidance": ONE_LINE}


Made: TypeAlias = tuple[Constraint | None, tuple[str, ...]]
"""A constraint, None if everything is allowed, and what of the tools' schemas is not enforced."""


class _Calls(NamedTuple):
    """Calls from their mark on, or from an answer's start if the mark is ""."""

    mark: str
    start: Callable[[], Constraint]
    notices: tuple[str, ...] = ()


class CallConstraints:
    """Makes the constraints of calls from one model's vocabulary."""

    def __init__(self, texts: GrammarVocabulary) -> None:
        """Keep the vocabulary."""
        self._texts = texts
        self._compiled: dict[str, GrammarConstraint] = {}

    def required(self, request: ChatRequest, prompt: Prompt, form: ChatFormat) -> Made:
        """Return the constraint of an answer that must call tools, after reasoning if any.

        Raises InvalidOption if that cannot be enforced.
        """
        if form.call_pattern is None:
            raise InvalidOption(UNKNOWN_FORM)
        calls = self._calls(request, form, form.call_pattern, "")
        answer = Constrained(calls.start, NEWLINES)
        return self._phased(_after_reasoning(answer, request, prompt, form), calls)

    def possible(self, request: ChatRequest, prompt: Prompt, form: ChatFormat) -> Made:
        """Return the constraint of an answer of any text that may call tools.

        There is none if the chat format does not show what calls begin with.
        """
        calls, notices = self._after_mark(request, form)
        if calls is None:
            return None, notices
        answer = Free({calls.mark: "call"}, may_end=True)
        if not _is_anywhere(form):
            whole: dict[str, Phase] = {"answer": answer, "call": Constrained(calls.start)}
            inner = PhasedConstraint(whole, self._texts)
            return CallAtStart(inner, calls.mark, self._texts.piece), notices
        return self._phased(_after_reasoning(answer, request, prompt, form), calls)

    def beside(
        self, phases: dict[str, Phase], request: ChatRequest, form: ChatFormat
    ) -> tuple[dict[str, Phase], tuple[str, ...]]:
        """Return the phases of an answer with a structure that may call tools instead."""
        calls, notices = self._after_mark(request, form)
        if calls is None:
            return phases, notices
        found: dict[str, Phase] = {}
        for name, phase in phases.items():
            if name == "reasoning":
                found[name] = phase
            elif isinstance(phase, Free):
                found[name] = replace(phase, marks={**phase.marks, calls.mark: "call"})
            else:
                found[name] = replace(phase, openings={**phase.openings, calls.mark: "call"})
        return {**found, "call": Constrained(calls.start)}, notices

    def _after_mark(
        self, request: ChatRequest, form: ChatFormat
    ) -> tuple[_Calls | None, tuple[str, ...]]:
        """Return the calls that an answer may hold, None if they cannot be enforced, and notices.

        Raises InvalidOption if a tool is to be followed strictly and cannot.
        """
        mark = _mark_of(form)
        if not mark or form.call_pattern is None:
            return None, ()
        try:
            calls = self._calls(request, form, form.call_pattern, mark)
        except InvalidOption as error:
            if request.tool_names or any(map(_is_strict, request.tools)):
                raise
            return None, (f"calls of tools are not enforced: {error}",)
        return calls, calls.notices

    def _calls(
        self, request: ChatRequest, form: ChatFormat, pattern: CallPattern, mark: str
    ) -> _Calls:
        tools, notices = _offered(request, form, self._texts)
        is_parallel, split = request.parallel_tool_calls, self._texts.split

        def compiled(offered: Sequence[OfferedTool]) -> GrammarConstraint:
            grammar = call_grammar(pattern, offered, split, mark=mark, is_parallel=is_parallel)
            return self._compile(grammar)

        try:
            constraint = compiled(tools)
        except InvalidOption:
            if pattern.arguments is None or any(map(_is_strict, request.offered_tools)):
                raise
            constraint = compiled([replace(t, schema=without_bounds(t.schema)) for t in tools])
            notices += (UNBOUNDED,)
        return _Calls(mark, constraint.restarted, notices)

    def _compile(self, text: str) -> GrammarConstraint:
        if text not in self._compiled:
            compiled = GrammarConstraint(grammar_of(Structure("lark", text)), self._texts)
            while len(self._compiled) >= NUM_KEPT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[text] = compiled
        return self._compiled[text]

    def _phased(self, phases: Mapping[str, Phase], calls: _Calls) -> Made:
        whole = {**phases, "call": Constrained(calls.start)}
        return PhasedConstraint(whole, self._texts), calls.notices


def _is_strict(tool: Mapping[str, Any]) -> bool:
    """Return True if a tool's schema is to be followed or refused."""
    function = tool.get("function")
    return isinstance(function, Mapping) and function.get("strict") is True


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


def _after_reasoning(
    answer: Phase, request: ChatRequest, prompt: Prompt, form: ChatFormat
) -> dict[str, Phase]:
    """Return the phases of an answer that reasoning may come before."""
    end = form.reasoning.end.strip() if form.reasoning else ""
    if form.reasoning is None or not end or prompt.state not in {"start", "reasoning"}:
        return {"answer": answer}
    may_end = isinstance(answer, Free)
    marks = {end: "answer"}
    if isinstance(answer, Free):  # in some formats a call ends the reasoning
        known = {mark.text for mark in form.marks.get("reasoning", ())}
        marks |= {mark: to for mark, to in answer.marks.items() if mark in known}
    reasoning = Free(marks, may_end=may_end)
    if prompt.state == "reasoning":
        return {"reasoning": reasoning, "answer": answer}
    begin = form.reasoning.begin.strip()
    if not begin or request.think == "off":
        return {"answer": answer}
    opened = {begin: "reasoning"}
    if isinstance(answer, Free):
        start: Phase = replace(answer, marks={**answer.marks, **opened})
    else:
        start = replace(answer, openings={**answer.openings, **opened})
    return {"start": start, "reasoning": reasoning, "answer": answer}


def _offered(
    request: ChatRequest, form: ChatFormat, texts: GrammarVocabulary
) -> tuple[list[OfferedTool], tuple[str, ...]]:
    """Return the tools that may be called, and what cannot be enforced of their schemas."""
    offered = [tool["function"] for tool in checked_tools(request.offered_tools)]
    known, names = [each["name"] for each in offered], request.tool_names
    if missing := next((name for name in names if name not in known), ""):
        raise InvalidOption(f"tool_choice: there is no tool {missing}: choose one of the tools")
    if not offered:
        raise InvalidOption("tool_choice: there are no tools to call: give some")
    tools, notices = [], list[str]()
    for function in offered:
        if not names or function["name"] in names:
            tool, told = _enforced(function, form, texts)
            tools.append(tool)
            notices += told
    return tools, tuple(notices)


def _enforced(
    function: Mapping[str, Any], form: ChatFormat, texts: GrammarVocabulary
) -> tuple[OfferedTool, Sequence[str]]:
    """Return a tool with what can be enforced of its schema, and what cannot in words.

    Raises InvalidOption if it is to be followed strictly and cannot.
    """
    name, is_strict = function["name"], function.get("strict") is True
    source = json.dumps(function["parameters"], sort_keys=False)
    schema, told = _enforceable(source, is_strict=is_strict)
    if is_strict and told:
        raise InvalidOption(f"tools: {name}: {told[0]}")
    notices = [f"tool {name}: {each}" for each in told]
    tool = OfferedTool(name, schema)
    if form.call_pattern is not None:
        try:
            call_grammar(form.call_pattern, [tool], texts.split)
        except InvalidOption as error:
            if is_strict:
                raise
            return OfferedTool(name, ANY_OBJECT), [*notices, str(error)]
    return tool, notices


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
        return entry["json_schema"], tuple(notices)
    return ANY_OBJECT, (refused,)
