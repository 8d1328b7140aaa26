"""A target that lengthens its passes where that takes less time."""

from collections.abc import Sequence
from typing import Protocol

from specchat.decoding.ports import LanguageModel, PromptProgress, Rows, TreeModel


class PaddingCosts(Protocol):
    """The costs of passes, by which padding is decided."""

    def padded(self, num_tokens: int, depth: int, most: int) -> int:
        """Return the fastest length, up to `most`, for a pass that must read this many tokens."""


class PaddedTarget:
    """A target that pads the passes of verification: those that give logits for several tokens.

    The padding comes last, where no token attends to it, and stays in the memory until the rollback
    that removes rejected tokens, so that rollback must be free.
    """

    def __init__(self, model: LanguageModel, costs: PaddingCosts) -> None:
        """Pad a model's passes according to their costs."""
        self._model, self._costs = model, costs
        self._trees = model if isinstance(model, TreeModel) else None

    @property
    def capacity(self) -> int:
        """The number of tokens the memory can hold."""
        return self._model.capacity

    @property
    def length(self) -> int:
        """The number of tokens in the memory, with the padding of the last pass."""
        return self._model.length

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many of the first tokens of this text are in the memory."""
        return self._model.count_known(tokens)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many it held already."""
        return self._model.prefill(tokens, on_progress)

    def mark(self) -> None:
        """Allow a rollback to the current length."""
        self._model.mark()

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return the logits after each of the last `num_rows`."""
        if num_rows < 2:
            return self._model.evaluate(tokens, num_rows)
        count = self._num_padding(len(tokens), self._model.capacity)
        padding = [tokens[-1]] * count
        return self._model.evaluate([*tokens, *padding], num_rows + count)[:num_rows]

    def _num_padding(self, num_tokens: int, most: int) -> int:
        """Return the tokens to add to a pass over these and those that wait, up to `most`."""
        depth, waiting = self._model.length, self.num_waiting
        room = min(self._model.capacity - depth, most) + waiting
        return max(0, self._costs.padded(num_tokens + waiting, depth, room) - num_tokens - waiting)

    @property
    def most_branches(self) -> int:
        """How many branches a pass may have."""
        return self._trees.most_branches if self._trees else 0

    @property
    def num_waiting(self) -> int:
        """How many tokens of the text the next pass reads before those it is given."""
        return self._trees.num_waiting if self._trees else 0

    def evaluate_tree(
        self, tokens: Sequence[int], branches: Sequence[tuple[int, int]], num_rows: int
    ) -> Rows:
        """Append tokens, and branches beside them, the padding among these."""
        if self._trees is None:
            raise TypeError("the model has no branches")
        most = len(tokens) + self._trees.most_branches
        count = self._num_padding(len(tokens) + len(branches), most)
        first = num_rows + len(branches) - 1
        padding = [(tokens[-1], row) for row in range(first, first + count)]
        rows = self._trees.evaluate_tree(tokens, [*branches, *padding], num_rows)
        return rows[: num_rows + len(branches)]

    def keep(self, length: int, branches: Sequence[int]) -> None:
        """Keep the first `length` tokens of the text, which ends with these branches."""
        if self._trees:
            self._trees.keep(length, branches)

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self._model.rollback(length)
