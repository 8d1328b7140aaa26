"""Toy models of a target and a draft: with the same tokens, and with others for the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.drafting.token_map import CommonTokenMap, TokenMap
from specchat.gguf.common_vocabulary import CommonVocabulary, Tokens
from specchat.testing.toy import LogitsAfter, random_logits

TARGET = [b"a", b"b", b"c", b"ab", b"bc"]
DRAFT = [b"cc", b"c", b"a", b"ba", b"b"]
"""In common are a, b and c."""
START = b"ab"


@dataclass
class Special:
    """What a loaded vocabulary says of its tokens."""

    end_tokens: Collection[int] = ()
    first: int | None = None
    usual: Sequence[int] = field(default=(-1, -1))

    def bos(self) -> int | None:
        """Return the token that begins texts."""
        return self.first

    def usual_ends(self) -> Sequence[int]:
        """Return the tokens that end a turn and a text."""
        return self.usual


def tokens_of(pieces: Sequence[bytes | str]) -> Tokens:
    """Return a vocabulary of these pieces; texts are the names of control tokens."""
    names = [each if isinstance(each, bytes) else each.encode() for each in pieces]
    return Tokens(names, [each if isinstance(each, bytes) else b"" for each in pieces])


def map_of(
    target: Sequence[bytes | str] = TARGET,
    draft: Sequence[bytes | str] = DRAFT,
    *special: Special,
    kind: type[CommonTokenMap] = CommonTokenMap,
) -> CommonTokenMap:
    """Return the map of two vocabularies."""
    common = CommonVocabulary(tokens_of(target), tokens_of(draft))
    return kind(common, *(special or (Special(), Special())))


def writing(pieces: Sequence[bytes], seed: int, scale: float = 1.5) -> LogitsAfter:
    """Return a model whose logits depend on the last two bytes of the text alone.

    Two of one seed agree on every piece that both have.
    """
    known: dict[tuple[bytes, bytes], float] = {}

    def logit(last: bytes, piece: bytes) -> float:
        if (last, piece) not in known:
            numbers = np.random.default_rng([seed, *last, 256, *piece])
            known[last, piece] = scale * numbers.normal()
        return known[last, piece]

    def after(tokens: Sequence[int]) -> Logits:
        last = (START + b"".join(pieces[token] for token in tokens[-2:]))[-2:]
        return np.array([logit(last, piece) for piece in pieces], dtype=np.float32)

    return after


@dataclass(frozen=True)
class ToyModels:
    """Makers of a target and a draft model with five tokens each, and of the map between them.

    Models of one seed agree on every token that both have.
    """

    target: Callable[[int], LogitsAfter]
    draft: Callable[[int], LogitsAfter]
    token_map: Callable[[], TokenMap]


MODELS = {
    "same tokens": ToyModels(
        partial(random_logits, 5), partial(random_logits, 5), lambda: TokenMap(5)
    ),
    "other tokens": ToyModels(partial(writing, TARGET), partial(writing, DRAFT), map_of),
}


def is_remembered(
    memory: Sequence[int], transcript: Sequence[int], token_map: TokenMap, capacity: int
) -> bool:
    """Return True if a draft model's memory begins its reading of a text, or of its last tokens."""
    read = token_map.prompt(transcript)
    starts = range(len(read)) if len(read) > capacity else [0]
    return any(read[start : start + len(memory)] == memory for start in starts)
