"""Calls that begin with a brace count only where an answer begins."""

from __future__ import annotations

import pytest

from call_check import ByteVocabulary
from specchat.constraints.phased_constraint import PhasedConstraint
from specchat.constraints.phases import Constrained, Free, Phase
from specchat.errors import InvalidOption
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.structure import Structure
from tables import table

OPENING = '{"name": "'
VOCABULARY = ByteVocabulary()
CALL = GrammarConstraint(
    grammar_of(Structure("lark", r'start: "look\"}" | "find\"}"')), VOCABULARY.grammars
)


def constraint() -> PhasedConstraint:
    """Return a constraint of which calls are `{"name": "look"}` and `{"name": "find"}`."""
    phases: dict[str, Phase] = {
        "answer": Free({OPENING: "call"}, may_end=True, otherwise="any"),
        "any": Free({}, may_end=True),
        "call": Constrained(CALL.restarted),
    }
    return PhasedConstraint(phases, VOCABULARY.grammars)


def follow(found: PhasedConstraint, text: str) -> None:
    """Follow the bytes of a text."""
    for byte in text.encode():
        found.push(byte)


@table("before", ["", " ", "\n\n"])
def test_an_answer_that_begins_with_a_call_is_one(before: str) -> None:
    """White space aside; it is over with the call, and its name is forced once it is sure."""
    found = constraint()
    follow(found, f"{before}{OPENING}l")

    assert bytes(found.forced()) == b'ook"}'
    assert not found.is_complete
    with pytest.raises(InvalidOption):
        found.push(ord("a"))
    follow(found, 'ook"}')
    assert found.is_over


@table("text", ['So: {"name": "any"}', '{"size": {"name": "any"}}', "Hm"])
def test_an_answer_that_begins_otherwise_may_be_any(text: str) -> None:
    """Also if what a call begins with comes later."""
    found = constraint()
    follow(found, text)

    assert found.mask() is None
    assert list(found.forced()) == []
    assert found.is_complete
    assert not found.is_over


def test_tokens_can_be_taken_back_from_every_place() -> None:
    """From within a call, and from where the answer turned out to be none."""
    found = constraint()
    follow(found, f"{OPENING}look")
    found.pop(5)
    follow(found, "7}")
    assert found.mask() is None
    found.pop(2)
    follow(found, '"find"}')
    assert found.is_over
    found.pop(len(OPENING) + 6)
    follow(found, "Hm")
    assert found.is_complete
