"""A conversation's statistics: a row per answer, the totals, acceptance by position."""

from collections.abc import Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import DataTable, Static

from specchat.chat.answer_statistics import HEADINGS, add_up, measured_answers, table_of
from specchat.chat.conversation import Message
from specchat.tui.cards import position_columns
from specchat.tui.screens.dialogs import CLOSING, Dialog
from specchat.wording import positions_text

WIDTH = 60
MAX_SHARES = 8
FEW_ROWS = 34
"""On screens with fewer rows, the column chart becomes one line of text."""


class StatisticsScreen(Dialog[None]):
    """The answers of a branch, as a table."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSING]

    def __init__(self, branch: Sequence[Message]) -> None:
        super().__init__("Statistics of this conversation")
        self._answers = measured_answers(branch)
        self._totals = add_up(each.statistics for each in self._answers)

    def content(self) -> ComposeResult:
        """Yield the table, with acceptance below it."""
        yield DataTable(cursor_type="row", zebra_stripes=True, cell_padding=0)
        yield Static(id="positions", markup=False)

    def on_mount(self) -> None:
        """Fill the table, and scroll to the newest answer and the totals below it."""
        table = self.query_one(DataTable)
        *right, last = HEADINGS
        for heading in right:
            table.add_column(Text(f" {heading}", justify="right"))
        table.add_column(f"  {last}")
        *rows, total = table_of(self._answers, self._totals)
        for row in rows:
            table.add_row(*_aligned(row, ""))
        table.add_row(*_aligned(total, "bold"))
        table.move_cursor(row=len(rows))
        if self._totals.accepted_by_position:
            shares = self._totals.accepted_by_position
            if self.app.size.height < FEW_ROWS:
                words = positions_text(shares[:MAX_SHARES])
                drawn = Content.styled(f"acceptance by draft position: {words}", "dim")
            else:
                drawn = Content("acceptance by draft position\n")
                drawn += position_columns(shares, WIDTH, 2)
            self.query_one("#positions", Static).update(drawn)


def _aligned(texts: Sequence[str], style: str) -> list[Text]:
    *right, last = texts
    figures = [Text(f" {text}", style, justify="right") for text in right]
    return [*figures, Text(f"  {last}", style)]
