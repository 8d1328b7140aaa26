"""Following texts through structures by single bytes, without a model."""

from __future__ import annotations

import json
import random
from collections.abc import Collection

import numpy as np

from specchat.decoding.constraint import Constraint
from specchat.errors import InvalidOption
from specchat.structured.grammar_constraint import GrammarConstraint
from specchat.structured.grammar_source import grammar_of
from specchat.structured.grammar_vocabulary import GrammarVocabulary
from specchat.structured.structure import Check, Structure

END = 256
PIECES = (*(bytes([byte]) for byte in range(256)), b"<end>")
BYTES = GrammarVocabulary(
    len(PIECES), PIECES.__getitem__, END.__eq__, (END,), lambda text: list(text.encode())
)
"""A vocabulary of all bytes and an end."""


def compiled(schema: object, check: Check = "strict") -> GrammarConstraint:
    """Return the constraint of a JSON Schema. Raises InvalidOption if it cannot be enforced."""
    return GrammarConstraint(grammar_of(Structure("json_schema", json.dumps(schema), check)), BYTES)


def accepts(constraint: GrammarConstraint, value: object) -> bool:
    """Return True if a value may be written as an answer."""
    here = constraint.restarted()
    try:
        for byte in json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass"):
            here.push(byte)
    except InvalidOption:
        return False
    return here.is_complete


def random_text(
    constraint: Constraint,
    vocabulary: GrammarVocabulary,
    chance: random.Random,
    longest: int = 3000,
) -> tuple[str | None, int, int]:
    """Return a random text that a constraint allows, and its tokens: forced ones, and all.

    Quotes and closing brackets are likely, so that most texts end; None for one that does not.
    """
    ids = np.arange(vocabulary.size)
    closing = np.array([_closes(vocabulary.piece(token)) for token in ids.tolist()])
    tokens: list[int] = []
    num_forced = 0
    while len(tokens) < longest and not constraint.is_over:
        run = list(constraint.forced())
        num_forced += len(run)
        if not run:
            mask = constraint.mask()
            flags = np.ones(ids.size, dtype=bool) if mask is None else mask.allowed(ids)
            token = _drawn(flags, closing, vocabulary.end_tokens, chance)
            if token is None:
                break
            run = [token]
        for token in run:
            constraint.push(token)
        tokens += run
    if not constraint.is_complete:
        return None, num_forced, len(tokens)
    text = b"".join(map(vocabulary.piece, tokens)).decode()
    return text, num_forced, len(tokens)


def _closes(piece: bytes) -> bool:
    return piece[:1] in {b'"', b"}", b"]"}


def _drawn(
    flags: np.ndarray[tuple[int], np.dtype[np.bool_]],
    closing: np.ndarray[tuple[int], np.dtype[np.bool_]],
    ends: Collection[int],
    chance: random.Random,
) -> int | None:
    """Return a token that is allowed; None if the end is, and is drawn."""
    can_end = any(flags[end] for end in ends)
    if can_end and chance.random() < 0.5:
        return None
    flags[list(ends)] = False
    likely = np.flatnonzero(flags & closing)
    allowed = likely if likely.size and chance.random() < 0.3 else np.flatnonzero(flags)
    return int(allowed[chance.randrange(allowed.size)]) if allowed.size else None
