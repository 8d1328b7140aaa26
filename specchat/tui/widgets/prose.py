"""A widget that shows text which grows: only what is new is laid out."""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.geometry import Region, Size
from textual.reactive import Reactive
from textual.selection import Selection
from textual.strip import Strip
from textual.widget import Widget

from specchat.chat.safe_text import harmless
from specchat.decoding.chunk import Origin
from specchat.tui.widgets.growing_markdown import GrowingMarkdown
from specchat.tui.widgets.typesetter import Typesetter

__all__ = ["Prose"]

Pieces = Sequence[tuple[str, Origin]]

MOST_DRAWN = 500
"""Lines kept as they were drawn: more than a screen has, and far fewer than an answer may."""


class Prose(Widget):
    """Markdown, or tokens in the colours of where they came from, as lines laid out once."""

    DEFAULT_CSS = "Prose { height: auto; width: 1fr; }"
    virtual_size = Reactive(Size(0, 0), layout=False)
    """Textual lays everything out a second time where this changes, which nothing here needs."""

    def __init__(self, typesetter: Typesetter, *, classes: str | None = None) -> None:
        """Start empty."""
        super().__init__(classes=classes)
        self._typesetter = typesetter
        self._markdown = GrowingMarkdown()
        self._blocks: list[str | Pieces] = []
        self._open: list[tuple[str, Origin]] = []
        self._set_width = 0
        self._lines: list[Strip] = []
        self._tail: list[Strip] = []
        self._drawn: dict[int, Strip] = {}
        """Lines as they were drawn last: Textual asks for all in sight when a text grows."""
        self._drawn_as: tuple[int, Style] | None = None

    def append(self, text: str) -> None:
        """Add text of the answer."""
        before = len(self._lines), self._num_lines
        self._take(self._markdown.append(harmless(text)))
        self._tail = self._laid_out(self._markdown.tail) if self._set_width else []
        self._refresh_end(*before)

    def append_tokens(self, pieces: Pieces) -> None:
        """Add tokens with their origins."""
        before = len(self._lines), self._num_lines
        complete: list[str | Pieces] = []
        for text, origin in pieces:
            first, *others = harmless(text).split("\n")
            self._open.append((first, origin))
            for line in others:
                complete.append(self._open)
                self._open = [(line, origin)]
        self._take(complete)
        self._tail = self._laid_out(self._open) if self._set_width else []
        self._refresh_end(*before)

    def clear(self) -> None:
        """Hold nothing."""
        self._markdown, self._blocks, self._open = GrowingMarkdown(), [], []
        self._lines, self._tail, self._drawn = [], [], {}
        self.refresh(layout=True)

    def restyle(self, typesetter: Typesetter) -> None:
        """Lay everything out again, in other colours."""
        self._typesetter = typesetter
        self._set_width = 0
        self.refresh(layout=True)

    @property
    def is_empty(self) -> bool:
        """Say whether there is anything to see."""
        return not (self._blocks or self._open or self._markdown.tail.strip())

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Take what there is."""
        del viewport
        return container.width

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return the number of lines at a width."""
        del container, viewport
        self._set(width)
        return self._num_lines

    def render_line(self, y: int) -> Strip:
        """Return one line, in the widget's own colours where it has none."""
        self._set(self.size.width)
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(y)) is not None:
            return self._in_style(self._selected(self._line(y), *span), y)
        if y not in self._drawn:
            self._drawn[y] = self._in_style(self._line(y), y)
        return self._drawn[y]

    def render_lines(self, crop: Region) -> list[Strip]:
        """Return lines, drawn again only where they changed."""
        drawn_as = self.size.width, self.rich_style
        if drawn_as != self._drawn_as or len(self._drawn) > MOST_DRAWN:
            self._drawn, self._drawn_as = {}, drawn_as
        return super().render_lines(crop)

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """Return what the mouse has marked."""
        marked = []
        for y, line in enumerate([*self._lines, *self._tail]):
            if (span := selection.get_span(y)) is not None:
                start, end = span
                marked.append(line.text.rstrip()[start : None if end == -1 else end])
        return "\n".join(marked), "\n"

    def selection_updated(self, selection: Selection | None) -> None:
        """Show what the mouse has marked."""
        del selection
        self.refresh()

    def _in_style(self, line: Strip, y: int) -> Strip:
        """Return a line in the widget's own colours where it has none."""
        width, style = self._drawn_as or (self.size.width, self.rich_style)
        return line.apply_style(style).crop_extend(0, width, style).apply_offsets(0, y)

    def _selected(self, line: Strip, start: int, end: int) -> Strip:
        """Colour what is marked, given in characters, of which some take two cells."""
        text = line.text
        first = cell_len(text[:start])
        last = line.cell_length if end == -1 else cell_len(text[:end])
        style = self.screen.get_component_rich_style("screen--selection")
        plain = [Segment(segment.text, style) for segment in line.crop(first, last)]
        return Strip([*line.crop(0, first), *plain, *line.crop(last)])

    @property
    def _num_lines(self) -> int:
        tail = self._tail
        gap = bool(tail or self._lines) and not (tail or self._lines)[-1].text
        return max(1, len(self._lines) + len(tail) - gap)

    def _line(self, y: int) -> Strip:
        if y < len(self._lines):
            return self._lines[y]
        return self._tail[y - len(self._lines)] if y - len(self._lines) < len(self._tail) else BLANK

    def _refresh_end(self, num_unchanged: int, num_lines: int) -> None:
        """Have drawn again what is new; all else stays as it is, the layout too where it may."""
        if not self._set_width:
            self.refresh(layout=True)
            return
        for y in [y for y in self._drawn if y >= num_unchanged]:
            del self._drawn[y]
        num_changed = max(self._num_lines, num_lines) - num_unchanged + 1
        changed = Region(0, max(0, num_unchanged - 1), self._set_width, max(1, num_changed))
        self.refresh(changed, layout=self._num_lines != num_lines)

    def _take(self, blocks: Sequence[str | Pieces]) -> None:
        self._blocks.extend(blocks)
        if self._set_width:
            for block in blocks:
                self._lines += self._laid_out(block)

    def _set(self, width: int) -> None:
        """Lay everything out where the width is another one."""
        if width == self._set_width or width < 1:
            return
        self._set_width, self._drawn = width, {}
        self._lines = [line for block in self._blocks for line in self._laid_out(block)]
        self._tail = self._laid_out(self._markdown.tail or self._open)

    def _laid_out(self, block: str | Pieces) -> list[Strip]:
        if isinstance(block, str):
            return self._typesetter.markdown(block, self._set_width)
        return self._typesetter.tokens(block, self._set_width) if block else []


BLANK = Strip.blank(0)
