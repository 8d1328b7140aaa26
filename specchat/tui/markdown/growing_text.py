"""Growing text, split into blocks: finished blocks are laid out once, the last one repeatedly."""

from __future__ import annotations

import re
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.token import Token

MAX_LINES = 40
"""A growing fence or list longer than this is split, as laying it out repeatedly gets slow."""
MAX_CHARACTERS = 4000
"""A growing paragraph longer than this is split likewise."""
BETWEEN_WORDS = re.compile(r"[ \n](?!\d+[.)])(?=[^\W_])")
"""Where a paragraph can be split: before anything else it might go on as a list or a rule."""
LONGEST_NUMBER = 10
"""Characters of the longest number of a list, with what follows it."""
CONTINUED = "\ufdd0"
"""Ends the first line of a fence that continues the previous block."""
LINE = re.compile(r"[^\n]*\n|[^\n]+")
TITLED = "\ufdd1"
"""Separates the title of a fence from its language."""


@cache
def markdown_parser(*, finds_inlines: bool = True) -> MarkdownIt:
    """Return the parser for model output, which treats HTML as text; optionally for blocks only."""
    from specchat.tui.markdown.literal_marks import LiteralMarkdown  # only for the first answer

    parser = LiteralMarkdown()
    return parser if finds_inlines else parser.disable(["inline", "text_join"])


def is_continued(block: str) -> bool:
    """Return True for a code block that continues the previous block."""
    return block.partition("\n")[0].endswith(CONTINUED)


class GrowingMarkdown:
    """Markdown, split into its top-level blocks."""

    def __init__(self) -> None:
        self.tail = ""
        """The unfinished block."""
        self._parser = markdown_parser(finds_inlines=False)

    def append(self, text: str) -> list[str]:
        """Add text; return the blocks that are now finished."""
        self.tail += text
        if "\n" not in text and len(self.tail) < MAX_CHARACTERS:
            return []
        tokens = self._parser.parse(self.tail)
        blocks = [
            token for token in tokens if token.level == 0 and token.map and token.nesting >= 0
        ]
        lines = LINE.findall(self.tail)  # as the parser counts them: no other character ends one
        if len(blocks) > 1:
            return self._cut(lines, blocks)
        return self._cut_inside(lines, blocks[0], tokens) if blocks else []

    def _cut(self, lines: list[str], blocks: list[Token]) -> list[str]:
        """Remove all blocks but the last from the tail, and return them."""
        starts = [0, *(block.map[0] for block in blocks[1:] if block.map)]
        self.tail = "".join(lines[starts[-1] :])
        return ["".join(lines[start:end]) for start, end in pairwise(starts)]

    def _cut_inside(self, lines: list[str], block: Token, tokens: list[Token]) -> list[str]:
        """Remove the first part of a block that has become long, and return it."""
        if block.type == "fence" and len(lines) > MAX_LINES:
            self.tail = f"{lines[0].rstrip().removesuffix(CONTINUED)} {CONTINUED}\n{lines[-1]}"
            return ["".join(lines[:-1]) + block.markup + "\n"]
        if block.type.endswith("list_open") and len(lines) > MAX_LINES:
            last = [token.map[0] for token in tokens if token.level == 1 and token.map][-1]
            self.tail = "".join(lines[last:])
            return ["".join(lines[:last])] if last else []
        if block.type == "paragraph_open" and len(self.tail) > MAX_CHARACTERS:
            begin = len(self.tail) - len(self.tail.lstrip())  # a part of spaces has no lines
            found = BETWEEN_WORDS.finditer(self.tail, begin, MAX_CHARACTERS + LONGEST_NUMBER)
            places = [each.end() for each in found if each.end() <= MAX_CHARACTERS]
            place = places[-1] if places else MAX_CHARACTERS
            first, self.tail = self.tail[:place], self.tail[place:]
            return [first]
        return []
