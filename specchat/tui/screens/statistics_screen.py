"""The statistics of a conversation: an answer a row, totals, acceptance by position."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Vertical
from textual.widgets import DataTable, Static

from specchat.chat.answer_statistics import (
    HEADINGS,
    Totals,
    add_up,
    answer_rows,
    cells,
    total_cells,
)
from specchat.chat.conversation import Message
from specchat.tui.figures import bar
from specchat.tui.screens.dialogs import CLOSING, Dialog, keys_line

__all__ = ["AnswersScreen"]

BAR_WIDTH = 20
MOST_BARS = 8
NARROW = 34
"""Rows of a screen below which the bars are drawn in one line."""


class AnswersScreen(Dialog[None]):
    """The answers of the branch that is read, as a table."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSING]

    def __init__(self, branch: Sequence[Message]) -> None:
        """Take the messages that are read."""
        super().__init__()
        self._rows = answer_rows(branch)
        self._totals = add_up(row.statistics for row in self._rows)

    def compose(self) -> ComposeResult:
        """Put the totals below the table."""
        with Vertical(classes="dialog"):
            yield Static("Statistics of this conversation", classes="title", markup=False)
            yield DataTable(cursor_type="row", zebra_stripes=True, cell_padding=0)
            yield Static(id="positions", markup=False)
            yield keys_line()

    def on_mount(self) -> None:
        """Fill the table, the newest answer and the totals in sight."""
        table = self.query_one(DataTable)
        *right, last = HEADINGS
        for heading in right:
            table.add_column(Text(f" {heading}", justify="right"))
        table.add_column(f"  {last}")
        for row in self._rows:
            table.add_row(*_aligned(cells(row), ""))
        table.add_row(*_aligned(total_cells(self._totals), "bold"))
        table.move_cursor(row=len(self._rows))
        table.focus()
        draw = _line if self.app.size.height < NARROW else _bars
        self.query_one("#positions", Static).update(draw(self._totals))


def _aligned(texts: Sequence[str], style: str) -> list[Text]:
    """Return cells with all but the last to the right."""
    *right, last = texts
    figures = [Text(f" {text}", style, justify="right") for text in right]
    return [*figures, Text(f"  {last}", style)]


def _bars(totals: Totals) -> Text:
    """Return acceptance by position, a bar a line."""
    text = (
        Text("\nacceptance by draft position\n", "dim") if totals.accepted_by_position else Text()
    )
    for place, share in enumerate(totals.accepted_by_position[:MOST_BARS], 1):
        text.append(f"{place:>2} ", "not dim")
        text.append(f"{bar(share, BAR_WIDTH):<{BAR_WIDTH}}", "not dim green")
        text.append(f" {share:4.0%}\n", "not dim")
    return text


def _line(totals: Totals) -> Text:
    """Return acceptance by position in one line."""
    shares = [f"{place} {share:.0%}" for place, share in enumerate(totals.accepted_by_position, 1)]
    words = " · ".join(shares[:MOST_BARS])
    return Text(f"\nacceptance by draft position: {words}" if shares else "", "dim")
