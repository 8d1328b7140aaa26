"""A conversation's statistics: a row per answer, the totals, acceptance by position."""

from collections.abc import Sequence
from itertools import accumulate
from typing import ClassVar

from rich.cells import cell_len
from rich.text import Text
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widgets import DataTable, Static

from specchat.chat.answer_statistics import HEADINGS, add_up, measured_answers, table_of
from specchat.chat.conversation import Message
from specchat.tui.screens.dialogs import CLOSING, Dialog
from specchat.wording import positions_text

WIDTH = 60
WIDEST, AROUND = 72, 4
"""The width of the dialog, as in the style sheet, and its border and padding."""
MAX_SHARES = 8
FEW_ROWS = 34
"""On screens with fewer rows, the column chart becomes one line of text."""


class StatisticsScreen(Dialog[None]):
    """The answers of a branch, as a table."""

    BINDINGS: ClassVar[list[BindingType]] = [*CLOSING]

    def __init__(self, branch: Sequence[Message]) -> None:
        super().__init__("Statistics of this conversation")
        self._answers = measured_answers(branch)
        self._totals = add_up(answer.statistics for answer in self._answers)

    def content(self) -> ComposeResult:
        """Yield the table, with acceptance below it."""
        yield DataTable(cursor_type="row", zebra_stripes=True, cell_padding=0)
        yield Static(id="positions", markup=False)

    def on_mount(self) -> None:
        """Fill the table, and scroll to the newest answer and the totals below it."""
        table = self.query_one(DataTable)
        *rows, total = table_of(self._answers, self._totals)
        room = min(WIDEST, self.app.size.width) - AROUND
        num_columns = _fitting([HEADINGS, *rows, total], room)
        for heading in _aligned(HEADINGS, "")[:num_columns]:
            table.add_column(heading)
        for row in rows:
            table.add_row(*_aligned(row, "")[:num_columns])
        table.add_row(*_aligned(total, "bold")[:num_columns])
        table.move_cursor(row=len(rows))
        if self._totals.accepted_by_position:
            words = positions_text(self._totals.accepted_by_position[:MAX_SHARES])
            shown = Content.styled(f"acceptance by draft position: {words}", "dim")
            self.query_one("#positions", Static).update(shown)


def _fitting(rows: Sequence[Sequence[str]], room: int) -> int:
    """Return how many columns fit into a width, from the left."""
    widths = [1 + max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    widths[-1] += 1
    return max(1, sum(total <= room for total in accumulate(widths)))


def _aligned(texts: Sequence[str], style: str) -> list[Text]:
    *right, last = texts
    figures = [Text(f" {text}", style, justify="right") for text in right]
    return [*figures, Text(f"  {last}", style)]
