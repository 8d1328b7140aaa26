"""Maps characters of rendered Markdown to the origins of their tokens; no widgets here."""

import re
from collections.abc import Sequence

from specchat.decoding.chunk import Kind, Piece
from specchat.safe_text import harmless
from specchat.tui.markdown.math_text import written_as

REACH = 40
"""How far ahead to search for a word, because Markdown's syntax is not rendered."""
REACH_PER_CHARACTER = 20
"""Longer words are searched for farther ahead, as false matches are rare."""


class TokenTint:
    """Finds the tokens of one kind of text in the rendered text, word by word and in order."""

    def __init__(self, pieces: Sequence[Piece], kind: Kind = "answer") -> None:
        """Store an answer's pieces, a list that may grow; those of other kinds are ignored."""
        self._pieces, self._kind = pieces, kind
        self._num_read = 0
        self._text = ""
        self._origins: list[str] = []

    def of_lines(self, lines: Sequence[str], start: int) -> tuple[list[list[str]], int]:
        """Return the origin of every character of some lines, and the offset of the next lines.

        `start` is the offset in the text where the lines begin. Characters that are not in the
        text, such as bullets and borders, have the origin "".
        """
        self._read()
        found, place = [], start
        for line in lines:
            origins = [""] * len(line)
            for word in re.finditer(r"\S+", line):
                place = self._find(word, origins, place, start)
            self._tint_spaces(line, origins)
            found.append(origins)
        return found, place

    def _read(self) -> None:
        for text, origin, kind in self._pieces[self._num_read :]:
            if kind == self._kind:
                self._text += harmless(text)
                self._origins += [origin] * len(text)
        self._num_read = len(self._pieces)

    def _find(self, word: re.Match[str], origins: list[str], place: int, start: int) -> int:
        """Set the origins of a word; return where to search for the next one."""
        text = word[0]
        reach = place + REACH + REACH_PER_CHARACTER * len(text)
        found = self._text.find(text, place, reach)
        if found < 0:  # wrapped table cells are not in the order of the text
            found = self._text.find(text, start, place)
        if found >= 0:
            origins[word.start() : word.end()] = self._origins[found : found + len(text)]
            return max(place, found + len(text))
        for offset, character in enumerate(text, word.start()):
            sources = [character, *written_as(character)]
            nearest = [self._text.find(source, place, place + REACH) for source in sources]
            found = min((each for each in nearest if each >= 0), default=-1)
            if found >= 0:
                origins[offset], place = self._origins[found], found + 1
        return place

    def _tint_spaces(self, line: str, origins: list[str]) -> None:
        """Give a space between two words the second one's origin, as tokens begin with spaces."""
        for offset in range(1, len(line) - 1):
            if line[offset] == " " and origins[offset - 1]:
                origins[offset] = origins[offset + 1]
