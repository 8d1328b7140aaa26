"""Rules of Markdown for model output, where CommonMark would drop characters that carry meaning.

`__init__.py`, `a*b*c`, a Windows path, a regular expression and LaTeX keep all their characters;
bold text may touch Chinese, Japanese and Korean. HTML is text, addresses have no emphasis inside, a
row of a table may have more cells than its head. Only the first answer needs this module, which
imports markdown-it.
"""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock, lheading, table
from markdown_it.rules_block.table import escapedSplit, getLine
from markdown_it.rules_inline import StateInline, entity
from markdown_it.rules_inline.escape import escape
from markdown_it.rules_inline.state_inline import Delimiter

from specchat.safe_text import harmless
from specchat.tui.markdown.math_marks import add_math

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


LINE_ENDS = re.compile("[\u2028\u2029]")
SCHEME = re.compile(r"(?:https?|ftp)$", re.IGNORECASE)
ADDRESS = re.compile(r"://[!-;=?-Z_a-z~]+", re.ASCII)
"""The rest of an address: no space, bracket, backtick, caret or backslash."""
AFTER_ADDRESS = "?!.,:;*_~'\""
"""Signs that end a sentence rather than an address; brackets only if they were not opened in it."""


class LiteralMarkdown(MarkdownIt):
    """A parser for model output."""

    def __init__(self) -> None:
        # tags are parsed, so that nothing else is inside them, but shown as text
        super().__init__("commonmark", {"html": True})
        self.enable(["strikethrough", "table"])
        self.disable(["html_block", "reference"])  # a definition would not be shown at all
        self.inline.ruler.at("linkify", _address)
        self.enable("linkify")
        self.inline.ruler.at("escape", _escape)
        self.inline.ruler.at("emphasis", _emphasis)
        self.inline.ruler.at("entity", _entity)
        self.block.ruler.at("table", _table, {"alt": ["paragraph", "reference"]})
        self.block.ruler.at("lheading", _underlined_heading)
        add_math(self)

    def normalizeLink(self, url: str) -> str:  # noqa: N802  # its name in markdown-it
        """Return an address as it was written, which would be percent-encoded."""
        return url

    def normalizeLinkText(self, link: str) -> str:  # noqa: N802
        """Return an address as it was written."""
        return link


def _address(state: StateInline, silent: bool) -> bool:
    """Take an address as a whole, so that underscores and asterisks in it are no marks."""
    start = state.pos
    if state.src[start] != ":" or not (
        scheme := SCHEME.search(state.src[max(0, start - 5) : start])
    ):
        return False
    found = ADDRESS.match(state.src, start)
    if not found or (not silent and not state.pending.endswith(scheme[0])):
        return False
    rest = found[0].rstrip(AFTER_ADDRESS)
    while rest.endswith(")") and rest.count(")") > rest.count("("):
        rest = rest[:-1].rstrip(AFTER_ADDRESS)
    if len(rest) <= len("://"):
        return False
    if not silent:
        state.pending = state.pending.removesuffix(scheme[0])
        _push_address(state, scheme[0] + rest)
    state.pos += len(rest)
    return True


def _push_address(state: StateInline, address: str) -> None:
    if state.linkLevel:  # in the text of a link
        state.push("text", "", 0).content = address
        return
    state.push("link_open", "a", 1).attrs = {"href": address}
    state.push("text", "", 0).content = address
    state.push("link_close", "a", -1)


def _entity(state: StateInline, silent: bool) -> bool:
    """Replace a character reference, but not by a character that would control the terminal."""
    if not entity(state, silent):
        return False
    if not silent:
        state.tokens[-1].content = LINE_ENDS.sub(" ", harmless(state.tokens[-1].content))
    return True


def _table(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a table, and add the cells that rows have beyond those of the head."""
    before = len(state.tokens)
    if not table(state, start, end, silent):
        return False
    if silent:
        return True
    added, state.tokens[before:] = state.tokens[before:], []
    num_columns = sum(token.type == "th_open" for token in added)
    line = start
    for token in added:
        if token.type == "tr_open" and token.map:
            line = token.map[0]
        elif token.type == "tr_close":
            for cell in _cells(state, line)[num_columns:]:
                _push_cell(state, cell, line)
        state.tokens.append(token)
    return True


def _cells(state: StateBlock, line: int) -> list[str]:
    """Return the cells of a line of a table, as markdown-it splits them."""
    cells = escapedSplit(getLine(state, line).strip())
    if cells and not cells[0]:
        cells.pop(0)
    if cells and not cells[-1]:
        cells.pop()
    return cells


def _push_cell(state: StateBlock, text: str, line: int) -> None:
    state.push("td_open", "td", 1)
    token = state.push("inline", "", 0)
    token.map, token.content, token.children = [line, line + 1], text.strip(), []
    state.push("td_close", "td", -1)


def _underlined_heading(state: StateBlock, start: int, end: int, silent: bool) -> bool:
    """Parse a heading with a line below it, which is longer than one sign: that is a sign."""
    before, parent = len(state.tokens), state.parentType
    if not lheading(state, start, end, silent):
        return False
    if len(getLine(state, state.line - 1).strip()) > 1:
        return True
    del state.tokens[before:]
    state.line, state.parentType = start, parent
    return False


def _escape(state: StateInline, silent: bool) -> bool:
    """Drop a backslash only before a mark, and not within a path."""
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
