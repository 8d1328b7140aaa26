"""A context whose passes may have branches beside the text: token trees.

llama.cpp reads them in one pass as tokens of several sequences. Sequence 0 is the text. Each line
of branches has a sequence of its own, which shares the text before it: copying a text to another
sequence marks the cells of the cache and moves nothing. A token is read for all sequences that go
through it, so each sees what precedes it on its own path, and nothing else.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

from specchat.decoding.ports import Rows
from specchat.llama.context import SEQUENCE, Batch, Context
from specchat.llama.library import AbortFlag, api
from specchat.llama.memory_image import MemoryImage
from specchat.llama.model import Model
from specchat.planning.context_shape import ContextShape, ModelOptions

ALL = -1
"""Of positions: from the first one on, or to the last one."""

Link = tuple[int, int]
"""A branch: its token, and the number of the row that it follows, negative before the first."""


class TreeContext(Context):
    """A context that can read branches, where its memory drops any tail.

    A branch that is kept stays where it is in the cache, behind rejected tokens that leave a gap.
    Sums over the cache are then in another order than in plain decoding, and may round differently.
    """

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        abort: AbortFlag | None = None,
        shape: ContextShape | None = None,
    ) -> None:
        """Make a context; raises as `Context` does."""
        self._lines: list[list[int]] = []  # of the last pass, until some of it is kept
        super().__init__(model, options, abort, shape=shape)
        self._memory = api.llama_get_memory(self.handle)
        self._tree = TreeBatch(self._chunk, 1 + self.shape.num_branches)
        self._links: Sequence[Link] = ()

    @property
    def most_branches(self) -> int:
        """How many branches a pass may have."""
        return self.shape.num_branches if self.rollback_kind.removes_any_tail else 0

    def evaluate_tree(self, tokens: Sequence[int], branches: Sequence[Link], num_rows: int) -> Rows:
        """Append tokens, and branches that follow one of the rows; return views of the logits.

        A branch may also follow a token before the first row: -1 stands for the one before it. The
        logits are those after each of the last `num_rows` tokens, then those after each branch.
        Until `keep` is called, the branches are in the memory. Raises as `evaluate` does.
        """
        count, start = num_rows + len(branches), len(self.tokens)
        if not 0 < len(branches) <= self.most_branches or count > self.longest_draft + 1:
            raise ValueError(f"{len(branches)} branches beside {num_rows} rows are too many")
        self._require_open()
        self._drop_branches()
        self._catch_up()
        self._lines = lines_of(branches, num_rows)
        self._links = branches
        try:
            for number, line in enumerate(self._lines, 1):
                end = start + len(tokens) - num_rows + branches[line[0]][1] + 1
                api.llama_memory_seq_cp(self._memory, SEQUENCE, number, 0, end)
            self._tree.fill_tree(tokens, branches, self._lines, start, num_rows)
            self.run(self._tree)
            self.num_evaluated = start + len(tokens)
            if self.listener:
                self.listener.after_pass(start, tokens, is_prompt=False)
            rows = self.logits(count)
        except BaseException:
            self._forget(start)
            raise
        self.tokens.extend(tokens)
        return rows

    def keep(self, length: int, branches: Sequence[int]) -> None:
        """Keep the first `length` tokens of the text, which ends with these branches of the pass.

        They follow one another; all others are forgotten.
        """
        if not branches:
            self.rollback(length)
            return
        fork, lines, links, num_last = (
            length - len(branches),
            self._lines,
            self._links,
            self._num_last,
        )
        line = next(place for place, line in enumerate(lines, 1) if branches[-1] in line)
        self._lines = []
        self.rollback(fork)
        api.llama_memory_seq_cp(self._memory, line, SEQUENCE, fork, length)
        self._lines = lines
        self._drop_branches()
        self.tokens += [links[number][0] for number in branches]
        self.num_evaluated = length
        if self.listener:
            self._num_last = num_last  # the hidden states of that pass are still there
            first = num_last - len(links)
            self.listener.after_branches(fork, [first + number for number in branches])
        self._num_last = 0

    def image(self) -> MemoryImage:
        """Return a copy of the memory, without branches."""
        self._drop_branches()
        return super().image()

    def _decode(self, tokens: Sequence[int], num_rows: int) -> None:
        self._drop_branches()
        super()._decode(tokens, num_rows)

    def _forget(self, length: int) -> None:
        self._drop_branches()
        super()._forget(length)

    def _drop_branches(self) -> None:
        """Remove the branches of the last pass from llama.cpp's memory."""
        lines, self._lines = self._lines, []
        for line in range(1, len(lines) + 1 if self.handle is not None else 0):
            api.llama_memory_seq_rm(self._memory, line, ALL, ALL)


class TreeBatch(Batch):
    """A batch that says of each token its position and the sequences that go through it."""

    def __init__(self, size: int, num_sequences: int) -> None:
        super().__init__(size)
        self._positions: Any = (ctypes.c_int32 * size)()
        self._counts = (ctypes.c_int32 * size)()
        self._sequences: list[Any] = [(ctypes.c_int32 * num_sequences)() for _ in range(size)]
        pointer: Any = ctypes.POINTER(ctypes.c_int32)
        self._rows = (pointer * size)(*(ctypes.cast(row, pointer) for row in self._sequences))
        self.native.pos, self.native.n_seq_id = self._positions, self._counts
        self.native.seq_id = self._rows

    def fill_tree(
        self,
        tokens: Sequence[int],
        branches: Sequence[Link],
        lines: Sequence[Sequence[int]],
        start: int,
        num_rows: int,
    ) -> None:
        """Fill in tokens from position `start` on, and branches; the last ones give logits."""
        self.fill([*tokens, *(token for token, _ in branches)], num_rows + len(branches))
        first = len(tokens) - num_rows  # the place of the first row
        forks = [first + branches[line[0]][1] for line in lines]
        positions = list(range(start, start + self.count))
        through = [
            [SEQUENCE, *(number for number, fork in enumerate(forks, 1) if fork >= place)]
            for place in range(len(tokens))
        ]
        for number, (_, row) in enumerate(branches):
            positions[len(tokens) + number] = (
                start + first + row if row < num_rows else positions[first + row]
            ) + 1
            through.append([place for place, line in enumerate(lines, 1) if number in line])
        self._positions[: self.count] = positions
        for place, sequences in enumerate(through):
            self._counts[place] = len(sequences)
            self._sequences[place][: len(sequences)] = sequences


def lines_of(branches: Sequence[Link], num_rows: int) -> list[list[int]]:
    """Return the lines of branches: one for each that nothing hangs behind, from the fork on."""
    parents = [row - num_rows for _, row in branches]
    ends = [number for number in range(len(branches)) if number not in parents]
    lines: list[list[int]] = []
    for end in ends:
        line = [end]
        while parents[line[0]] >= 0:
            line.insert(0, parents[line[0]])
        lines.append(line)
    return lines
