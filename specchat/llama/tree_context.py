"""A context whose passes may have branches beside the text: token trees.

llama.cpp evaluates them in one pass, as tokens of several sequences. Sequence 0 is the text. Each
line of branches is a sequence of its own that shares the text before it, since a cell of the KV
cache may belong to several sequences. A token belongs to all sequences that pass through it, so it
attends to its own path and to nothing else.

Sharing visits every token of the text, so lines keep sharing it from pass to pass. An accepted
branch is evaluated again with the next tokens, so that its cell directly follows those before it.
Left behind a gap, it would change the order in which sums over the cache are taken, and the result
would round differently than in plain decoding.
"""

from collections.abc import Sequence
from contextlib import suppress

from specchat.decoding.ports import Rows
from specchat.errors import SpecchatError
from specchat.llama.batch import SequencesBatch
from specchat.llama.context import Context
from specchat.llama.library import AbortFlag, api
from specchat.llama.memory_snapshot import MemorySnapshot
from specchat.llama.model import Model
from specchat.llama.text_memory import LONGEST_REPLAY
from specchat.planning.context_shape import ContextShape, ModelOptions

TEXT_SEQUENCE = 0
ALL = -1
"""As a position: the beginning, or the end, of what llama.cpp holds."""

Link = tuple[int, int]
"""A branch: its token, and the number of the row that it follows.

A pass gives logits after its last tokens and after its branches. Their rows are counted together:
those of the tokens from 0 on, then those of the branches. Tokens before the first row count back
from -1. To the decoding loop the rows are the nodes of a draft tree (specchat.decoding.draft_tree).
"""


class TreeContext(Context):
    """A context that can evaluate branches, if its memory can drop any tail."""

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        abort: AbortFlag | None = None,
        shape: ContextShape | None = None,
    ) -> None:
        """Make a context; raises as `Context` does."""
        self._forks: list[int] = []  # of the lines of the last pass, until some of it is kept
        self._num_lines = 0  # the most of any pass
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
        count, length = num_rows + len(branches), len(self.tokens)
        if not 0 < len(branches) <= self.most_branches or count > self.longest_draft + 1:
            raise ValueError(f"{len(branches)} branches beside {num_rows} rows are too many")
        self.native.require_open()
        self._drop_branches()
        if length - self.num_evaluated > LONGEST_REPLAY:
            self._catch_up()
        # branches accepted in an earlier pass are evaluated again first: their cells were dropped
        read = [*self.tokens[self.num_evaluated :], *tokens]
        lines = lines_of(branches, num_rows)
        # the position of the token that row 0 comes after
        first = self.num_evaluated + len(read) - num_rows
        try:
            if (over := len(read) + len(branches) - self._chunk) > 0:
                self._decode(read[:over], 0)
                read = read[over:]
            start = self.num_evaluated
            self._links = branches
            # a line leaves the text at its fork, a position; sequence 0 is the text, then the lines
            position_at = self.rollback_kind.positions.at
            self._forks = [position_at(first + branches[line[0]][1] + 1) for line in lines]
            self._num_lines = max(self._num_lines, len(lines))
            for line_number, fork in enumerate(self._forks, 1):
                # what this pass evaluates before the fork carries the line's number itself
                self._share(line_number, min(fork, position_at(start)))
            self._tree.fill_tree(read, branches, lines, position_at(start), num_rows)
            self.run(self._tree)
            self.num_evaluated = start + len(read)
            if self.listener:
                self.listener.after_pass(start, read, is_prompt=False)
            rows = self.logits(count)
        except BaseException:
            self._forget(length)
            raise
        self.tokens.extend(tokens)
        return rows

    def keep(self, length: int, branches: Sequence[int]) -> None:
        """Keep the first `length` tokens of the text, of which the last are these branches.

        They must follow one another, and are evaluated again with the next tokens. All other
        branches are dropped.
        """
        links, num_last = self._links, self._num_last
        # this drops the branches' cells: added as tokens alone, the next pass evaluates them
        self.rollback(length - len(branches))
        if branches:
            self.tokens += [links[number][0] for number in branches]
            if self.listener:
                self._num_last = num_last  # the hidden states of that pass are still there
                # the pass gave the branches' states last, in the order of the links
                rows = [num_last - len(links) + number for number in branches]
                self.listener.after_branches(length - len(branches), rows)
                self._num_last = 0

    def snapshot(self) -> MemorySnapshot:
        """Return a copy of the memory, of the text alone.

        Tokens that wait to be evaluated again are evaluated first, unless that is interrupted.
        """
        self._drop_branches()
        with suppress(SpecchatError):
            self._catch_up()
        self._cut_lines(0)
        return super().snapshot()

    def _make_way(self) -> None:
        self._drop_branches()

    def _forget(self, length: int) -> None:
        self._drop_branches()
        self._cut_lines(self.rollback_kind.positions.at(min(length, self.num_evaluated)))
        super()._forget(length)

    def _share(self, line: int, end: int) -> None:
        """Let a line share the text up to position `end`, and no more; what it shares stays."""
        length = int(api.llama_memory_seq_pos_max(self._memory, line)) + 1
        if length > end:
            api.llama_memory_seq_rm(self._memory, line, end, ALL)
        elif length < end:
            api.llama_memory_seq_cp(self._memory, TEXT_SEQUENCE, line, length, end)

    def _drop_branches(self) -> None:
        """Remove the branches of the last pass from llama.cpp's memory."""
        forks, self._forks = self._forks, []
        for line, fork in enumerate(forks if self.handle is not None else (), 1):
            api.llama_memory_seq_rm(self._memory, line, fork, ALL)

    def _cut_lines(self, length: int) -> None:
        """Cut all lines back to the text's first positions."""
        self._forks = []
        for line in range(1, self._num_lines + 1 if self.handle is not None else 0):
            if api.llama_memory_seq_pos_max(self._memory, line) >= length:
                api.llama_memory_seq_rm(self._memory, line, length, ALL)


class TreeBatch(SequencesBatch):
    """A batch of a text and its branches."""

    def fill_tree(
        self,
        tokens: Sequence[int],
        branches: Sequence[Link],
        lines: Sequence[Sequence[int]],
        start: int,
        num_rows: int,
    ) -> None:
        """Fill in tokens from position `start` on, and branches; the last ones give logits."""
        read, count = [*tokens, *(token for token, _ in branches)], len(tokens) + len(branches)
        first = len(tokens) - num_rows  # the index in the batch of the first row's token
        forks = [first + branches[line[0]][1] for line in lines]
        positions = list(range(start, start + count))
        # a token of the text is on its own path and on those of all lines that fork after it
        through = [
            [TEXT_SEQUENCE, *(line for line, fork in enumerate(forks, 1) if fork >= index)]
            for index in range(len(tokens))
        ]
        for number, (_, row) in enumerate(branches):
            # one position after its parent's, whose own may be out of order if it is a branch
            parent = start + first + row if row < num_rows else positions[first + row]
            positions[len(tokens) + number] = parent + 1
            through.append([index for index, line in enumerate(lines, 1) if number in line])
        self.fill_each(read, positions, through, [index >= first for index in range(count)])


def lines_of(branches: Sequence[Link], num_rows: int) -> list[list[int]]:
    """Return the lines of branches, one per leaf: the numbers of its branches, from the fork on.

    Each line is one path through the tree, for which llama.cpp needs a sequence.
    """
    parents = [row - num_rows for _, row in branches]  # negative: a token of the text
    ends = [number for number in range(len(branches)) if number not in parents]
    lines: list[list[int]] = []
    for end in ends:
        line = [end]
        while parents[line[0]] >= 0:
            line.insert(0, parents[line[0]])
        lines.append(line)
    return lines
