"""A model's vocabulary: text to tokens and back, and end tokens."""

import ctypes
import re
from collections.abc import Iterable, Sequence
from functools import cached_property, lru_cache, partial
from typing import NamedTuple

from specchat.errors import InvalidOption
from specchat.llama.library import api
from specchat.llama.long_texts import WHOLE, Cuts, PieceTokens

ANCHOR = "\x1f"
MARK = re.compile(r"<[|\uff5c].*[|\uff5c]>")
"""Names that only a template would write, such as `<|im_end|>`."""
UNKNOWN, CONTROL, USER_DEFINED, TRIMS_LEFT = 1 << 0, 1 << 3, 1 << 4, 1 << 7
"""llama.cpp's LLAMA_TOKEN_ATTR_UNKNOWN, CONTROL, USER_DEFINED and LSTRIP."""
CUT_TYPES = frozenset({api.LLAMA_VOCAB_TYPE_BPE, api.LLAMA_VOCAB_TYPE_SPM})
"""The tokenizers of which it is known that text between special tokens is tokenized apart."""


class GapTokens(NamedTuple):
    """The tokens that mark the parts of a text with a gap (fill in the middle).

    `repository` and `file` come before the names of a repository and of a file; None if the model
    does not know them.
    """

    before: int
    after: int
    middle: int
    repository: int | None
    file: int | None


class Vocabulary:
    """The vocabulary of a loaded model; valid as long as the model is."""

    def __init__(self, model: object) -> None:
        self._vocab = api.llama_model_get_vocab(model)
        self.size: int = api.llama_vocab_n_tokens(self._vocab)
        self._type = api.llama_vocab_type(self._vocab)
        self.has_tokenizer = self._type != api.LLAMA_VOCAB_TYPE_NONE
        self._buffer = ctypes.create_string_buffer(64)
        self.piece = lru_cache(maxsize=65536)(self._piece) if self.has_tokenizer else _no_text
        self.tokenize_literally = lru_cache(maxsize=1024)(self._tokenize_literally)
        tokens, is_end = range(self.size if self.has_tokenizer else 0), api.llama_vocab_is_eog
        self.end_tokens = frozenset(token for token in tokens if is_end(self._vocab, token))

    def tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        """Return the tokens of a text; `add_special` adds BOS and EOS as the model requires.

        `parse_special` turns names of control tokens in the text into those tokens, which is right
        for a rendered chat template and wrong for anything a user typed. Raises InvalidOption for a
        model without a tokenizer.
        """
        if not self.has_tokenizer:
            raise InvalidOption(
                "this model has no tokenizer: give the prompt as token ids from Python"
            )
        if len(text) <= WHOLE or not parse_special or self._type not in CUT_TYPES:
            return self._tokenize(text, add_special=add_special, parse_special=parse_special)
        tokens: list[int] = []
        for part in self._cuts.parts(text):
            tokens += self._pieces.of(part)
        if not add_special:
            return tokens
        bos, eos = self.bos(), [self.usual_ends()[1]] if self.adds_eos() else []
        return [*tokens, *eos] if bos is None else [bos, *tokens, *eos]

    def _tokenize(self, text: str, *, add_special: bool, parse_special: bool) -> list[int]:
        data = text.encode("utf-8", "replace")
        capacity = len(data) + 8
        for _ in range(2):
            tokens = (api.llama_token * capacity)()
            count = api.llama_tokenize(
                self._vocab, data, len(data), tokens, capacity, add_special, parse_special
            )
            if count >= 0:
                return list(tokens[:count])
            capacity = -count
        raise InvalidOption("the prompt is too long to tokenize")

    @cached_property
    def _cuts(self) -> Cuts:
        """Where long texts are cut."""
        attributes = {token: self._attributes(token) for token in range(self.size)}
        found_first = UNKNOWN | CONTROL | USER_DEFINED
        names = {token: self.name(token) for token, has in attributes.items() if has & found_first}
        trimming = [name for token, name in names.items() if attributes[token] & TRIMS_LEFT]
        return Cuts(frozenset(names.values()), trimming)

    @cached_property
    def _pieces(self) -> PieceTokens:
        """The tokens of the parts of long texts."""
        return PieceTokens(partial(self._tokenize, add_special=False, parse_special=True))

    def tokenize_more(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the tokens of a text that follows another one.

        SentencePiece tokenizers add a space before a text. To avoid that, the text is tokenized
        after a character that never merges with others. Tokenizers that add no space skip this:
        their rules for splitting a text at punctuation would treat that character as part of it.
        """
        tokens = self.tokenize(text, add_special=False, parse_special=parse_special)
        if b"".join(map(self.piece, tokens)) == text.encode("utf-8", "replace"):
            return tokens
        anchor = self.tokenize(ANCHOR, add_special=False, parse_special=False)
        tokens = self.tokenize(ANCHOR + text, add_special=False, parse_special=parse_special)
        if tokens[: len(anchor)] == anchor:
            return tokens[len(anchor) :]
        return self.tokenize(text, add_special=False, parse_special=parse_special)

    def names_of(self, tokens: Iterable[int], template: str) -> set[str]:
        """Return the names of those tokens of a text that a user must not be able to write.

        These are control tokens, and user-defined tokens that are marks: the template contains
        them, or they look like `<|...|>`. Other user-defined tokens, such as runs of spaces, are
        ordinary text.
        """
        tokens = set(tokens)
        controls = {self.name(token) for token in tokens if self.is_control(token)}
        added = {self.name(token) for token in tokens if self.is_user_defined(token)}
        added = {name for name in added if name.strip() and len(name) > 1}
        return controls | {name for name in added if name in template or MARK.fullmatch(name)}

    def _tokenize_literally(self, name: str) -> Sequence[int]:
        """Return the tokens of a special token's name as plain text that follows other text."""
        first = self.tokenize_more(name[:1], parse_special=False)
        return (*first, *self.tokenize_more(name[1:], parse_special=False))

    def name(self, token: int) -> str:
        """Return a token's name, which may use the vocabulary's own characters for spaces."""
        return self.text(token).decode("utf-8", "replace")

    def named_piece(self, token: int) -> bytes:
        """Return the bytes of a token in a text; for a token that is not text, its name."""
        return self.piece(token) or self.text(token)

    def text(self, token: int) -> bytes:
        """Return a token's name in the vocabulary as bytes, not the text it stands for."""
        return api.llama_vocab_get_text(self._vocab, token) or b""

    def is_control(self, token: int) -> bool:
        """Return True for a control token."""
        return bool(api.llama_vocab_is_control(self._vocab, token))

    def is_user_defined(self, token: int) -> bool:
        """Return True for a token that the model's makers added as a whole."""
        return bool(self._attributes(token) & USER_DEFINED)

    def _attributes(self, token: int) -> int:
        return int(api.llama_vocab_get_attr(self._vocab, token))

    def is_special(self, token: int) -> bool:
        """Return True for a token that stands for itself: control or user-defined."""
        return self.is_control(token) or self.is_user_defined(token)

    def adds_eos(self) -> bool:
        """Return True if complete texts end with the end-of-text token."""
        return bool(api.llama_vocab_get_add_eos(self._vocab))

    def bos(self) -> int | None:
        """Return the beginning-of-text token if texts begin with one, otherwise None."""
        adds = api.llama_vocab_get_add_bos(self._vocab)
        return int(api.llama_vocab_bos(self._vocab)) if adds else None

    def usual_ends(self) -> tuple[int, int]:
        """Return the tokens that end a turn and a text; negative if there is none."""
        turn, text = int(api.llama_vocab_eot(self._vocab)), int(api.llama_vocab_eos(self._vocab))
        return turn if turn >= 0 else text, text

    def gap_tokens(self) -> GapTokens | None:
        """Return the tokens for filling a gap; None if the model was not made for that."""
        finders = (
            *(api.llama_vocab_fim_pre, api.llama_vocab_fim_suf, api.llama_vocab_fim_mid),
            *(api.llama_vocab_fim_rep, api.llama_vocab_fim_sep),
        )
        before, after, middle, *names = [int(find(self._vocab)) for find in finders]
        if min(before, after, middle) < 0:
            return None
        return GapTokens(before, after, middle, *[None if each < 0 else each for each in names])

    def special_text(self, name: str) -> str:
        """Return the name of the "bos" or "eos" token for chat templates; "" if there is none."""
        token = {"bos": api.llama_vocab_bos, "eos": api.llama_vocab_eos}[name](self._vocab)
        return self.name(token) if 0 <= token < self.size else ""

    def _piece(self, token: int) -> bytes:
        """Return the bytes of a token: the name of a control token, nothing for an end token.

        Control tokens are shown because a fine-tuned model may write meaningful ones, such as
        `<tool_call>`, and because they separate the parts of a chat answer.
        """
        if token in self.end_tokens:
            return b""
        buffer = self._buffer
        length = api.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
        if length < 0:
            self._buffer = buffer = ctypes.create_string_buffer(-length)
            length = api.llama_token_to_piece(self._vocab, token, buffer, len(buffer), 0, True)
        return buffer.raw[: max(0, length)]


def _no_text(_: int) -> bytes:
    return b""
