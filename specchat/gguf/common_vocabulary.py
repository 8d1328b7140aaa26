"""The tokens that two vocabularies have in common: those that stand for the same bytes.

A draft model whose vocabulary differs from the target's drafts only these (token-level
intersection, Timor et al. 2025, arXiv 2502.05202).
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from specchat.errors import IncompatibleDraft
from specchat.gguf.header import Header, LongArray
from specchat.gguf.reader import NUMBERS, opened
from specchat.gguf.vocabulary_facts import (
    ALWAYS_ADDS_BOS,
    KINDS,
    mismatch,
    token_texts,
    vocabulary_of,
)
from specchat.wording import percent

SMALLEST_SHARE = 0.5
"""The share of the smaller vocabulary that must be common for a draft to be useful."""
TYPES = "tokenizer.ggml.token_type"
NORMAL, USER_DEFINED, BYTE = 1, 4, 6
"""The types of tokens that stand for text (enum llama_token_type); others are control tokens."""
SPACE = "\u2581".encode()
"""SentencePiece's stand-in for a space."""
WITH_SPACES = ALWAYS_ADDS_BOS | {"sarvam-moe"}
"""The BPE pre-tokenizers whose tokens are written as SentencePiece's are."""
BYTE_NAME = re.compile(rb"<0x([0-9A-Fa-f]{2})>")
PRINTABLE = (*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100))
OTHERS = [byte for byte in range(256) if byte not in PRINTABLE]
BYTES = (
    {byte: byte for byte in PRINTABLE}
    | {256 + rank: byte for rank, byte in enumerate(OTHERS)}
    | dict.fromkeys(OTHERS, 0xFFFD)
)
"""The byte for each character of a byte-level tokenizer (GPT-2's); other characters have none."""


@dataclass(frozen=True)
class Tokens:
    """The tokens of a vocabulary: their names in the file, and the bytes that they stand for.

    The bytes of a control token are empty, and of all tokens if the tokenizer is not supported.
    """

    names: Sequence[bytes]
    pieces: Sequence[bytes]

    @cached_property
    def by_piece(self) -> dict[bytes, int]:
        """The token for each byte string.

        If several tokens stand for the same bytes, it is the last one: SentencePiece lists the
        tokens of single bytes first.
        """
        tokens = {piece: token for token, piece in enumerate(self.pieces)}
        tokens.pop(b"", None)
        return tokens


@dataclass(frozen=True)
class CommonVocabulary:
    """The different vocabularies of a target and its draft model."""

    target: Tokens
    draft: Tokens

    @cached_property
    def pairs(self) -> dict[int, int]:
        """The draft's ids of the common tokens, by the target's."""
        by_piece = self.draft.by_piece
        return {
            token: by_piece[piece]
            for piece, token in self.target.by_piece.items()
            if piece in by_piece
        }

    @property
    def share(self) -> float:
        """The share of the smaller vocabulary that is common."""
        smaller = min(len(self.target.by_piece), len(self.draft.by_piece))
        return len(self.pairs) / max(1, smaller)

    def __str__(self) -> str:
        return f"another vocabulary, {percent(self.share)} of it in common"


def common_vocabulary(target: Header, draft: Header) -> CommonVocabulary | None:
    """Return the common part of two vocabularies, None if the draft's fits as it is.

    Raises IncompatibleDraft, with the rule of `mismatch` that failed, if they have too little in
    common.
    """
    texts = zip(token_texts(target), token_texts(draft), strict=False)
    reason = mismatch(vocabulary_of(target), vocabulary_of(draft), texts)
    if reason is None:
        return None
    common = CommonVocabulary(read_tokens(target), read_tokens(draft))
    if common.share < SMALLEST_SHARE:
        raise IncompatibleDraft(
            f"the draft model does not fit the target: {reason}, and they have only"
            f" {percent(common.share)} of the smaller vocabulary in common; choose a draft model of"
            " the same family, or --drafter none"
        )
    return common


def read_tokens(header: Header) -> Tokens:
    """Return a model's tokens. Raises as `read_header` does if the file has changed."""
    names = list(token_texts(header, 0))
    model, pre = header.text("tokenizer.ggml.model"), header.text("tokenizer.ggml.pre")
    has_spaces = KINDS.get(model) == "SPM" or not WITH_SPACES.isdisjoint({model, pre})
    if not has_spaces and KINDS.get(model) != "BPE":
        return Tokens(names, [b""] * len(names))
    decode = _with_spaces if has_spaces else _byte_pairs
    types = [*_types(header, len(names)), *[NORMAL] * len(names)]
    return Tokens(names, [_piece(*pair, decode) for pair in zip(names, types, strict=False)])


def _piece(name: bytes, kind: object, decode: Callable[[bytes], bytes]) -> bytes:
    """Return the bytes of a token, as llama.cpp's token_to_piece does."""
    if kind == NORMAL:
        return decode(name)
    if kind == BYTE:
        number = BYTE_NAME.fullmatch(name)
        return bytes.fromhex(number[1].decode()) if number else b""
    return name if kind == USER_DEFINED else b""


def _with_spaces(name: bytes) -> bytes:
    return name.replace(SPACE, b" ")


def _byte_pairs(name: bytes) -> bytes:
    """Return the bytes for a byte-level tokenizer's characters; empty if one is unknown."""
    try:
        return name.decode().translate(BYTES).encode("latin-1")
    except UnicodeError:
        return b""


def _types(header: Header, most: int) -> Sequence[object]:
    """Return the types of the tokens, empty if the file does not list them."""
    types = header.metadata.get(TYPES)
    if not isinstance(types, LongArray):
        return types[:most] if isinstance(types, tuple) else ()
    number = dict(NUMBERS.values()).get(types.kind)
    if number is None:
        return ()
    with opened(header.path, types.position) as cursor:
        return cursor.numbers(number, min(types.length, most))
