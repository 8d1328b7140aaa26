"""The phases of answers that call tools: in what state of a chat format calls may begin."""

from collections.abc import Mapping
from dataclasses import replace
from typing import NamedTuple

from specchat.constraints.answer_start import AnswerStart
from specchat.constraints.phases import Constrained, Free, Phase
from specchat.constraints.tool_grammars import Calls, ToolGrammars, has_strict
from specchat.errors import InvalidOption
from specchat.formats.chat_format import ChatFormat
from specchat.requests.answer_request import ChatRequest
from specchat.structured.grammar_vocabulary import GrammarVocabulary

NEWLINES = 3
"""Line breaks that a model may write between its reasoning and a call."""


class Phases(NamedTuple):
    """The phases of an answer, any text if there are none, and what they do not enforce."""

    phases: Mapping[str, Phase]
    notices: tuple[str, ...] = ()


class ToolPhases:
    """Makes the phases of answers that call tools, from one model's vocabulary."""

    def __init__(self, texts: GrammarVocabulary) -> None:
        """Keep the vocabulary."""
        self._grammars = ToolGrammars(texts)

    def phases(
        self, request: ChatRequest, start: AnswerStart, structured: Mapping[str, Phase]
    ) -> Phases:
        """Return the phases of an answer with the calls that a request asks for or allows.

        `structured` are those of an answer with a structure, none for any text. Raises
        InvalidOption if calls are required, or a tool is to be followed strictly, and that cannot
        be enforced.
        """
        if request.tool_choice == "required":
            return self._required(request, start)
        if request.ignore_end or not request.may_call:
            return Phases(structured)
        if structured:
            return self._beside(structured, request, start)
        return self._possible(request, start)

    def _required(self, request: ChatRequest, start: AnswerStart) -> Phases:
        """Return the phases of an answer that must call tools, after reasoning if any."""
        calls = self._grammars.calls(request, start.form.calls.text, "")
        answer = Constrained(calls.start, NEWLINES)
        return Phases(_after_reasoning(answer, request, start), calls.notices)

    def _possible(self, request: ChatRequest, start: AnswerStart) -> Phases:
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

    def _beside(
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
    ) -> tuple[Calls | None, tuple[str, ...]]:
        """Return the calls that an answer may hold, None if none can be enforced, and notices."""
        form = start.form.calls
        may_begin = start.state == "start" or _is_anywhere(start.form)
        if not form.opening or not may_begin:
            return None, ()
        try:
            calls = self._grammars.calls(request, form.text, form.opening)
        except InvalidOption as error:
            if request.tool_names or has_strict(request.tools):
                raise
            return None, (f"calls of tools are not enforced: {error}",)
        return calls, calls.notices


def _is_anywhere(form: ChatFormat) -> bool:
    """Return True if calls may follow other text: a single brace counts at the start only."""
    return len(form.calls.begin) > 1


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
