"""A model's vocabulary as llguidance reads it."""

import re
from collections.abc import Callable, Collection, Sequence
from functools import cached_property
from threading import Lock

from llguidance import LLTokenizer, TokenizerWrapper

from specchat.errors import InvalidOption


class GrammarVocabulary:
    """The bytes of a model's tokens and its tokenizer, arranged for llguidance when first needed.

    Arranging takes a quarter of a second for 49,000 tokens and two seconds for 260,000, so a model
    has one of these. Valid as long as the functions it was given are.
    """

    def __init__(
        self,
        size: int,
        piece: Callable[[int], bytes],
        is_special: Callable[[int], bool],
        end_tokens: Collection[int],
        tokenize: Callable[[str], Sequence[int]],
    ) -> None:
        """Keep the functions that describe `size` tokens.

        `piece` returns the bytes of a token in a text, and the name of a special one. Special
        tokens (control tokens, and marks such as `<tool_call>`) are never part of a text: only a
        grammar that names them allows them. `tokenize` returns the tokens of a text that follows
        another one, without special tokens; it raises nothing.
        """
        self.size = size
        self.end_tokens = frozenset(end_tokens)
        self.piece = piece
        self.tokenize = tokenize
        self._is_special = is_special
        self._containing: dict[int, Sequence[int]] = {}
        self._lock = Lock()

    @property
    def tokenizer(self) -> LLTokenizer:
        """The tokenizer of llguidance. Raises InvalidOption for a model that cannot have one."""
        with self._lock:
            return self._arranged

    @cached_property
    def _arranged(self) -> LLTokenizer:
        if not self.end_tokens or not any(self._pieces):
            raise InvalidOption(
                "structured output needs a model with a tokenizer and a token that ends an answer"
            )
        ends = sorted(self.end_tokens)
        return LLTokenizer(
            TokenizerWrapper(_Tokens(self._pieces, self._special, ends[0], self.tokenize)),
            eos_token=ends,
        )

    @cached_property
    def _pieces(self) -> list[bytes]:
        return [self.piece(token) for token in range(self.size)]

    @cached_property
    def _special(self) -> list[int]:
        """The special tokens and those that end an answer."""
        ends, is_special = self.end_tokens, self._is_special
        return [token for token in range(self.size) if token in ends or is_special(token)]

    def containing(self, byte: int) -> Sequence[int]:
        """Return the tokens whose bytes contain this one."""
        if byte not in self._containing:
            tokens = [token for token, piece in enumerate(self._pieces) if byte in piece]
            self._containing[byte] = tokens
        return self._containing[byte]

    def split(self, text: str) -> list[str | int]:
        """Return the parts of a text: the special tokens that it names, and the texts between."""
        parts = self._names.split(text) if self._by_name else [text]
        return [self._by_name.get(part, part) for part in parts if part]

    @cached_property
    def _by_name(self) -> dict[str, int]:
        named = [(self.piece(token).decode("utf-8", "replace"), token) for token in self._special]
        return {name: token for name, token in reversed(named) if name}

    @cached_property
    def _names(self) -> re.Pattern[str]:
        """Finds names of special tokens, the longest of those that begin at one position."""
        names = sorted(self._by_name, key=len, reverse=True)
        return re.compile(f"({'|'.join(map(re.escape, names))})")


class _Tokens:
    """The tokenizer interface that llguidance expects, with its names."""

    bos_token_id = None

    def __init__(
        self,
        pieces: Sequence[bytes],
        special: Sequence[int],
        end: int,
        tokenize: Callable[[str], Sequence[int]],
    ) -> None:
        self.tokens = pieces
        self.special_token_ids = special
        self._special = frozenset(special)
        self.eos_token_id = end
        self._tokenize = tokenize

    def __call__(self, text: bytes) -> Sequence[int]:
        """Return the tokens of a text; what is named like a special token is written in parts."""
        tokens = self._tokenize(text.decode("utf-8", "replace"))
        if self._special.isdisjoint(tokens):
            return tokens
        return [part for token in tokens for part in self._parts(token)]

    def _parts(self, token: int) -> Sequence[int]:
        if token not in self._special:
            return (token,)
        name = self.tokens[token].decode("utf-8", "replace")
        return (*self._tokenize(name[:1]), *self._tokenize(name[1:]))
