"""Grammars on the vocabularies of real models: masks, forced tokens and texts."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from random import Random

import jsonschema_rs
import numpy as np
import pytest

from specchat.catalogue.pairs import find_pair
from specchat.llama.model import Model
from specchat.llama.tokenizer import Vocabulary
from specchat.planning.context_shape import ModelOptions
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of, lark_grammar
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.structure import Structure

CALL = {
    "type": "object",
    "properties": {
        "name": {"enum": ["find_restaurants", "find_rest", "größe  <table>"]},
        "arguments": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "maxLength": 30},
                "open_now": {"type": "boolean"},
                "max_distance_in_km": {"type": "number", "minimum": 0, "maximum": 50},
                "tags": {"type": "array", "items": {"enum": ["vegan", "vegetarian"]}},
                "opening": {"type": "string", "format": "date"},
            },
            "required": ["city", "max_distance_in_km", "tags"],
        },
    },
    "required": ["name", "arguments"],
}


@pytest.fixture(scope="module", params=["demo", "smollm2"])
def words(request: pytest.FixtureRequest) -> Iterator[Vocabulary]:
    """Yield the vocabulary of the demo pair, and that of the real model where it is."""
    if request.param == "demo":
        path = find_pair("demo").target
    else:
        path = request.getfixturevalue("smollm2")
    with Model(path, ModelOptions()) as model:
        yield model.vocabulary


@pytest.fixture(scope="module")
def texts(words: Vocabulary) -> GrammarVocabulary:
    """Return the vocabulary as grammars need it."""
    return GrammarVocabulary(
        words.size,
        words.named_piece,
        words.is_control,
        words.end_tokens,
        lambda text: words.tokenize_more(text, parse_special=False),
    )


@pytest.fixture(scope="module")
def calling(texts: GrammarVocabulary) -> GrammarConstraint:
    """Return the constraint of a call."""
    return GrammarConstraint(grammar_of(Structure("json_schema", json.dumps(CALL))), texts)


def allowed(constraint: GrammarConstraint, texts: GrammarVocabulary) -> list[int]:
    """Return the tokens that may come next."""
    return np.flatnonzero(constraint.mask().allowed(np.arange(texts.size))).tolist()


def drawn(constraint: GrammarConstraint, texts: GrammarVocabulary, chance: Random) -> int | None:
    """Return a token that may come, often one that closes something; None if only the end may."""
    choices = [each for each in allowed(constraint, texts) if each not in texts.end_tokens]
    closing = [each for each in choices if texts.piece(each)[:1] in {b'"', b"}", b"]"}]
    if not choices:
        return None
    return chance.choice(closing if closing and chance.random() < 0.3 else choices)


@pytest.mark.slow(keep=1)
def test_texts_are_valid_and_forced_tokens_are_certain(
    calling: GrammarConstraint, texts: GrammarVocabulary
) -> None:
    """Each mask along a forced run holds one token, the run's; each text is valid."""
    num_tokens = num_forced = 0
    for seed in range(6):
        constraint, chance, tokens = calling.restarted(), Random(seed), list[int]()
        while not constraint.is_over:
            run = list(constraint.forced())
            for token in run:
                assert allowed(constraint, texts) == [token]
                constraint.push(token)
            tokens += run
            num_forced += len(run)
            if constraint.is_over:
                break
            chosen = drawn(constraint, texts, chance)
            assert chosen is not None
            constraint.push(chosen)
            tokens.append(chosen)
        num_tokens += len(tokens)
        text = b"".join(map(texts.piece, tokens)).decode()
        jsonschema_rs.validate(CALL, json.loads(text))
        assert constraint.mask().allowed(np.array(sorted(texts.end_tokens))).all()
    assert 0 < num_forced < num_tokens


def test_drafts_and_rollbacks_leave_no_trace(
    calling: GrammarConstraint, texts: GrammarVocabulary
) -> None:
    """After each of them, the constraint says what a fresh one says after the same tokens."""
    chance, constraint, kept = Random(3), calling.restarted(), list[int]()
    for _ in range(25):
        draft = list[int]()
        while len(draft) < chance.randrange(9):
            if (token := drawn(constraint, texts, chance)) is None:
                break
            constraint.push(token)
            draft.append(token)
        num_kept = chance.randrange(len(draft) + 1)
        constraint.pop(len(draft) - num_kept)
        kept += draft[:num_kept]
        fresh = calling.restarted()
        for token in kept:
            fresh.push(token)
        assert allowed(constraint, texts) == allowed(fresh, texts)
        assert list(constraint.forced()) == list(fresh.forced())
        assert constraint.is_complete == fresh.is_complete


def test_special_tokens_are_written_only_where_a_grammar_names_them(
    words: Vocabulary, texts: GrammarVocabulary
) -> None:
    """A mark around a call is one token; no string contains it."""
    mark = next(
        name
        for token in range(words.size)
        if words.is_control(token) and token not in words.end_tokens
        for name in [words.name(token)]
        if len(name) > 3
    )
    (token,) = words.tokenize(mark, add_special=False, parse_special=True)
    assert texts.split(f"a{mark}b") == ["a", token, "b"]
    text = '%json {"type": "string", "maxLength": 40}'
    grammar = lark_grammar(f"start: <[{token}]> text <[{token}]>\ntext: {text}", "a marked text")
    constraint = GrammarConstraint(grammar, texts)
    assert next(iter(constraint.forced())) == token
    constraint.push(token)
    for each in texts.tokenize('"' + mark):
        assert token not in allowed(constraint, texts)
        constraint.push(each)
    assert not set(allowed(constraint, texts)) & {token, *words.end_tokens}
    for each in texts.tokenize('"'):
        constraint.push(each)
    assert list(constraint.forced()) == [token]


def test_masks_behind_a_draft_that_was_taken_back_are_those_of_none(
    words: Vocabulary, texts: GrammarVocabulary
) -> None:
    """Llguidance's own rollback (1.9.1) kept the mask of a string in the last property."""
    inner = {"department": {"type": "string"}, "school": {"type": "string"}}
    schema = {
        "type": "object",
        "properties": {"c": {"type": "object", "properties": inner}, "f": {"type": "integer"}},
        "required": ["c"],
    }
    grammar = grammar_of(Structure("json_schema", json.dumps(schema)))

    def tokens_of(text: str) -> Sequence[int]:
        return words.tokenize_more(text, parse_special=False)

    for drafted in ('school": "', 'school": "a b', 'department": "'):
        constraint, fresh = (GrammarConstraint(grammar, texts) for _ in range(2))
        for token in tokens_of('{"c": {"'):
            constraint.push(token)
            fresh.push(token)
        for token in tokens_of(drafted):
            constraint.push(token)
            constraint.mask()
        constraint.pop(len(tokens_of(drafted)))
        for token in tokens_of('department": "Sci'):
            constraint.push(token)
            fresh.push(token)
        assert allowed(constraint, texts) == allowed(fresh, texts)
