"""Constraints that llguidance follows: what they allow, force, take back and refuse."""

from __future__ import annotations

import json
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest

from specchat.errors import InvalidOption
from specchat.structured.grammar_constraint import NUM_KEPT, GrammarConstraint
from specchat.structured.grammar_source import grammar_of, lark_grammar
from specchat.structured.structure import Structure, StructureKind
from structured.toy_vocabulary import CALL, END, END_OF_CALL, ENDS, PIECES, TOY, text_of, written
from tables import table

PERSON = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "kind": {"enum": ["alpha", "beta", "<think>"]},
    },
    "required": ["name", "age", "kind"],
}
LIST_OF_PEOPLE = {"type": "array", "items": PERSON, "maxItems": 3}
GBNF = 'root ::= ("yes" | "no") ws "!"\nws ::= [ \\n]*'
STRUCTURES = {
    "object": Structure("json_schema", json.dumps(PERSON)),
    "array": Structure("json_schema", json.dumps(LIST_OF_PEOPLE)),
    "any value": Structure("json_schema", "{}"),
    "expression": Structure("regex", r"(abc|ab){1,4}-\d{2,5}"),
    "choices": Structure("choices", '["yes", "yes please", "no", "né"]'),
    "lark": Structure("lark", 'start: "al" word+ "!"\nword: /[a-z]{1,4}/ " "'),
    "gbnf": Structure("gbnf", GBNF),
}


def started(structure: Structure) -> GrammarConstraint:
    """Return the constraint of a structure on the toy's vocabulary."""
    return _compiled(structure).restarted()


@cache
def _compiled(structure: Structure) -> GrammarConstraint:
    return GrammarConstraint(grammar_of(structure), TOY)


def allowed(constraint: GrammarConstraint) -> list[int]:
    """Return the tokens that may come next."""
    return np.flatnonzero(constraint.mask().allowed(np.arange(len(PIECES)))).tolist()


def follow(constraint: GrammarConstraint, text: str) -> None:
    """Follow a text in which special tokens are written by name."""
    for token in written(text):
        constraint.push(token)


def view(constraint: GrammarConstraint) -> tuple[Any, ...]:
    """Return all that a constraint says of its place."""
    places = (allowed(constraint), list(constraint.forced()))
    return (*places, constraint.is_over, constraint.is_complete)


def test_a_schema_allows_its_texts_and_no_others() -> None:
    """Json in one line with closed objects; the end comes when the object is complete."""
    constraint = started(STRUCTURES["object"])
    follow(constraint, '{"name": "al", "age": 12, "kind": "alpha"')
    assert not constraint.is_complete
    assert [PIECES[token] for token in allowed(constraint)] == [b"}"]
    follow(constraint, "}")
    assert constraint.is_over
    assert constraint.is_complete
    assert allowed(constraint) == list(ENDS)


@table(
    ("kind", "source", "good", "bad"),
    [
        ("json_schema", '{"type": "boolean"}', ["true", "false"], ["null", "True", " true"]),
        ("json_schema", '{"enum": [1, "a"]}', ["1", '"a"'], ["2", '"b"', "a"]),
        ("json_schema", "true", ["null", '[1, {"a": []}]'], ["nul", "[1 ,2]", "{a}"]),
        ("regex", r"\d{2}(-\d)?", ["12", "12-3"], ["1", "123", "12-"]),
        ("regex", "^ab$", ["ab"], ["a", "abc"]),
        ("choices", '["yes", "yes please"]', ["yes", "yes please"], ["ye", "yes ", "no"]),
        ("choices", '["a\\"b\\\\", "\\n"]', ['a"b\\', "\n"], ["a", "n"]),
        ("lark", 'start: "a"+ "b"', ["ab", "aaab"], ["b", "aa", "abb"]),
        ("gbnf", GBNF, ["yes!", "no \n!"], ["yes", "no?"]),
    ],
)
def test_each_kind_of_structure(
    kind: StructureKind, source: str, good: list[str], bad: list[str]
) -> None:
    """The grammar of each kind accepts what it should and nothing else."""

    def accepts(text: str) -> bool:
        constraint = started(Structure(kind, source))
        try:
            follow(constraint, text)
        except InvalidOption:
            return False
        return constraint.is_complete

    assert [text for text in good if not accepts(text)] == []
    assert [text for text in bad if accepts(text)] == []


@table("structure", STRUCTURES.values(), ids=STRUCTURES.keys())
def test_walks_with_drafts_equal_fresh_constraints(structure: Structure) -> None:
    """After any drafts and partial rollbacks a constraint says what a fresh one says."""
    for seed in range(15):
        random, kept = Random(seed), list[int]()
        constraint = started(structure)
        for _ in range(12):
            drafted = 0
            while drafted < random.randrange(7) and not constraint.is_over:
                choices = [token for token in allowed(constraint) if token not in ENDS]
                if not choices:
                    break
                constraint.push(token := random.choice(choices))
                kept.append(token)
                drafted += 1
            taken_back = random.randrange(drafted + 1)
            constraint.pop(taken_back)
            del kept[len(kept) - taken_back :]
            fresh = started(structure)
            for token in kept:
                fresh.push(token)
            assert view(constraint) == view(fresh), text_of(kept)


@table("structure", STRUCTURES.values(), ids=STRUCTURES.keys())
def test_forced_tokens_are_the_only_ones_allowed(structure: Structure) -> None:
    """Along each run that is forced, from its beginning and its middle, masks hold one token."""
    num_forced = 0
    for seed in range(40):
        random, constraint = Random(seed), started(structure)
        for _ in range(60):
            run = list(constraint.forced())
            for index, token in enumerate(run):
                assert allowed(constraint) == [token]
                assert list(constraint.forced()) == run[index:]
                constraint.push(token)
            num_forced += len(run)
            choices = [token for token in allowed(constraint) if token not in ENDS]
            if not choices:
                break
            constraint.push(random.choice(choices))
        assert constraint.is_over <= constraint.is_complete
    assert num_forced > 0 or structure.kind in {"regex", "json_schema"}


@table("token", [-1, len(PIECES), 10**9, END, CALL, written("x")[0]])
def test_a_refused_token_changes_nothing(token: int) -> None:
    """A token that is not allowed, also one that does not exist, is refused and that is all."""
    constraint = started(STRUCTURES["choices"])
    before = view(constraint)
    with pytest.raises(InvalidOption, match=f"token {token} is not allowed after 0 others"):
        constraint.push(token)
    assert view(constraint) == before
    follow(constraint, "no")
    assert constraint.is_complete


def test_nothing_follows_the_end() -> None:
    """A constraint that is over refuses all tokens, forces none, and can be taken back."""
    constraint = started(STRUCTURES["object"])
    text = '{"name": "al", "age": 12, "kind": "beta"}'
    follow(constraint, text)
    for token in (*ENDS, written("}")[0], written(" ")[0]):
        with pytest.raises(InvalidOption):
            constraint.push(token)
    assert constraint.forced() == ()
    constraint.pop(len(written(text)))
    follow(constraint, text)
    assert constraint.is_over


def test_special_tokens_are_no_text() -> None:
    """A string may contain the name of a special token, but not the token."""
    constraint = started(Structure("json_schema", '{"type": "string"}'))
    constraint.push(written('"')[0])
    assert not set(allowed(constraint)) & {CALL, END}
    follow(constraint, "<tool")
    for token in b'_call>"':
        constraint.push(token)
    assert constraint.is_complete


def test_marks_around_a_text_are_special_tokens() -> None:
    """A grammar names them, and all that can be is forced."""
    text = f'start: <[{CALL}]> "\\n\\"" ("al" | "ta") "\\"\\n" <[{END_OF_CALL}]>'
    constraint = GrammarConstraint(lark_grammar(text, "the calls"), TOY)
    assert list(constraint.forced()) == written('<tool_call>\n"')
    follow(constraint, '<tool_call>\n"a')
    assert text_of(list(constraint.forced())) == 'l"\n</tool_call>'
    follow(constraint, 'l"\n</tool_call>')
    assert constraint.is_over


OPTIONAL = {
    "type": "object",
    "properties": {
        "c": {
            "type": "object",
            "properties": {"department": {"type": "string"}, "school": {"type": "string"}},
        },
        "f": {"type": "integer"},
    },
    "required": ["c"],
}


@table("num_drafted", range(1, 14))
def test_a_draft_that_was_taken_back_leaves_no_trace_in_later_masks(num_drafted: int) -> None:
    """As llguidance's own rollback does: the last property of an object is followed by no comma."""
    structure = Structure("json_schema", json.dumps(OPTIONAL))
    constraint, fresh = started(structure), started(structure)
    follow(constraint, '{"c": {"')
    for token in written('school": "ab')[:num_drafted]:
        constraint.push(token)
        constraint.mask()
    constraint.pop(len(written('school": "ab')[:num_drafted]))
    follow(fresh, '{"c": {"')
    for token in written('department": "Sci", "school": "x"}, "f": 1'):
        assert allowed(constraint) == allowed(fresh)
        assert list(constraint.forced()) == list(fresh.forced())
        constraint.push(token)
        fresh.push(token)


@table("name", STRUCTURES)
def test_random_drafts_leave_no_trace(name: str) -> None:
    """Masks behind an answer are those of a constraint that never saw a draft."""
    random = Random(7)
    for _ in range(6):
        constraint, fresh = started(STRUCTURES[name]), started(STRUCTURES[name])
        for _ in range(40):
            drafted = 0
            while drafted < 6 and not constraint.is_over and random.random() < 0.8:
                options = [token for token in allowed(constraint) if token not in ENDS]
                if not options:
                    break
                constraint.push(random.choice(options))
                drafted += 1
            constraint.pop(drafted)
            options = [token for token in allowed(fresh) if token not in ENDS]
            assert allowed(constraint) == allowed(fresh)
            if fresh.is_over or not options:
                break
            token = random.choice(options)
            constraint.push(token)
            fresh.push(token)


def test_more_tokens_than_are_kept_can_be_taken_back() -> None:
    """By following the answer again."""
    constraint, fresh = started(STRUCTURES["any value"]), started(STRUCTURES["any value"])
    follow(fresh, '["a')
    follow(constraint, '["a')
    tokens = written("b" * (2 * NUM_KEPT))
    for token in tokens:
        constraint.push(token)
    constraint.pop(len(tokens))
    assert allowed(constraint) == allowed(fresh)
    follow(constraint, 'b"]')
    assert constraint.is_complete
