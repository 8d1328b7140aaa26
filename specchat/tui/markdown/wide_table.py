"""Tables on the screen: cells wrap, and where columns are too narrow, rows become lists."""

from __future__ import annotations

from itertools import zip_longest

from rich import box
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, RenderResult
from rich.markdown import TableElement
from rich.rule import Rule
from rich.table import Table
from rich.text import Text

LEAST_COLUMN = 8
"""Cells that a column needs, unless its content is shorter."""
BETWEEN = 2
"""Cells between two columns."""


class WideTable(TableElement):
    """A table that shows all its characters at any width."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Draw a table, or a list of its rows."""
        row = self.header.row if self.header else None
        head = [cell.content.copy() for cell in row.cells] if row else []
        for text in head:
            text.stylize("markdown.table.header")
        rows = [[cell.content for cell in row.cells] for row in self.body.rows] if self.body else []
        columns = list(zip_longest(head, *rows, fillvalue=Text()))
        needed = [min(LEAST_COLUMN, max(map(_width, column))) for column in columns]
        if sum(needed) + BETWEEN * (len(columns) - 1) + 2 > options.max_width:
            yield from _as_list(head, rows)
        else:
            yield _as_table(columns)


def _width(text: Text) -> int:
    return max(map(cell_len, text.plain.split("\n")))


def _as_table(columns: list[tuple[Text, ...]]) -> Table:
    """Return a table whose long words are broken, not cut off."""
    table = Table(
        box=box.SIMPLE,
        pad_edge=False,
        style="markdown.table.border",
        show_edge=True,
        collapse_padding=True,
    )
    for head, *_ in columns:
        table.add_column(head, overflow="fold")
    for cells in zip(*(column[1:] for column in columns), strict=True):
        table.add_row(*cells)
    return table


def _as_list(head: list[Text], rows: list[list[Text]]) -> RenderResult:
    """Yield every row as lines of "head: cell", with a rule between two rows."""
    if not rows:
        yield from head
    for number, row in enumerate(rows):
        if number:
            yield Rule(style="markdown.hr", characters="─")
        for name, cell in zip_longest(head, row, fillvalue=Text()):
            yield Text.assemble(name, ": ", cell) if name.plain else cell
