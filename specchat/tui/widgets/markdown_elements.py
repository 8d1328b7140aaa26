"""The elements of Markdown that are drawn differently from Rich."""

import re
from collections.abc import Iterator, Sequence
from typing import ClassVar, Self

from markdown_it.token import Token
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import CodeBlock, Heading, ListItem, Markdown, MarkdownElement
from rich.segment import Segment
from rich.style import Style
from rich.syntax import Syntax

from specchat.tui.widgets.growing_text import CONTINUED, TITLED
from specchat.tui.widgets.style_marks import COPY, MARGIN

BREAK = re.compile(r"<br\s*/?>", re.IGNORECASE)
TASK = re.compile(r"\[([ xX])\](?= )")


class _CodeBlock(CodeBlock):
    """A code block on its own background, with its title or language above it."""

    background = "default"
    title = ""
    """The title or the language; empty for indented code and for a continued block."""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> Self:
        """Return an empty block."""
        info, _, title = token.info.replace(CONTINUED, "").partition(TITLED)
        language = (info.split() or ["text"])[0]
        block = cls(language, markdown.code_theme)
        if isinstance(markdown, ThemedMarkdown):
            block.background = markdown.code_background
        if token.type == "fence" and CONTINUED not in token.info:
            block.title = title or language
        return block

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        margin = Segment(" ", Style(bgcolor=self.background, meta={MARGIN: True}))
        inside = options.update(width=max(1, options.max_width - 2))
        if self.title:
            style = Style(bgcolor=self.background, dim=True, meta={MARGIN: True})
            room = max(0, inside.max_width - len(COPY))
            yield Segment(f" {self.title}"[:room].ljust(room), style)
            yield Segment(f"{COPY}  "[: options.max_width - room], style + Style(meta={COPY: True}))
            yield Segment.line()
        code, background = str(self.text).rstrip("\n"), self.background
        syntax = Syntax(
            code, self.lexer_name, theme=self.theme, background_color=background, word_wrap=True
        )
        for line in console.render_lines(syntax, inside):
            yield from (margin, *line, margin, Segment.line())


class _Heading(Heading):
    """A left-aligned heading; Rich centres those of level 1."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _ListItem(ListItem):
    """An item whose number is followed by a dot."""

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        """Draw the item, with its number on the first line."""
        width = len(str(last_number)) + 3
        inside = options.update(width=max(1, options.max_width - width))
        style = console.get_style("markdown.item.number", default="none")
        before = f"{number}.".rjust(width - 1) + " "
        for line in console.render_lines(self.elements, inside, style=self.style):
            yield from (Segment(before, style), *line, Segment.line())
            before = " " * width


class ThemedMarkdown(Markdown):
    """Parsed Markdown with left-aligned headings, boxes in task lists, and plain autolinks."""

    inlines = Markdown.inlines | {"link"}
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "fence": _CodeBlock,
        "code_block": _CodeBlock,
        "list_item_open": _ListItem,
    }

    def __init__(self, code_theme: str, code_background: str) -> None:
        """Store the style of code; slow, because Rich creates a parser, so reuse it (`of`)."""
        super().__init__("", hyperlinks=False, code_theme=code_theme)
        self.code_background = code_background

    def of(self, tokens: Sequence[Token]) -> Self:
        """Replace the tokens by those of another block; return self."""
        self.parsed = list(tokens)
        for place, token in enumerate(tokens):
            if token.children:
                children = _with_line_breaks(token.children)
                token.children = list(_with_plain_autolinks(list(children)))
                if place > 1 and tokens[place - 2].type == "list_item_open":
                    _draw_task(token.children[0])
        return self


def _with_line_breaks(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield tokens with a line break for each one that was written, and for each <br>."""
    for token in tokens:
        if token.type == "softbreak":
            yield Token("hardbreak", "br", 0)
        elif token.type == "text" and BREAK.search(token.content):
            for number, part in enumerate(BREAK.split(token.content)):
                if number:
                    yield Token("hardbreak", "br", 0)
                yield Token("text", "", 0, content=part)
        else:
            yield token


def _with_plain_autolinks(tokens: Sequence[Token]) -> Iterator[Token]:
    """Yield tokens with plain links in place of those whose text already is the address."""
    is_plain = False
    for token, text in zip(tokens, [*tokens[1:], None], strict=True):
        if token.type == "link_open":
            address = str(token.attrs.get("href", "")).removeprefix("mailto:")
            is_plain = token.info == "auto" or (text is not None and text.content == address)
        is_end = is_plain and token.type.startswith("link_")
        yield Token("plain_link", "link", token.nesting) if is_end else token


def _draw_task(token: Token) -> None:
    if found := TASK.match(token.content):
        box = "☐" if found[1] == " " else "☑"
        token.content = box + token.content[found.end() :]
