r"""Rules of Markdown for mathematics: `$…$`, `$$…$$`, `\(…\)`, `\[…\]` and environments.

Inside, underscores, asterisks and backslashes are no marks. A formula that is set apart ends at its
closing mark, and is none if an empty line comes first. An amount of money is not a formula: the
rule for dollars is Pandoc's, and one that reads like prose needs a command.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_block import StateBlock
    from markdown_it.rules_inline import StateInline

MATH = "math"
"""The type of an inline token of a formula, whose content has its marks."""
MATH_BLOCK = "math_block"
"""The type of the token of a formula that is set apart."""
DOLLARS = re.compile(r"(?<![\w$\\])\$(?![\s$])((?:[^$\n\\`]|\\.)+?)(?<!\s)\$(?![\w${])")
DOUBLE_DOLLARS = re.compile(r"(?<![$\\])\$\$(?!\$)([^$`]+?)\$\$(?!\$)")
BRACKETS = re.compile(r"\\\((.{1,1000}?)\\\)|\\\[(.{1,1000}?)\\\]", re.DOTALL)
OPENING = re.compile(r"\$\$|\\\[|\\begin\{([A-Za-z]+\*?)\}")
PROSE = re.compile(r"[^\W\d]{2,}[,;.]? +[^\W\d]{2,}")
"""Two words in a row."""
CLOSING_OF = {"(": ")", "[": "]", "{": "}"}
MAX_LINES = 200
"""Lines of a formula that is set apart; the search for its end may not go on for ever."""
CLOSINGS = {"$$": "$$", "\\[": "\\]"}


def add_math(parser: MarkdownIt) -> None:
    """Add the rules to a parser."""
    parser.inline.ruler.before("escape", MATH, _inline)
    interrupted = ["paragraph", "reference", "blockquote", "list"]
    parser.block.ruler.before("table", MATH_BLOCK, _block, {"alt": interrupted})


def _inline(state: StateInline, silent: bool) -> bool:
    """Take a formula as a whole."""
    source, start = state.src, state.pos
    found: re.Match[str] | None = None
    if source[start] == "$":
        found = DOUBLE_DOLLARS.match(source, start)
        if found is None and (found := DOLLARS.match(source, start)) and not _is_math(found[1]):
            return False
    elif source[start] == "\\":
        found = BRACKETS.match(source, start)
    if found is None or found.end() > state.posMax:
        return False
    if not silent:
        state.push(MATH, "", 0).content = found[0]
    state.pos = found.end()
    return True


def _is_math(inside: str) -> bool:
    """Whether the text between two dollars is a formula, not money or the names of variables."""
    if "**" in inside or "](" in inside:
        return False
    brackets = re.sub(r"\\.|[^()\[\]{}]", "", inside)
    return "\\" in inside or not (PROSE.search(inside) or _is_unbalanced(brackets))


def _is_unbalanced(brackets: str) -> bool:
    expected: list[str] = []
    for bracket in brackets:
        if bracket in CLOSING_OF:
            expected.append(CLOSING_OF[bracket])
        elif not expected or bracket not in ")]}":
            return True
        else:
            expected.pop()  # an interval may close with another bracket: [0, 1)
    return bool(expected)


def _block(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Take the lines from an opening mark to its closing mark, at the end of a line.

    Until an empty line comes, a formula that is not closed yet may be one: the text is growing.
    """
    if state.is_code_block(start):
        return False
    first = _line(state, start)
    found = OPENING.match(first)
    if found is None:
        return False
    closing = f"\\end{{{found[1]}}}" if found[1] else CLOSINGS[found[0]]
    after = first[found.end() :]
    last = start
    while closing not in after:
        last += 1
        if last >= end:
            break
        is_over = state.isEmpty(last) or state.sCount[last] < state.blkIndent
        if is_over or last - start >= MAX_LINES:
            return False
        after = _line(state, last)
    if last < end and after.partition(closing)[2].strip(" .,;"):
        return False  # text follows: a formula in a paragraph
    if silent:
        return True
    last = min(last, end - 1)
    state.line = last + 1
    token = state.push(MATH_BLOCK, "", 0)
    token.map = [start, state.line]
    token.content = state.getLines(start, state.line, state.sCount[start], False).rstrip()
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]
