"""The tokens of a step as chips: side by side, or as the tree that they were drafted in.

A tree is drawn as its draft with the branches below the places where they fork:

    ━ ✔ The ━ ✔ cat ┱ ✘ sat ─ ✘ on
            │       ┗ ✔ ran ━ + away
            └ ✘ dog

Heavy lines join the accepted tokens, and the target's own behind them.
"""

from collections.abc import Sequence

from rich.cells import cell_len, set_cell_size
from textual.content import Content
from textual.style import Style

from specchat.decoding.chunk import Chunk
from specchat.tui.texts.cards import MUTED, REJECTED, origin_style, packed
from specchat.tui.texts.step_tokens import DROPPED, StepToken, tokens_of, visible

CHIP = "chip"
"""The key of a chip's position in the metadata of its style."""
LONGEST, FEWEST_CELLS = 24, 4
"""The most cells of a token in a tree, and the most on the narrowest screen."""
AROUND = 4
"""Cells of a chip beside its text: brackets, the mark and a space."""


def drawn(step: Chunk, cursor: int, width: int) -> tuple[list[Content], int]:
    """Return the tokens of a step as chips, and the line that holds the one under the cursor.

    That one is in brackets; clicking a chip moves the cursor to it. Lines count from 0.
    """
    tokens = tokens_of(step)
    if step.tree:
        tree = _Drawing(tokens, cursor, width)
        if tree.is_wide_enough:
            return tree.lines(), tree.row_of_cursor
    chips = [
        _chip(number, each, cursor, f"reverse {_style(each) or f'{REJECTED} strike'}")
        for number, each in enumerate(tokens)
    ]
    return packed(chips, width), len(packed(chips[: cursor + 1], width)) - 1


def _style(token: StepToken) -> str:
    return origin_style(token.origin) if token.origin else ""


def _chip(number: int, token: StepToken, cursor: int, style: str, most: int = 0) -> Content:
    """Return a token's chip, its text cut to this number of cells; 0 leaves it as it is."""
    text = visible(token.text)
    if most and cell_len(text) > most:
        text = set_cell_size(text, most - 1).rstrip() + "…"
    left, right = "[]" if number == cursor else "  "
    chip = Content.styled(f"{left}{token.mark} {text}{right}", style)
    return chip.stylize(Style.from_meta({CHIP: number}))


class _Drawing:
    """A tree while it is drawn. Tokens have their numbers in the list, and -1 is the text.

    A chain is a token, the first of those that follow it, and so on. The others of them hang below
    that one, each with a chain of its own. A chain that is too long for its line goes on below.
    """

    def __init__(self, tokens: Sequence[StepToken], cursor: int, width: int) -> None:
        """Measure the tree."""
        self._tokens, self._cursor, self._width = tokens, cursor, width
        self._children: dict[int, list[int]] = {}
        for number, each in enumerate(tokens):
            self._children.setdefault(each.follows, []).append(number)
        most = max(FEWEST_CELLS, min(LONGEST, width // 3))
        self._chips = [self._chip_of(number, most) for number in range(len(tokens))]
        self._needs, self._needs_later = self._measured()
        self._parts: list[list[tuple[int, Content]]] = []
        self.row_of_cursor = 0

    @property
    def is_wide_enough(self) -> bool:
        """Whether every line fits: each fork within a branch takes a column more."""
        return self._needs_later[-1] < self._width

    def lines(self) -> list[Content]:
        """Draw the tree."""
        first = self._children[-1][0]
        self._draw(first, 0, 0)
        return [self._line(parts) for parts in self._parts]

    def _chip_of(self, number: int, most: int) -> Content:
        token = self._tokens[number]
        style = REJECTED if token.mark == DROPPED else f"reverse {_style(token)}"
        return _chip(number, token, self._cursor, style, most)

    def _measured(self) -> tuple[list[int], list[int]]:
        """Return the cells that each token needs with what hangs below it, and what follows it.

        The last entry of the latter is for the whole tree. What follows a token comes after it in
        the list, so the needs are known in reverse.
        """
        needs = [1 + chip.cell_length for chip in self._chips]
        own, later = list(needs), [0] * (len(needs) + 1)
        for number in range(len(needs) - 1, -2, -1):
            first, *others = self._children.get(number, [-1])
            if first < 0:
                continue
            for other in others:
                needs[first] = max(needs[first], own[other], 1 + later[other])
            later[number] = max(needs[first], later[first])
        return needs, later

    def _draw(self, first: int, row: int, column: int, start: str = "") -> int:
        """Draw a chain from a line and a column on; return the next free line.

        `start` joins it to what it hangs from, and is empty for the draft.
        """
        number, x, goes_on = first, column, True
        while True:
            begin, forks = x, list[tuple[int, int]]()
            while goes_on and (x == begin or x + self._needs[number] < self._width):
                is_joined = number == first and start
                self._put(row, x, start if is_joined else self._joint(number))
                self._put(row, x + 1, self._chips[number])
                if number == self._cursor:
                    self.row_of_cursor = row
                if not is_joined and self._beside(number):
                    forks.append((x, number))
                x += 1 + self._chips[number].cell_length
                goes_on = number in self._children
                number = self._children.get(number, [number])[0]
            if goes_on:
                self._put(row, x, self._line_to(number))
            below = row + 1
            for fork, token in reversed(forks):
                below = self._hang(row, fork, self._beside(token), below)
            if not goes_on:
                return below
            row, x = below, column + bool(start)

    def _hang(self, row: int, column: int, tokens: Sequence[int], below: int) -> int:
        """Draw the chains that hang in a column from a line; return the next free line."""
        rows: list[int] = []
        for place, number in enumerate(tokens):
            is_last = place == len(tokens) - 1
            is_path_below = any(map(self._is_on_path, tokens[place + 1 :]))
            if self._is_on_path(number):
                joint = "┗" if is_last else "┡"
            else:
                joint = "└" if is_last else "┠" if is_path_below else "├"
            rows.append(below)
            below = self._draw(number, below, column, joint)
        path = [at for at, each in zip(rows, tokens, strict=True) if self._is_on_path(each)]
        for between in range(row + 1, rows[-1]):
            if between not in rows:
                self._put(between, column, "┃" if path and between < path[0] else "│")
        return below

    def _beside(self, number: int) -> Sequence[int]:
        """Return what hangs below a token, if it is the first of those at its place."""
        return self._children[self._tokens[number].follows][1:]

    def _joint(self, number: int) -> str:
        """Return what joins a token to the one before it in its chain, and to what hangs below."""
        below = self._beside(number)
        if any(map(self._is_on_path, below)):
            return "┱"
        if self._is_on_path(number):
            return "┯" if below else "━"
        return "┬" if below else "─"

    def _line_to(self, number: int) -> str:
        """Return the end of a line whose chain goes on with a token on another one."""
        is_on_path = any(map(self._is_on_path, (number, *self._beside(number))))
        return "━" if is_on_path else "─"

    def _is_on_path(self, number: int) -> bool:
        return self._tokens[number].mark != DROPPED

    def _put(self, row: int, column: int, what: str | Content) -> None:
        if isinstance(what, str):
            what = Content.styled(what, MUTED if what in "─│├└┬" else "bold")
        while len(self._parts) <= row:
            self._parts.append([])
        self._parts[row].append((column, what))

    def _line(self, parts: Sequence[tuple[int, Content]]) -> Content:
        line = Content()
        for column, what in sorted(parts, key=lambda each: each[0]):
            line = Content.assemble(line, " " * (column - line.cell_length), what)
        return line
