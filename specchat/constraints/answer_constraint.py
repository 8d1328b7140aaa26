"""The constraint of an answer: what a request asks for, within the model's chat format."""

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from typing import NamedTuple

from specchat.constraints.answer_rules import AnswerRules
from specchat.constraints.answer_start import AnswerStart
from specchat.constraints.phased_constraint import PhasedConstraint
from specchat.constraints.phases import Constrained, Free, Phase
from specchat.constraints.tool_phases import ToolPhases
from specchat.decoding.constraint import Constraint
from specchat.errors import InvalidOption
from specchat.formats.probes import MARK
from specchat.llama.tokenizer import Vocabulary
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.structure import Structure

NUM_KEPT = 16
"""Compiled structures that are kept: programs ask for the same ones again and again."""
CALLS_INSTEAD = "the answer calls tools, as tool_choice asks: its structure is not used"
MOST_NOTICES = 20
NEWLINES = 2
"""Line breaks that a model may write between its reasoning and its answer."""


class _Compiled(NamedTuple):
    """A structure's constraint at its beginning, and what it does not enforce, as AnswerRules."""

    start: Callable[[], Constraint]
    notices: tuple[str, ...] = ()
    why_invalid: Callable[[str], str] | None = None


class AnswerConstraints:
    """Makes the constraints of answers from one model's vocabulary."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        """Prepare nothing yet: most answers have no constraint."""
        self._texts = GrammarVocabulary(
            vocabulary.size,
            vocabulary.named_piece,
            partial(_is_special, vocabulary),
            vocabulary.end_tokens,
            lambda text: vocabulary.tokenize_more(text, parse_special=False),
        )
        self._calls = ToolPhases(self._texts)
        self._compiled = lru_cache(maxsize=NUM_KEPT)(self._compile)

    def rules(
        self, request: AnswerRequest, start: AnswerStart | None, ends: Collection[int]
    ) -> AnswerRules:
        """Return what the answer to a request must be like; None as `start` is for a plain text.

        `ends` are the tokens that end the answer: the vocabulary's and the chat format's. Raises
        InvalidOption for what cannot be enforced.
        """
        structure = request.structure
        must_call = isinstance(request, ChatRequest) and request.tool_choice == "required"
        if request.ignore_end and (structure or must_call):
            raise InvalidOption("structured output ends by itself: leave ignore_end out")
        text = self._compiled(structure) if structure and not must_call else None
        is_begun = start is not None and start.goes_on and start.state != "reasoning"
        phases: Mapping[str, Phase]
        if not isinstance(request, ChatRequest) or start is None or (text and is_begun):
            phases, notices = {"text": Constrained(text.start)} if text else {}, tuple[str, ...]()
        else:
            structured = _phases(start, text.start) if text else {}
            phases, notices = self._calls.phases(request, start, structured)
        if structure and must_call:
            notices = (*notices, CALLS_INSTEAD)
        if not phases:
            return AnswerRules(notices=notices)
        constraint = PhasedConstraint(phases, self._texts, ends)
        if text is None:
            return AnswerRules(constraint, notices)
        notices = (*text.notices, *notices)
        if not is_begun or not isinstance(request, ChatRequest):
            return AnswerRules(constraint, notices, text.why_invalid)
        written = str(request.messages[-1]["content"])
        self._follow(constraint, written)
        return AnswerRules(constraint, notices, _behind(written, text.why_invalid))

    def _follow(self, constraint: Constraint, written: str) -> None:
        """Let a constraint follow an answer's beginning. Raises InvalidOption if it cannot."""
        try:
            for token in self._texts.tokenize(written):
                constraint.push(token)
        except InvalidOption:
            raise InvalidOption(
                "the answer to be continued does not begin as the schema or grammar asks"
            ) from None

    def _compile(self, structure: Structure) -> _Compiled:
        grammar = grammar_of(structure)
        start = GrammarConstraint(grammar, self._texts).restarted
        if not grammar.notices:
            return _Compiled(start)
        from specchat.structured.schema_validation import AnswerCheck

        check = AnswerCheck(structure.source)
        return _Compiled(start, _shortened((*grammar.notices, *check.notices)), check.why_invalid)


def _shortened(notices: Sequence[str]) -> tuple[str, ...]:
    """Return the first notices, and how many more there are."""
    if len(notices) <= MOST_NOTICES:
        return tuple(notices)
    num_more = len(notices) - MOST_NOTICES
    return (*notices[:MOST_NOTICES], f"{num_more} more parts of the JSON Schema are not enforced")


def _behind(written: str, why_invalid: Callable[[str], str] | None) -> Callable[[str], str] | None:
    """Return the check of what follows a text that is written already."""
    return why_invalid and (lambda text: why_invalid(f"{written}{text}"))


def _is_special(vocabulary: Vocabulary, token: int) -> bool:
    """Return True for a token that is never part of a text: a control token, or a mark.

    Other tokens that a model's makers added as a whole, such as runs of spaces, are text.
    """
    if vocabulary.is_control(token):
        return True
    is_added = vocabulary.is_user_defined(token)
    return is_added and re.fullmatch(MARK, vocabulary.name(token)) is not None


def _phases(start: AnswerStart, begin_text: Callable[[], Constraint]) -> Mapping[str, Phase]:
    """Return the phases of an answer, whose last one is what was asked for."""
    form = start.form
    begin = form.content.begin.strip()
    if form.decide and begin:  # headers name the parts: the answer's comes last
        whole = form.content.begin.lstrip()  # a line break may end a header
        return {"before": Free({whole: "text"}), "text": Constrained(begin_text)}
    openings = {begin: "text"} if begin else {}
    answer, text = Constrained(begin_text, openings=openings), Constrained(begin_text)
    end = form.reasoning.end.strip() if form.reasoning else ""
    if not form.reasoning or not end:
        return {"answer": answer, "text": text}
    reasoning = Free({end: "reasoned"})
    phases: dict[str, Phase] = {
        "reasoning": reasoning, "reasoned": replace(answer, newlines=NEWLINES), "text": text
    }  # fmt: skip
    opening = form.reasoning.begin.strip()
    if start.state == "reasoning":
        return phases
    if start.state == "start" and opening:
        answer = replace(answer, openings={**openings, opening: "reasoning"})
    return {"answer": answer, **phases}
