"""Which token each character of rendered Markdown comes from; no widgets here."""

import re
from collections.abc import Sequence

from specchat.chat.safe_text import harmless
from specchat.decoding.chunk import Kind, Piece

REACH = 40
"""How far ahead a word is looked for: Markdown's own characters are not rendered."""
REACH_PER_CHARACTER = 20
"""Longer words are looked for farther away: they are rarely found by mistake."""


class TokenTint:
    """The tokens of one kind of text, found again in it as rendered, word by word and in order."""

    def __init__(self, pieces: Sequence[Piece], kind: Kind = "answer") -> None:
        """Store the pieces of an answer, which may grow; those of other kinds are left out."""
        self._pieces, self._kind = pieces, kind
        self._num_read = 0
        self._text = ""
        self._origins: list[str] = []

    def of_lines(self, lines: Sequence[str], start: int) -> tuple[list[list[str]], int]:
        """Return the origin of every character of some lines, and where the next ones begin.

        `start` is the character of the text where the lines begin. What is not part of the text,
        such as bullets and borders, has no origin: "".
        """
        self._read()
        found, place = [], start
        for line in lines:
            origins = [""] * len(line)
            for word in re.finditer(r"\S+", line):
                place = self._find(word, origins, place, start)
            self._join(line, origins)
            found.append(origins)
        return found, place

    def _read(self) -> None:
        for text, origin, kind in self._pieces[self._num_read :]:
            if kind == self._kind:
                self._text += harmless(text)
                self._origins += [origin] * len(text)
        self._num_read = len(self._pieces)

    def _find(self, word: re.Match[str], origins: list[str], place: int, start: int) -> int:
        """Set the origins of a word; return where the next one is looked for."""
        text = word[0]
        reach = place + REACH + REACH_PER_CHARACTER * len(text)
        found = self._text.find(text, place, reach)
        if found < 0:  # the columns of a table are not in the order of the text
            found = self._text.find(text, start, place)
        if found >= 0:
            origins[word.start() : word.end()] = self._origins[found : found + len(text)]
            return max(place, found + len(text))
        for offset, character in enumerate(text, word.start()):
            found = self._text.find(character, place, place + REACH)
            if found >= 0:
                origins[offset], place = self._origins[found], found + 1
        return place

    def _join(self, line: str, origins: list[str]) -> None:
        """Give a space between two words the origin of the second: tokens begin with spaces."""
        for offset in range(1, len(line) - 1):
            if line[offset] == " " and origins[offset - 1]:
                origins[offset] = origins[offset + 1]
