"""Rules of Markdown for model output, where CommonMark would drop characters that carry meaning.

`__init__.py`, `a*b*c`, a Windows path, a regular expression and LaTeX keep all their characters,
and bold text may touch Chinese, Japanese and Korean.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.rules_inline.state_inline import StateInline

ESCAPED = frozenset("*_`~#|<>$")
"""What models put a backslash before, so that it is no mark. Before anything else the backslash is
meant: in LaTeX, in regular expressions and in paths."""
BEFORE_PATHS = frozenset(":\\/")
DUNDER = re.compile(r"__[A-Za-z]\w*?__(?!\w)", re.ASCII)
"""A name such as __init__, which would be bold."""
CJK = re.compile(
    "[\u2e80-\u9fff\uac00-\ud7af\uf900-\ufaff\ufe30-\ufe4f\uff00-\uffef\U00020000-\U0003ffff]"
)
"""Scripts without spaces between words, and their punctuation."""


def keep_literal_marks(parser: MarkdownIt) -> MarkdownIt:
    """Make a parser keep what CommonMark would drop; return it."""
    parser.inline.ruler.at("escape", _escape)
    parser.inline.ruler.at("emphasis", _emphasis)
    return parser.disable("reference")  # a definition would not be shown at all


def _escape(state: StateInline, silent: bool) -> bool:
    """Drop a backslash only before a mark, and not within a path."""
    from markdown_it.rules_inline.escape import escape

    start = state.pos
    if state.src[start] != "\\" or start + 1 >= state.posMax:
        return False
    following, before = state.src[start + 1], state.src[start - 1 : start]
    if following == "\n" or (following in ESCAPED and before not in BEFORE_PATHS):
        return escape(state, silent)
    if not silent:
        state.push("text", "", 0).content = f"\\{following}"
    state.pos += 2
    return True


def _emphasis(state: StateInline, silent: bool) -> bool:
    """Begin or end emphasis, but not within names and formulas.

    As markdown-it's own rule, with the conditions of CommonMark extended: next to CJK, as next to
    white space, punctuation may stand inside the marks (github.com/tats-u/markdown-cjk-friendly).
    """
    start, marker = state.pos, state.src[state.pos]
    if silent or marker not in "*_":
        return False
    before = state.src[start - 1 : start]
    if marker == "_" and not _is_word(before) and (name := DUNDER.match(state.src, start)):
        state.push("text", "", 0).content = name[0]
        state.pos = name.end()
        return True
    scanned = state.scanDelims(start, marker == "*")
    end = start + scanned.length
    after = state.src[end : min(end + 1, state.posMax)]
    can_open, can_close = scanned.can_open, scanned.can_close
    if marker == "*":
        can_open |= bool(CJK.match(before)) and bool(after.strip())
        can_close |= bool(CJK.match(after)) and bool(before.strip())
        can_open &= not (_is_word(before) and _is_word(after))  # a formula: a*b*c
    _push_delimiters(state, scanned.length, can_open=can_open, can_close=can_close)
    return True


def _push_delimiters(state: StateInline, length: int, *, can_open: bool, can_close: bool) -> None:
    from markdown_it.rules_inline.state_inline import Delimiter

    marker = state.src[state.pos]
    for _ in range(length):
        state.push("text", "", 0).content = marker
        place = len(state.tokens) - 1
        state.delimiters.append(
            Delimiter(
                marker=ord(marker),
                length=length,
                token=place,
                end=-1,
                open=can_open,
                close=can_close,
            )
        )
    state.pos += length


def _is_word(character: str) -> bool:
    """Whether it is a letter or a digit of a script with spaces between words."""
    return character.isascii() and character.isalnum()
