"""The widget that shows an answer while it grows: only new text is laid out and drawn.

Textual's own `Markdown` with `MarkdownStream` creates a widget for every block, and is slower
(CPU time, 3,300 words with code, lists and tables, 5 tokens an update, Textual 8.2): 9.0 ms a
token, rising from 3.0 to 15 ms during the answer, against 1.7 here; 2.6 s against 0.6 s to show a
conversation of 40 messages; 100 ms against 14 ms to scroll a page. It also cannot tint tokens by
their origins.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.events import MouseDown
from textual.geometry import Region, Size
from textual.message import Message
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from specchat.safe_text import harmless
from specchat.tui.markdown.growing_text import GrowingMarkdown, is_continued
from specchat.tui.markdown.style_marks import COPY, MARGIN, SAVE, TITLE, WRAPPED
from specchat.tui.markdown.token_tint import TokenTint
from specchat.tui.markdown.typesetter import CodeBlock, Typesetter, code_fences

EMPTY = Strip.blank(0)


def virtual_size_alone() -> Reactive[Size]:
    """Return a `virtual_size` attribute for widgets that does not trigger a layout of the screen.

    Nothing in the transcript depends on it, because the scrollbar is always shown.
    """
    return Reactive(Size(0, 0), layout=False)


class Prose(Widget):
    """Markdown, tinted by the origins of its tokens if they are given."""

    @dataclass
    class SaveRequested(Message):
        """The user wants to save a block of code."""

        block: CodeBlock

    DEFAULT_CSS = "Prose { height: auto; width: 1fr; }"
    virtual_size = virtual_size_alone()

    def __init__(self, typesetter: Typesetter) -> None:
        super().__init__()
        self._typesetter = typesetter
        self._markdown = GrowingMarkdown()
        self.source = ""
        self._held = ""
        """A carriage return, until it is known whether a newline follows."""
        self._blocks: list[str] = []
        self._tint: TokenTint | None = None
        self._place = 0
        self._laid_out_width = 0
        self._style = Style.null()
        self._lines: list[Strip] = []
        self._tail_lines: list[Strip] = []
        self._ghost = ("", False)
        """What is drafted behind the text, and whether it was rejected."""

    def append(self, text: str) -> None:
        """Add Markdown."""
        self.source += text
        text = self._held + text
        self._held = "\r" if text.endswith("\r") else ""
        text = text.removesuffix("\r").replace("\r\n", "\n")
        self._grow(self._markdown.append(harmless(text)))

    def clear(self, tint: TokenTint | None = None) -> None:
        """Remove everything; `tint` colours the text added from now on."""
        self._markdown, self.source, self._blocks = GrowingMarkdown(), "", []
        self._held, self._tint, self._place = "", tint, 0
        self._lines, self._tail_lines = [], []
        self.refresh(layout=True)

    def show_ghost(self, text: str, *, is_rejected: bool = False) -> None:
        """Show drafted text behind the last line, as far as it fits there; "" removes it."""
        if (text, is_rejected) != self._ghost:
            self._ghost = text, is_rejected
            self.refresh(Region(0, self._num_lines - 1, self._laid_out_width, 1))

    def restyle(self, typesetter: Typesetter) -> None:
        """Follow the theme."""
        self._typesetter = typesetter
        self._laid_out_width = 0
        self.refresh(layout=True)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines at a width."""
        del container, viewport
        self._lay_out_all(width)
        return self._num_lines

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return the lines of a region, computing their common style only once."""
        self._style = self.rich_style
        return super().render_lines(crop)

    def render_line(self, y: int) -> Strip:
        """Return one line, on the widget's own background."""
        self._lay_out_all(self.size.width)
        lines, place = self._lines, y
        if y >= len(lines):
            lines, place = self._tail_lines, y - len(lines)
        line = lines[place] if place < len(lines) else EMPTY
        if self._ghost[0] and y == self._num_lines - 1:
            text, is_rejected = self._ghost
            line = self._typesetter.with_ghost(line, text, self.size.width, is_rejected=is_rejected)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            line = self._highlighted(line, *span)
        style = self._style
        return line.apply_style(style).crop_extend(0, self.size.width, style).apply_offsets(0, y)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return the text selected with the mouse."""
        selected: list[str] = []
        for y, line in enumerate([*self._lines, *self._tail_lines]):
            if (span := selection.get_span(y)) is None or has_mark(line, TITLE):
                continue
            text = copied(line, *span)
            if selected and has_mark(line, WRAPPED):
                selected[-1] += text
            else:
                selected.append(text)
        return "\n".join(line.rstrip() for line in selected), "\n"

    def _highlighted(self, line: Strip, start: int, end: int) -> Strip:
        """Return a line with a range of characters highlighted; a character may take two cells."""
        text = line.text
        first = cell_len(text[:start])
        last = line.cell_length if end == -1 else cell_len(text[:end])
        style = self._selection_style
        marked = [
            Segment(text, (own or Style()) + style) for text, own, _ in line.crop(first, last)
        ]
        return Strip([*line.crop(0, first), *marked, *line.crop(last)])

    @property
    def _selection_style(self) -> Style:
        """The style of selected text, which keeps its colour unless the theme sets one."""
        style = self.screen.get_component_rich_style("screen--selection")
        has_colour = self.screen.get_component_styles("screen--selection").color.a > 0
        return style if has_colour else Style(bgcolor=style.bgcolor)

    @property
    def _num_lines(self) -> int:
        """The number of lines, without the empty one after the last block."""
        last = (self._tail_lines or self._lines or [EMPTY])[-1]
        return max(1, len(self._lines) + len(self._tail_lines) - (not last.text))

    def on_mouse_down(self, event: MouseDown) -> None:
        """Copy or save the code block whose label was pressed.

        A click would come too late: the message gets the focus first, which may move its lines.
        """
        is_copy = event.style.meta.get(COPY)
        if is_copy or event.style.meta.get(SAVE):
            number = sum(map(can_copy, [*self._lines, *self._tail_lines][: event.y]))
            block = code_fences(self.source)[number]
            if is_copy:
                self.app.copy_to_clipboard(block.content)
            else:
                self.post_message(self.SaveRequested(block))

    def _grow(self, finished: Sequence[str]) -> None:
        """Lay out new text, and redraw only from the first changed line on."""
        self._blocks += finished
        if not self._laid_out_width:
            if self.display:  # in a closed fold, a layout of the screen would be wasted
                self.refresh(layout=True)
            return
        first, num_lines = max(0, len(self._lines) - 1), self._num_lines
        self._lay_out(finished)
        height = max(self._num_lines, num_lines) - first
        changed = Region(0, first, self._laid_out_width, max(1, height))
        self.refresh(changed, layout=self._num_lines != num_lines)

    def _lay_out_all(self, width: int) -> None:
        """Lay out everything, unless it is already laid out at this width."""
        if width != self._laid_out_width and width > 0:
            self._laid_out_width = width
            self._lines, self._place = [], 0
            self._lay_out(self._blocks)

    def _lay_out(self, finished: Sequence[str]) -> None:
        for block in finished:
            lines, self._place = self._lines_of(block)
            is_part = not block.endswith("\n")  # of a paragraph, which goes on below
            self._lines += lines[:-1] if is_part and lines and not lines[-1].text else lines
        self._tail_lines, _ = self._lines_of(self._markdown.tail)

    def _lines_of(self, block: str) -> tuple[list[Strip], int]:
        """Return the lines of the next block, and where its tokens end."""
        if is_continued(block) and self._lines and not self._lines[-1].text:
            self._lines.pop()  # the empty line between two blocks
        lines = self._typesetter.markdown(block, self._laid_out_width)
        if self._tint is None:
            return lines, self._place
        origins, end = self._tint.of_lines([visible(line) for line in lines], self._place)
        tinted = map(self._typesetter.tinted, lines, origins)
        return list(tinted), end


def copied(line: Strip, start: int, end: int) -> str:
    """Return the characters of a line between two offsets, without margins; -1 is the end."""
    found, place = "", 0
    for text, style, _ in line:
        if style is None or not style.meta.get(MARGIN):
            found += text[max(0, start - place) : None if end == -1 else max(0, end - place)]
        place += len(text)
    return found


def can_copy(line: Strip) -> bool:
    """Return True for the line above a code block that has its copy label."""
    return has_mark(line, COPY)


def has_mark(line: Strip, mark: str) -> bool:
    """Return True if a part of the line has a mark of `style_marks`."""
    return any(style is not None and style.meta.get(mark) for _, style, _ in line)


def visible(line: Strip) -> str:
    """Return the text of a line, with its margins replaced by spaces."""
    return "".join(
        " " * len(text) if style is not None and style.meta.get(MARGIN) else text
        for text, style, _ in line
    )
