"""Prepares the inline tokens of Markdown for drawing, so that all they say is on the screen.

Addresses stand after the text of a link, and pictures are drawn as their description and address.
"""

import re
from collections.abc import Iterable, Iterator, Sequence

from markdown_it.token import Token

from specchat.safe_text import in_one_line
from specchat.tui.markdown.math_marks import MATH
from specchat.tui.markdown.math_text import readable_math

BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
TASK = re.compile(r"\[([ xX])\](?= )")
LINK, ADDRESS = "link", "link_url"
"""Names of styles, as tags of tokens."""
PICTURE = "▨ "
"""Stands before the description of a picture, which a terminal cannot show."""


def drawn_tokens(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield tokens that Rich draws: text, line breaks and styles."""
    link, text = None, ""
    for token in tokens:
        if token.type == "softbreak" or (
            token.type == "html_inline" and BREAK.fullmatch(token.content)
        ):
            yield Token("hardbreak", "br", 0)
        elif token.type in {"text", "html_inline"}:
            text += token.content
            yield _text(token.content)
        elif token.type == "link_open":
            link, text = token, ""
            yield Token("styled_open", LINK, 1)
        elif token.type == "link_close":
            yield Token("styled_close", LINK, -1)
            yield from _address(link, "href", text)
        elif token.type == "image":
            yield from _picture(token)
        elif token.type == MATH:
            yield _formula(token)
        else:
            text += token.content
            yield token


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)


def _address(token: Token | None, name: str, text: str = "") -> Iterable[Token]:
    """Return the address and the title of a link or picture, unless the text is the address."""
    if token is None:
        return []
    address = in_one_line(str(token.attrs.get(name, "")))
    title = in_one_line(str(token.attrs.get("title", "")))
    is_shown = text.removeprefix("mailto:") == address.removeprefix("mailto:")
    parts = ["" if is_shown else address, f'"{title}"' if title else ""]
    if is_shown and not title:
        return []
    return [
        _text(" ("),
        Token(ADDRESS, ADDRESS, 0, content=" ".join(filter(None, parts))),
        _text(")"),
    ]


def _picture(token: Token) -> Iterator[Token]:
    yield Token("styled_open", LINK, 1)
    yield _text(PICTURE)
    yield from drawn_tokens(token.children or [])
    yield Token("styled_close", LINK, -1)
    yield from _address(token, "src")


def _formula(token: Token) -> Token:
    readable = readable_math(token.content)
    if readable is None:
        return _text(token.content)
    return Token(MATH, MATH, 0, content=readable)


def draw_task(token: Token) -> None:
    """Draw the box of a task at the start of a list item."""
    if found := TASK.match(token.content):
        box = "☐" if found[1] == " " else "☑"
        token.content = box + token.content[found.end() :]
