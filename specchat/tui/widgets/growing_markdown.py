"""Markdown that grows, cut into blocks: those that are complete are laid out once and for all."""

from __future__ import annotations

from itertools import pairwise

from markdown_it import MarkdownIt
from markdown_it.token import Token

__all__ = ["GrowingMarkdown", "parser"]

MOST_LINES = 40
"""A fence or list that still grows is cut when it is longer: a long one stays cheap that way."""
MOST_CHARACTERS = 4000


def parser() -> MarkdownIt:
    """Return the parser of what models write: no HTML, which would vanish or do harm."""
    return MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])


class GrowingMarkdown:
    """Takes text piece by piece, and gives out blocks."""

    def __init__(self) -> None:
        """Start empty."""
        self.tail = ""
        """What is not complete yet."""
        self._parser = parser()
        self._parser.core.ruler.disable(["inline", "text_join"])

    def append(self, text: str) -> list[str]:
        """Add text; return the blocks that are complete now."""
        self.tail += text
        if "\n" not in text and len(self.tail) < MOST_CHARACTERS:
            return []
        blocks = self._parser.parse(self.tail)
        tops = [token for token in blocks if token.level == 0 and token.map and token.nesting >= 0]
        lines = self.tail.splitlines(keepends=True)
        complete = self._cut(lines, tops)
        if not complete and tops:
            complete = self._cut_last(lines, tops[-1], blocks)
        return complete

    def _cut(self, lines: list[str], tops: list[Token]) -> list[str]:
        """Take off all blocks but the last."""
        starts = [token.map[0] for token in tops if token.map]
        if len(starts) < 2:
            return []
        starts[0] = 0
        self.tail = "".join(lines[starts[-1] :])
        return ["".join(lines[start:end]) for start, end in pairwise(starts)]

    def _cut_last(self, lines: list[str], last: Token, tokens: list[Token]) -> list[str]:
        """Take off the beginning of a block that has become long."""
        if last.type == "fence" and len(lines) > MOST_LINES:
            body = lines[1:-1]
            self.tail = lines[0] + lines[-1]
            return [lines[0] + "".join(body) + last.markup + "\n"]
        if last.type in {"bullet_list_open", "ordered_list_open"} and len(lines) > MOST_LINES:
            items = [token.map[0] for token in tokens if token.level == 1 and token.map]
            if len(items) > 1 and items[-1]:
                self.tail = "".join(lines[items[-1] :])
                return ["".join(lines[: items[-1]])]
        if last.type == "paragraph_open" and len(self.tail) > MOST_CHARACTERS:
            place = self.tail.rfind(" ", 0, MOST_CHARACTERS) + 1 or MOST_CHARACTERS
            first, self.tail = self.tail[:place], self.tail[place:]
            return [first]
        return []
