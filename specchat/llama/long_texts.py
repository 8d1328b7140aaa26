"""Long prompts are tokenized piece by piece: anyone may send one.

llama.cpp takes time that grows with the square of the special tokens in a text. It splits a text at
their names first, and tokenizes what lies between apart, so cutting it before such a name changes
nothing. Pieces seen before, such as the earlier messages of a conversation, are remembered.
"""

import re
from array import array
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterator, Sequence

WHOLE = 2048
"""Characters of a text that is not worth cutting."""
REMEMBERED = 1 << 22
"""Characters of all pieces that are remembered."""
ENTRY = 256
"""Bytes of a remembered piece beside its characters, which count as such."""
LONGEST_NAMES, LONGEST_NAME = 500_000, 256
"""Characters of all names of special tokens, and of one: those of real models have fewer."""
FIRST = re.compile(r"[<\[]")
"""How the names begin that texts are cut at: those of nearly all templates."""


class Cuts:
    """Where a text may be cut: before a special token's name that llama.cpp finds in any text."""

    def __init__(self, names: Collection[str], trimming: Collection[str]) -> None:
        """Take the names of all special tokens, and of those that take the spaces before them."""
        if sum(map(len, names)) > LONGEST_NAMES or max(map(len, names), default=0) > LONGEST_NAME:
            names = ()  # no model of this kind is known, and what follows takes memory
        self._names, self._trimming = frozenset(names), tuple(trimming)
        self._lengths = sorted({len(name) for name in names if FIRST.match(name)}, reverse=True)
        self._ends = {name[start:] for name in names for start in range(1, len(name))}
        self._begins = {name[:end] for name in names for end in range(1, len(name) + 1)}
        self._insides = "\0".join(name[1:] for name in names)
        self._fit: dict[str, bool] = {}

    def parts(self, text: str) -> Iterator[str]:
        """Yield the parts of a text, each but the first beginning with a special token's name."""
        begin = 0
        for match in FIRST.finditer(text):
            place = match.start()
            if place > begin and self._is_cut(text, place):
                yield text[begin:place]
                begin = place
        yield text[begin:]

    def _is_cut(self, text: str, place: int) -> bool:
        for length in self._lengths:
            name = text[place : place + length]
            if name in self._names:
                return self._is_fit(name)
        return False

    def _is_fit(self, name: str) -> bool:
        """Return True if no other name can hide this one, whatever stands around it.

        llama.cpp looks for longer names first. One may contain this name, end with its beginning,
        or begin with its end.
        """
        if name not in self._fit:
            is_hidden = (
                name in self._insides
                or any(name[:end] in self._ends for end in range(1, len(name)))
                or any(name[start:] in self._begins for start in range(1, len(name)))
            )
            trims = any(each.startswith(name) or name.startswith(each) for each in self._trimming)
            self._fit[name] = not (is_hidden or trims)
        return self._fit[name]


class PieceTokens:
    """The tokens of pieces of text, of which the latest are remembered."""

    def __init__(self, tokenize: Callable[[str], Sequence[int]]) -> None:
        """Find tokens with a function."""
        self._tokenize = tokenize
        self._kept: OrderedDict[str, array[int]] = OrderedDict()
        self._size = 0

    def of(self, piece: str) -> Sequence[int]:
        """Return the tokens of a piece."""
        kept = self._kept.get(piece)
        if kept is not None:
            self._kept.move_to_end(piece)
            return kept
        tokens = array("i", self._tokenize(piece))
        self._kept[piece] = tokens
        self._size += len(piece) + ENTRY
        while self._size > REMEMBERED:
            forgotten, _ = self._kept.popitem(last=False)
            self._size -= len(forgotten) + ENTRY
        return tokens
