"""A block of code on the screen: nothing is cut off, and wrapped lines have a mark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Self

from markdown_it.token import Token
from rich.cells import cell_len, chop_cells
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import CodeBlock, Markdown
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax, SyntaxTheme
from rich.text import Text

from specchat.safe_text import in_one_line
from specchat.tui.markdown.growing_text import CONTINUED, TITLED
from specchat.tui.markdown.style_marks import COPY, MARGIN, SAVE, TITLE, WRAPPED

WRAP_SIGN = "↪ "
WRAP_STYLE = Style(dim=True, meta={MARGIN: True, WRAPPED: True})
LEAST_WIDTH_FOR_ALL = 24
"""A narrower title has room for one label only."""
LEAST_WIDTH = 8
"""Narrower code has no room for the sign."""


class CodeColours(SyntaxTheme):
    """The styles of code by Pygments' names of its parts; what has none is like its kind."""

    def __init__(self, styles: Mapping[str, Style]) -> None:
        self._styles = styles
        self._found: dict[tuple[str, ...], Style] = {}

    def get_style_for_token(self, token_type: tuple[str, ...]) -> Style:
        """Return the style of a part of code."""
        if token_type not in self._found:
            name = str(token_type).removeprefix("Token.")
            while name and name not in self._styles:
                name = name.rpartition(".")[0]
            self._found[token_type] = self._styles.get(name, Style())
        return self._found[token_type]

    def get_background_style(self) -> Style:
        """Return no style: each block has its own ground."""
        return Style()


class CodeLines(CodeBlock):
    """A code block on its own background, with its title or info string above it."""

    background = "default"
    colours = CodeColours({})
    title = ""
    """The title or the info string; empty for indented code and for a continued block."""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> Self:
        """Return an empty block."""
        info, _, title = token.info.replace(CONTINUED, "").partition(TITLED)
        language = (info.split() or ["text"])[0]
        block = cls(language, markdown.code_theme)
        block.background = getattr(markdown, "code_background", cls.background)
        block.colours = getattr(markdown, "code_colours", cls.colours)
        if token.type == "fence" and CONTINUED not in token.info:
            block.title = in_one_line(title or info.strip() or language)
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the title, then the lines between margins."""
        beside = Style(bgcolor=self.background, meta={MARGIN: True})
        margin = Segment(" ", beside)
        if self.title:
            yield from self._title(options.max_width)
        room = max(1, options.max_width - 2)
        syntax = Syntax("", self.lexer_name, theme=self.colours, background_color=self.background)
        code = str(self.text).rstrip("\n").expandtabs(syntax.tab_size)
        for line in syntax.highlight(f"{code}\n").split("\n"):
            for number, part in enumerate(wrapped(line, room)):
                sign = [Segment(WRAP_SIGN, beside + WRAP_STYLE)] if number else []
                if number and room < LEAST_WIDTH:
                    sign = [Segment("", WRAP_STYLE)]
                used = sum(each.cell_length for each in sign) + part.cell_len
                padding = Segment(" " * (room - used), beside)
                yield from (margin, *sign, *part.render(console), padding, margin, Segment.line())

    def _title(self, width: int) -> Iterator[Segment]:
        """Yield the lines of the title, with the labels on the first one."""
        style = Style(bgcolor=self.background, dim=True, meta={MARGIN: True, TITLE: True})
        names = [SAVE, COPY] if width >= LEAST_WIDTH_FOR_ALL else [COPY]
        room = max(2, width - sum(len(name) + 2 for name in names) - 1)
        for number, part in enumerate(chop_cells(self.title, room)):
            yield Segment(f" {part}{' ' * (room - cell_len(part))}"[:width], style)
            left = max(0, width - room - 1)
            for name in names:
                label = f"{name}  " if not number else " " * (len(name) + 2)
                marked = style + Style(meta={name: True}) if not number else style
                yield Segment(label[:left], marked)
                left = max(0, left - len(label))
            yield Segment.line()


def wrapped(line: Text, width: int) -> list[Text]:
    """Return the parts of a line that fit into a width, with room for the sign in all but one."""
    if line.cell_len <= width:
        return [line]
    offsets, room = [], width
    rest, start = line.plain, 0
    while cell_len(rest) > room:
        length = _fitting(rest, room)
        start += length
        offsets.append(start)
        rest = rest[length:]
        room = width - (len(WRAP_SIGN) if width >= LEAST_WIDTH else 0)
    return list(line.divide(offsets))


@lru_cache(maxsize=1024)
def _fitting(text: str, room: int) -> int:
    """Return how many characters fit, up to a space if there is one in the second half."""
    length = max(1, len(chop_cells(text[: room + 1], room)[0]))
    space = text.rfind(" ", length // 2, length)
    return space + 1 if space > 0 and text[length : length + 1] != " " else length
