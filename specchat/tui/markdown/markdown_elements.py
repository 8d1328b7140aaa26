"""The elements of Markdown that are drawn differently from Rich."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import ClassVar, Self

from markdown_it.token import Token
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderableType, RenderResult
from rich.markdown import (
    BlockQuote,
    Heading,
    HorizontalRule,
    ListElement,
    ListItem,
    Markdown,
    MarkdownContext,
    MarkdownElement,
    TextElement,
)
from rich.rule import Rule
from rich.segment import Segment
from rich.style import Style
from rich.text import Text, TextType

from specchat.tui.markdown.code_lines import CodeColours, CodeLines
from specchat.tui.markdown.inline_tokens import ADDRESS, LINK, draw_task, drawn_tokens
from specchat.tui.markdown.math_marks import MATH, MATH_BLOCK
from specchat.tui.markdown.math_text import readable_math
from specchat.tui.markdown.wide_table import WideTable

LEAST_ROOM = 8
"""Narrower content stands below its bullet, number or bar instead of beside it."""


class _Heading(Heading):
    """A left-aligned heading; Rich centres those of level 1. An empty one is its mark."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}
    markup = ""

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> Self:
        """Return an empty heading."""
        del markdown
        heading = cls(token.tag)
        heading.markup = token.markup
        return heading

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the text, or the mark."""
        if self.text.plain:
            yield from super().__rich_console__(console, options)
        else:
            yield Text(self.markup)


class _Rule(HorizontalRule):
    """A line from edge to edge."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the line."""
        del console, options
        yield Rule(style="markdown.hr", characters="─")
        yield Text()


class _Quotation(BlockQuote):
    """A quotation with a bar beside it, at any width."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the bar and the content."""
        bar = Segment("▌ ", self.style)
        yield from _beside(console, options, (bar, bar), self.elements, self.style)


class _ListItem(ListItem):
    """An item of a list, which knows its number and mark as they were written."""

    number, mark = "", ""
    is_empty = True

    @classmethod
    def create(cls, markdown: Markdown, token: Token) -> Self:
        """Return an empty item."""
        del markdown
        item = cls()
        item.number, item.mark = token.info, token.markup
        return item

    def on_child_close(self, context: MarkdownContext, child: MarkdownElement) -> bool:
        """Keep a part of the item."""
        self.is_empty = False
        return super().on_child_close(context, child)

    def draw(
        self, console: Console, options: ConsoleOptions, label: str, width: int
    ) -> RenderResult:
        """Draw the item after a bullet or a number."""
        kind = "number" if self.number else "bullet"
        style = console.get_style(f"markdown.item.{kind}", default="none")
        first = Segment(label.rjust(width + 1) + " ", style)
        rest = Segment(" " * (width + 2), style)
        yield from _beside(console, options, (first, rest), self.elements, self.style)


class _List(ListElement):
    """A list whose numbers are those that were written, unless all are the same."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the items below each other."""
        items = [item for item in self.items if isinstance(item, _ListItem)]
        labels = self._labels(items)
        width = max(map(cell_len, labels), default=0)
        for item, label in zip(items, labels, strict=True):
            yield from item.draw(console, options, label, width)

    def _labels(self, items: Sequence[_ListItem]) -> list[str]:
        if self.list_type == "bullet_list_open":
            return [item.mark if item.is_empty else "•" for item in items]
        numbers = [item.number for item in items]
        if len(set(numbers)) == 1:
            first = int(numbers[0])
            numbers[1:] = [str(first + offset) for offset in range(1, len(items))]
        return [number + item.mark for number, item in zip(numbers, items, strict=True)]


class _Formula(TextElement):
    """A formula that is set apart: readable, or as it was written."""

    def on_text(self, context: MarkdownContext, text: TextType) -> None:
        """Add the source."""
        readable = readable_math(str(text))
        style = context.console.get_style(f"markdown.{MATH}", default="none")
        self.text = Text(str(text)) if readable is None else Text(readable, style)

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw the lines."""
        del console, options
        yield self.text


def _beside(
    console: Console,
    options: ConsoleOptions,
    before: tuple[Segment, Segment],
    content: RenderableType,
    style: Style,
) -> Iterator[Segment]:
    """Yield content with a label before its first line and another before all the others.

    Without enough room the label stands above the content.
    """
    label, others = before
    room = options.max_width - label.cell_length
    if room < LEAST_ROOM and label.text.strip():
        yield Segment(label.text.strip()[: max(1, options.max_width)], label.style)
        yield Segment.line()
        label = others = Segment("")
        room = options.max_width
    inside = options.update(width=max(1, room))
    for line in console.render_lines(content, inside, style=style) or [[]]:
        yield from (label, *line, Segment.line())
        label = others


class ThemedMarkdown(Markdown):
    """Parsed Markdown in the style of specchat: nothing that was written is left out."""

    inlines = Markdown.inlines | {LINK, ADDRESS, MATH}
    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": _Heading,
        "hr": _Rule,
        "blockquote_open": _Quotation,
        "fence": CodeLines,
        "code_block": CodeLines,
        "bullet_list_open": _List,
        "ordered_list_open": _List,
        "list_item_open": _ListItem,
        "table_open": WideTable,
        MATH_BLOCK: _Formula,
    }

    def __init__(self, code_styles: Mapping[str, Style], code_background: str) -> None:
        """Store the style of code; slow, because Rich creates a parser, so reuse it (`of`)."""
        super().__init__("", hyperlinks=False)
        self.code_colours = CodeColours(code_styles)
        self.code_background = code_background

    def of(self, tokens: Iterable[Token]) -> Self:
        """Replace the tokens by those of another block; return self."""
        self.parsed = list(tokens)
        for index, token in enumerate(self.parsed):
            if token.children:
                token.children = list(drawn_tokens(token.children))
                if index > 1 and self.parsed[index - 2].type == "list_item_open":
                    draw_task(token.children[0])
        return self
