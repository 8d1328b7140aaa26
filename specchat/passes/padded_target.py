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
        depth = self._model.length
        size = self._costs.padded(len(tokens), depth, self._model.capacity - depth)
        padding = [tokens[-1]] * (size - len(tokens))
        return self._model.evaluate([*tokens, *padding], num_rows + len(padding))[:num_rows]

    @property
    def most_branches(self) -> int:
        """How many branches a pass may have."""
        return self._model.most_branches if isinstance(self._model, TreeModel) else 0

    def evaluate_tree(
        self, tokens: Sequence[int], branches: Sequence[tuple[int, int]], num_rows: int
    ) -> Rows:
        """Append tokens, and branches beside them, the padding among these."""
        if not isinstance(self._model, TreeModel):
            raise TypeError("the model has no branches")
        depth, length = self._model.length, len(tokens) + len(branches)
        room = min(self._model.capacity - depth, len(tokens) + self._model.most_branches)
        size = self._costs.padded(length, depth, room)
        beyond = range(num_rows + len(branches) - 1, num_rows + size - len(tokens) - 1)
        padding = [(tokens[-1], row) for row in beyond]
        rows = self._model.evaluate_tree(tokens, [*branches, *padding], num_rows)
        return rows[: num_rows + len(branches)]

    def keep(self, length: int, branches: Sequence[int]) -> None:
        """Keep the first `length` tokens of the text, which ends with these branches."""
        if isinstance(self._model, TreeModel):
            self._model.keep(length, branches)

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self._model.rollback(length)
