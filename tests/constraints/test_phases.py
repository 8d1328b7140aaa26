"""Constraints that begin later: marks in any tokens, at any place, with drafts taken back."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from random import Random

import numpy as np
import pytest

from specchat.constraints.phased_constraint import PhasedConstraint
from specchat.constraints.phases import Constrained, Free, Phase
from specchat.decoding.constraint import Constraint, Mask
from specchat.errors import EngineFailed, InvalidOption
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.structure import Structure
from structured.toy_vocabulary import CALL, END, END_OF_THINKING, ENDS, PIECES, TOY, written
from tables import table

NUM_TOKENS = len(PIECES)
VALUE = json.dumps({"type": "object", "properties": {"age": {"enum": [12, 123]}}})
OBJECT = GrammarConstraint(grammar_of(Structure("json_schema", VALUE)), TOY)
TEXTS = ("{}", '{"age": 12}', '{"age": 123}')
NEWLINES = 3


@cache
def _mask_of_words(texts: tuple[bytes, ...], here: bytes) -> Mask:
    goes_on = [
        token
        for token in range(NUM_TOKENS)
        if token not in ENDS and any(each.startswith(here + PIECES[token]) for each in texts)
    ]
    return Mask.of([*goes_on, *(ENDS if here in texts else ())], NUM_TOKENS)


class Words:
    """A toy constraint: one of some texts, byte by byte or in larger tokens."""

    def __init__(self, *texts: str) -> None:
        self._texts = tuple(text.encode() for text in texts)
        self._written = [b""]

    def mask(self) -> Mask:
        """Return the tokens that go on with one of the texts."""
        return _mask_of_words(self._texts, self._written[-1])

    def forced(self) -> Sequence[int]:
        """Return nothing: a toy."""
        return ()

    def push(self, token: int) -> None:
        """Follow a token."""
        written = self._written[-1] + PIECES[token]
        if not self._fits(written):
            raise InvalidOption(f"no text begins with {written!r}")
        self._written.append(written)

    def pop(self, count: int) -> None:
        """Take tokens back."""
        del self._written[len(self._written) - count :]

    @property
    def is_over(self) -> bool:
        """Whether no text goes on."""
        here = self._written[-1]
        return self.is_complete and all(
            text == here or not text.startswith(here) for text in self._texts
        )

    @property
    def is_complete(self) -> bool:
        """Whether this is one of the texts."""
        return self._written[-1] in self._texts

    def _fits(self, written: bytes) -> bool:
        return any(text.startswith(written) for text in self._texts)


def after_reasoning(newlines: int = NEWLINES) -> PhasedConstraint:
    """Return the constraint of an answer that begins with reasoning."""
    return PhasedConstraint(
        {
            "reasoning": Free({"</think>": "answer"}),
            "answer": Constrained(lambda: Words(*TEXTS), newlines),
        },
        TOY,
    )


def allowed(constraint: Constraint) -> frozenset[int]:
    """Return the tokens that may come next."""
    return _allowed_by(constraint.mask())


@cache
def _allowed_by(mask: Mask | None) -> frozenset[int]:
    if mask is None:
        return frozenset(range(NUM_TOKENS))
    return frozenset(np.flatnonzero(mask.allowed(np.arange(NUM_TOKENS))).tolist())


def data_of(tokens: Sequence[int]) -> bytes:
    """Return the bytes of tokens."""
    return b"".join(PIECES[token] for token in tokens)


def is_fit_after_reasoning(data: bytes) -> bool:
    """Return True if bytes may begin an answer: reasoning, its end, line breaks, and a text."""
    _, mark, rest = data.partition(b"</think>")
    if not mark:
        return True
    text = rest.lstrip(b"\n")
    is_begun = any(each.encode().startswith(text) for each in TEXTS)
    return is_begun and len(rest) - len(text) <= NEWLINES


def expected(tokens: list[int]) -> set[int]:
    """Return the tokens that may follow, found by looking at the whole text again."""
    fit = {
        token
        for token in range(NUM_TOKENS)
        if token not in ENDS and PIECES[token] and is_fit_after_reasoning(data_of([*tokens, token]))
    }
    _, mark, rest = data_of(tokens).partition(b"</think>")
    return fit | (set(ENDS) if mark and rest.lstrip(b"\n").decode() in TEXTS else set())


@cache
def choices(tokens: frozenset[int]) -> tuple[list[int], list[int]]:
    """Return the tokens to draw from, and those among them that lead to the end of reasoning."""
    texts = sorted(tokens - set(ENDS))
    end = written("</think>\n")
    return texts, [token for token in texts if b"<" in PIECES[token] or token in end]


def drawn(random: Random, constraint: Constraint) -> int | None:
    """Return a token that is allowed, None if only the end is."""
    texts, likely = choices(allowed(constraint))
    if not texts:
        return None
    return random.choice(likely if likely and random.random() < 0.6 else texts)


@pytest.mark.slow(keep=3)
@pytest.mark.parametrize("part", range(10))
def test_no_place_after_the_mark_is_without_its_constraint(part: int) -> None:
    """In 1,000 answers the mark comes at every place of a draft, which is partly taken back.

    Each mask, in the draft and after it, holds exactly the tokens that the whole text allows.
    """
    places_of_mark: set[int] = set()
    constraint = after_reasoning()
    for seed in range(part, 1000, 10):
        random, kept = Random(seed), list[int]()
        is_examined = seed % 50 == part  # looking at the whole text takes time
        for _ in range(4):
            length = random.randrange(1, 7)
            drafted = list[int]()
            while len(drafted) < length and (token := drawn(random, constraint)) is not None:
                assert not is_examined or allowed(constraint) == expected([*kept, *drafted])
                constraint.push(token)
                drafted.append(token)
                if b"</think>" in data_of([*kept, *drafted]):
                    assert constraint.mask() is not None
                    if b"</think>" not in data_of([*kept, *drafted[:-1]]):
                        places_of_mark.add(len(drafted) - 1)
                assert is_fit_after_reasoning(data_of([*kept, *drafted]))
            num_kept = random.randrange(len(drafted) + 1)
            constraint.pop(len(drafted) - num_kept)
            kept += drafted[:num_kept]
        assert not is_examined or allowed(constraint) == expected(kept)
        constraint.pop(len(kept))
    assert places_of_mark == set(range(6))


@table(
    "mark",
    [[END_OF_THINKING], list(b"</think>"), [PIECES.index(b"x</"), PIECES.index(b"think>")]],
    ids=["a token", "bytes", "after other text"],
)
def test_a_mark_may_be_any_tokens(mark: list[int]) -> None:
    """It may be a special token, several tokens of text, or begin within a token."""
    constraint = after_reasoning()
    for token in (*written("Well, <no"), *mark):
        assert not constraint.is_complete
        assert not allowed(constraint) & set(ENDS)
        constraint.push(token)
    assert PIECES.index(b"{") in allowed(constraint)
    assert PIECES.index(b"x") not in allowed(constraint)
    for token in written('\n\n{"age": 12}'):
        constraint.push(token)
    assert constraint.is_over
    assert allowed(constraint) == set(ENDS)


def test_a_token_that_brings_refused_text_along_is_refused() -> None:
    """The mark with a line break is allowed where a line break is, and not where none is."""
    token = PIECES.index(b"</think>\n")
    constraint = after_reasoning(newlines=1)
    constraint.push(token)
    assert not allowed(constraint) & {PIECES.index(b"\n"), PIECES.index(b"\n\n")}
    constraint = after_reasoning(newlines=0)
    assert token not in allowed(constraint)
    with pytest.raises(InvalidOption, match="not allowed after 0 others"):
        constraint.push(token)
    constraint.push(END_OF_THINKING)
    assert PIECES.index(b"\n") not in allowed(constraint)


def test_a_token_may_bring_allowed_text_along() -> None:
    """The text after the mark is followed by the constraint, and taken back with its token."""
    phases: Mapping[str, Phase] = {
        "text": Free({"<": "call"}, may_end=True),
        "call": Constrained(lambda: Words("/think!", "a")),
    }
    constraint = PhasedConstraint(phases, TOY)
    slash = PIECES.index(b"</")
    assert {slash, END} <= allowed(constraint)
    constraint.push(slash)
    assert allowed(constraint) == {PIECES.index(b"t")}
    constraint.pop(1)
    assert {slash, END} <= allowed(constraint)
    constraint.push(PIECES.index(b"<"))
    assert allowed(constraint) == {PIECES.index(b"/"), PIECES.index(b"a")}


def calling() -> PhasedConstraint:
    """Return the constraint of an answer that may call tools any number of times."""
    phases: Mapping[str, Phase] = {
        "text": Free({"<tool_call>": "call"}, may_end=True),
        "call": Constrained(OBJECT.restarted, then="text"),
    }
    return PhasedConstraint(phases, TOY)


def test_calls_may_come_between_texts() -> None:
    """Each mark begins a new call; text of any kind, or the end, may follow it."""
    constraint, tokens = calling(), written('Hi <tool_call>{"age": 123}, and <tool_call>{}!')
    views = []
    for token in tokens:
        views.append((allowed(constraint), list(constraint.forced()), constraint.is_complete))
        assert token in allowed(constraint)
        constraint.push(token)
    first = tokens.index(CALL)
    assert constraint.mask() is None
    assert [is_complete for _, _, is_complete in views[: first + 3]] == [True] * 4 + [False] * 2
    for count in (3, 1, len(tokens) - 4):
        constraint.pop(count)
        place = len(tokens) - count
        assert (allowed(constraint), list(constraint.forced()), constraint.is_complete) == (
            views[place]
        )
        for token in tokens[place:]:
            constraint.push(token)
    assert constraint.is_complete
    assert not constraint.is_over


def opened() -> PhasedConstraint:
    """Return the constraint of an answer that may begin with reasoning."""
    phases: Mapping[str, Phase] = {
        "answer": Constrained(OBJECT.restarted, newlines=1, openings={"<think>": "reasoning"}),
        "reasoning": Free({"</think>": "answer"}),
    }
    return PhasedConstraint(phases, TOY)


@table("opening", ["<think>", "\n<think>", "in parts"])
def test_reasoning_may_come_first(opening: str) -> None:
    """An answer begins with the mark of reasoning or at once."""
    constraint = opened()
    assert constraint.forced() == ()
    tokens = written(opening) if opening != "in parts" else list(b"<think>")
    for token in (*tokens, *written('Hm.</think>{"age": 12}')):
        assert token in allowed(constraint)
        constraint.push(token)
    assert constraint.is_over
    constraint = opened()
    for token in written('{"age": 12}'):
        assert token in allowed(constraint)
        constraint.push(token)
    assert constraint.is_over


def test_a_mark_that_is_begun_must_be_finished() -> None:
    """What began as the mark of reasoning goes on as it."""
    constraint = opened()
    constraint.push(PIECES.index(b"<"))
    assert {PIECES[token] for token in allowed(constraint)} == {b"t", b"think>"}
    assert not constraint.is_complete
    constraint.pop(1)
    assert PIECES.index(b"{") in allowed(constraint)


def test_a_constraint_says_what_is_forced() -> None:
    """Only while it alone says what may come."""
    alone = OBJECT.restarted()
    constraint = PhasedConstraint({"answer": Constrained(OBJECT.restarted)}, TOY)
    for token in written('{"age": 12}'):
        assert list(constraint.forced()) == list(alone.forced())
        constraint.push(token)
        alone.push(token)
    waiting = PhasedConstraint({"answer": Constrained(OBJECT.restarted, newlines=1)}, TOY)
    assert waiting.forced() == ()
    waiting.push(written("\n")[0])
    assert waiting.forced() == OBJECT.restarted().forced() != ()


def test_a_phase_without_marks_never_ends() -> None:
    """Such as the text of a model that calls no tools."""
    constraint = PhasedConstraint({"text": Free({}, may_end=True)}, TOY)
    for token in written("<tool_call>\n</think>"):
        assert constraint.mask() is None
        constraint.push(token)
    assert constraint.is_complete


def test_a_mark_that_counts_at_the_beginning_only_is_text_elsewhere() -> None:
    """White space may come before it, in the same token too; behind any other text it is text."""
    phases: Mapping[str, Phase] = {
        "answer": Free({"</": "call"}, may_end=True, otherwise="any"),
        "any": Free({}, may_end=True),
        "call": Constrained(lambda: Words("think>")),
    }
    constraint = PhasedConstraint(phases, TOY)
    constraint.push(PIECES.index(b"x</"))
    assert constraint.mask() is None
    assert constraint.is_complete
    constraint.pop(1)
    for token in (*written("\n\n"), PIECES.index(b"</")):
        constraint.push(token)
    assert allowed(constraint) == {PIECES.index(b"t"), PIECES.index(b"think>")}
    assert not constraint.is_complete


def test_further_ends_are_allowed_where_the_answer_may_end_and_nowhere_else() -> None:
    """Also where any text may come, and after tokens that are taken back."""
    further, number = CALL, Constrained(lambda: Words("12", "123"), NEWLINES)
    phases: Mapping[str, Phase] = {"reasoning": Free({"</think>": "answer"}), "answer": number}
    constraint = PhasedConstraint(phases, TOY, [further])
    for token in (PIECES.index(b"x"), END_OF_THINKING):
        assert constraint.mask() is constraint.mask()
        assert allowed(constraint) == frozenset(range(NUM_TOKENS)) - {*ENDS, further}
        constraint.push(token)
    assert allowed(constraint) & {*ENDS, further, *written("12")} == set(written("12"))
    constraint.push(*written("12"))
    assert allowed(constraint) == {*written("3"), *ENDS, further}
    constraint.push(*written("3"))
    assert constraint.is_over
    constraint.pop(3)
    assert further not in allowed(constraint)

    anything = PhasedConstraint({"text": Free({}, may_end=True)}, TOY, [further])
    assert anything.mask() is None


class Weary(Words):
    """A toy constraint that gives up for good where a text begins with a digit."""

    has_given_up = False

    def push(self, token: int) -> None:
        """Follow a token."""
        self.has_given_up |= PIECES[token] == b"1"
        if self.has_given_up:
            raise EngineFailed("too complex")
        super().push(token)


def test_a_constraint_that_gives_up_refuses_one_token_only() -> None:
    """What other tokens bring along is tried with another one."""
    phases: Mapping[str, Phase] = {
        "text": Free({' "': "call", "<": "call"}),
        "call": Constrained(lambda: Weary("/", "b")),
    }
    constraint = PhasedConstraint(phases, TOY)
    assert not constraint._accepts("call", written("1"))
    assert constraint._accepts("call", written("/"))
    assert PIECES.index(b"</") in allowed(constraint)
