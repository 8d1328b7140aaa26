"""The constraint of an answer: what a request asks for, within the model's chat format."""

import re
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from specchat.constraints.call_constraint import CallConstraints, Made
from specchat.constraints.more_ends import MoreEnds
from specchat.constraints.phases import Constrained, Free, Phase, PhasedConstraint
from specchat.decoding.chunk import Chunk
from specchat.decoding.constraint import Constraint
from specchat.decoding.statistics import Statistics
from specchat.engine.prompts import Prompt
from specchat.errors import InvalidOption
from specchat.formats.chat_format import ChatFormat
from specchat.formats.chat_message import ChatMessage
from specchat.formats.messages import SYSTEM_ROLES
from specchat.formats.probes import MARK
from specchat.llama.tokenizer import Vocabulary
from specchat.requests.answer_request import AnswerRequest, ChatRequest
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.structure import Structure
from specchat.structured.structure_prompt import description_of

if TYPE_CHECKING:
    from specchat.structured.schema_validation import AnswerCheck

Request = TypeVar("Request", bound=AnswerRequest)

NUM_KEPT = 16
"""Compiled structures that are kept: programs ask for the same ones again and again."""
CALLS_INSTEAD = "the answer calls tools, as tool_choice asks: its structure is not used"
MOST_NOTICES = 20
NEWLINES = 2
"""Line breaks that a model may write between its reasoning and its answer."""


class _Compiled(NamedTuple):
    """A structure's constraint, and what checks whole answers by what that does not enforce."""

    constraint: GrammarConstraint
    notices: tuple[str, ...]
    check: "AnswerCheck | None"


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
        self._calls = CallConstraints(self._texts)
        self._compiled: dict[Structure, _Compiled] = {}

    def constraint(self, request: AnswerRequest, prompt: Prompt, ends: Collection[int]) -> Made:
        """Return the constraint of an answer to a prompt, None for any text, and notices.

        `ends` are the tokens that end the answer: the vocabulary's and the chat format's. Raises
        InvalidOption for what cannot be enforced.
        """
        found, notices = self._made(request, prompt)
        if found is not None and (more := frozenset(ends) - self._texts.end_tokens):
            found = MoreEnds(found, more, self._texts.size)
        return found, notices

    def _made(self, request: AnswerRequest, prompt: Prompt) -> Made:
        """Return the constraint of an answer that the vocabulary's own tokens end."""
        structure, form = request.structure, prompt.form
        must_call = isinstance(request, ChatRequest) and request.tool_choice == "required"
        if request.ignore_end and (structure or must_call):
            raise InvalidOption("structured output ends by itself: leave ignore_end out")
        if not isinstance(request, ChatRequest) or form is None:
            return self._from_start(structure) if structure else (None, ())
        if request.tool_choice == "required":
            found, notices = self._calls.required(request, prompt, form)
            return found, (*notices, CALLS_INSTEAD) if structure else notices
        if structure is None:
            is_any = request.ignore_end or not request.may_call
            return (None, ()) if is_any else self._calls.possible(request, prompt, form)
        compiled, notices, _ = self._compile(structure)
        if (written := _written(request, prompt)) is not None:
            return self._begun(compiled.restarted(), written), notices
        phases = _phases(prompt, form, compiled.restarted)
        if request.may_call:
            phases, more = self._calls.beside(phases, request, prompt, form)
            notices += more
        return PhasedConstraint(phases, self._texts), notices

    @staticmethod
    def described(request: Request) -> Request:
        """Return a request with a line that tells the model what its answer must look like."""
        structure = request.structure
        if structure is None or not structure.is_shown or not isinstance(request, ChatRequest):
            return request
        line = description_of(structure)
        messages: list[ChatMessage] = list(request.messages)
        pinned = request.pinned
        if messages and messages[0]["role"] in SYSTEM_ROLES:
            content = f"{messages[0]['content']}\n\n{line}"
            messages[0] = {**messages[0], "content": content}
        else:
            messages.insert(0, {"role": "system", "content": line})
            pinned = [index + 1 for index in pinned]
        return replace(request, messages=messages, pinned=pinned)

    def checked(
        self, chunks: Iterator[Chunk], request: AnswerRequest, prompt: Prompt, stats: Statistics
    ) -> Iterator[Chunk]:
        """Yield chunks; say in the statistics if the whole answer breaks what is not enforced."""
        compiled = self._compiled.get(request.structure) if request.structure else None
        if compiled is None or compiled.check is None:
            return chunks
        return _checked(chunks, compiled.check, _written(request, prompt) or "", stats)

    def _from_start(self, structure: Structure) -> tuple[Constraint, tuple[str, ...]]:
        compiled, notices, _ = self._compile(structure)
        return compiled.restarted(), notices

    def _compile(self, structure: Structure) -> _Compiled:
        if structure not in self._compiled:
            grammar = grammar_of(structure)
            constraint = GrammarConstraint(grammar, self._texts)
            check, notices = None, grammar.notices
            if notices:
                from specchat.structured.schema_validation import AnswerCheck

                check = AnswerCheck(structure.source)
                notices = _shortened((*notices, *check.notices))
            while len(self._compiled) >= NUM_KEPT:
                del self._compiled[next(iter(self._compiled))]
            self._compiled[structure] = _Compiled(constraint, notices, check)
        return self._compiled[structure]

    def _begun(self, constraint: Constraint, written: str) -> Constraint:
        """Let a constraint follow an answer's beginning. Raises InvalidOption if it cannot."""
        try:
            for token in self._texts.tokenize(written):
                constraint.push(token)
        except InvalidOption:
            raise InvalidOption(
                "the answer to be continued does not begin as the schema or grammar asks"
            ) from None
        return constraint


def _shortened(notices: Sequence[str]) -> tuple[str, ...]:
    """Return the first notices, and how many more there are."""
    if len(notices) <= MOST_NOTICES:
        return tuple(notices)
    num_more = len(notices) - MOST_NOTICES
    return (*notices[:MOST_NOTICES], f"{num_more} more parts of the JSON Schema are not enforced")


def _written(request: AnswerRequest, prompt: Prompt) -> str | None:
    """Return the text of the last message if the answer goes on with it."""
    if not isinstance(request, ChatRequest) or not prompt.goes_on or prompt.state == "reasoning":
        return None
    return str(request.messages[-1]["content"])


def _checked(
    chunks: Iterator[Chunk], check: "AnswerCheck", written: str, stats: Statistics
) -> Iterator[Chunk]:
    """Yield an answer's chunks; check the whole text, unless it was cut or calls tools instead."""
    texts, has_called = [written], False
    for chunk in chunks:
        texts.append(chunk.text)
        has_called |= bool(chunk.tool_calls)
        if chunk.finish and stats.is_valid and not has_called:
            reason = check.why_invalid("".join(texts))
            if reason:
                stats.is_valid, stats.invalid_reason = False, reason
                stats.notices += (reason,)
        yield chunk


def _is_special(vocabulary: Vocabulary, token: int) -> bool:
    """Return True for a token that is never part of a text: a control token, or a mark.

    Other tokens that a model's makers added as a whole, such as runs of spaces, are text.
    """
    if vocabulary.is_control(token):
        return True
    is_added = vocabulary.is_user_defined(token)
    return is_added and re.fullmatch(MARK, vocabulary.name(token)) is not None


def _phases(prompt: Prompt, form: ChatFormat, start: Callable[[], Constraint]) -> dict[str, Phase]:
    """Return the phases of an answer, whose last one is what was asked for."""
    begin = form.content.begin.strip()
    if form.decide and begin:  # headers name the parts: the answer's comes last
        whole = form.content.begin.lstrip()  # a line break may end a header
        return {"before": Free({whole: "text"}), "text": Constrained(start)}
    openings = {begin: "text"} if begin else {}
    answer, text = Constrained(start, openings=openings), Constrained(start)
    end = form.reasoning.end.strip() if form.reasoning else ""
    if not form.reasoning or not end:
        return {"answer": answer, "text": text}
    reasoning = Free({end: "reasoned"})
    phases: dict[str, Phase] = {
        "reasoning": reasoning, "reasoned": replace(answer, newlines=NEWLINES), "text": text
    }  # fmt: skip
    opening = form.reasoning.begin.strip()
    if prompt.state == "reasoning":
        return phases
    if prompt.state == "start" and opening:
        answer = replace(answer, openings={**openings, opening: "reasoning"})
    return {"answer": answer, **phases}
