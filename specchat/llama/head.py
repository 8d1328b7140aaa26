"""A prediction head (MTP): a language model that reads tokens with the target's hidden states.

Entry p of a head's memory is made of token p and the target's row p - 1; its logits are for token
p + 1, and its own row stands in for the target's as long as that has not evaluated token p. So
drafting goes on from the head's own rows, and what is made of those is removed before the next
step. The target's context hands over its rows after every pass.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import replace
from time import perf_counter
from typing import Any

import numpy as np

from specchat.decoding.ports import PromptProgress, Rows
from specchat.gguf.draft_kinds import HEAD_BATCH
from specchat.llama.context import Context
from specchat.llama.hidden_rows import Rows2D, WaitingRows, keep_rows, rows_of
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model
from specchat.llama.rollback import Rollback
from specchat.planning.context_shape import ModelOptions

MOST_WAITING = 64
"""If more rows than this wait to be used, their tokens are read."""
NUM_PROMPTS = 8
"""Rows kept for the ends of prompts, after which the next answer may begin."""


class Head(Context):
    """The memory of a prediction head beside its target's.

    Tokens it reads with the target's rows stay; those with its own go at the next rollback.
    """

    def __init__(
        self, model: Model, options: ModelOptions, target: Context, abort: AbortFlag | None = None
    ) -> None:
        """Make the head's context, and let the target hand over its rows.

        The target must be empty. Raises as `Context` does.
        """
        self._width = int(api.llama_model_n_embd_out(model.handle))
        self._inputs = np.zeros((HEAD_BATCH, self._width), np.float32)
        self._address = self._inputs.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._nothing = np.zeros(self._width, np.float32)
        self._own = self._nothing
        self._kept: dict[int, Any] = {}  # by position, the lowest first
        self._num_true = 0  # leading tokens read with the target's rows
        self._target = target
        self._lost = self._listen()
        self._waiting = WaitingRows(len(self._lost), 2 * MOST_WAITING)  # of the target's
        super().__init__(model, options, abort, target)
        self._num_true = 0  # not what was tried
        keep_rows(self.handle)
        target.listener = self

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens were read with the target's rows."""
        return min(super().count_known(tokens), self._num_true)

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, fewer if some were read with the head's own rows."""
        super().rollback(min(length, self._num_true))

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Take the rows of a pass of the target over tokens from `position` on."""
        self._drop_rows(position)
        if not is_prompt and position - self._num_true > MOST_WAITING:
            self.prefill(self._target.tokens[:position])
        waiting = self._waiting
        waiting.drop_before(self._num_true - 1)
        waiting.append(self._read_target(len(tokens)))
        if is_prompt:
            end = position + len(tokens)
            self._kept[end - 1] = last = waiting.between(end - 1, end)[0].copy()
            self._kept = dict(list(self._kept.items())[-NUM_PROMPTS:])
            began = perf_counter()
            self.prefill([*self._target.tokens[:position], *tokens])
            self.prompt_seconds += perf_counter() - began
            self._waiting = WaitingRows(len(last), 2 * MOST_WAITING)  # without room for all others
            self._waiting.cut(end - 1)
            self._waiting.append(last[np.newaxis])

    def after_rollback(self, length: int) -> None:
        """Forget what came after the first `length` tokens of the target."""
        self._drop_rows(length)
        if self.length > length + 1:
            self.rollback(length + 1)

    def _drop_rows(self, length: int) -> None:
        """Drop the target's rows of all but its first `length` tokens."""
        self._waiting.cut(length)
        if self._kept and next(reversed(self._kept)) >= length:
            self._kept = {place: row for place, row in self._kept.items() if place < length}

    def _forget(self, length: int) -> None:
        super()._forget(length)
        self._num_true = min(self._num_true, self._num_evaluated)
        self._own = self._nothing

    def _pass(self, tokens: Sequence[int], num_rows: int) -> None:
        """Evaluate tokens, each with the row before it, and take the head's own last row."""
        start, count = self._num_evaluated, len(tokens)
        rows = self._rows_before(start, count)
        num_known = len(rows)
        if num_known:
            self._fill(rows)
        if num_known < count:
            self._inputs[num_known:count] = self._own if count == 1 else self._nothing
        batch: Any = self._batch.native
        batch.embd = self._address
        super()._pass(tokens, num_rows)
        if start == self._num_true:
            self._num_true += num_known
        self._own = self._nothing
        if num_rows:
            self._own = rows_of(self.handle, count, self._width)[-1].copy()

    def _listen(self) -> Any:
        """Let the target keep its rows; return what stands for one that is lost."""
        keep_rows(self._target.handle)
        return self._nothing

    def _read_target(self, count: int) -> Rows2D:
        """Return the rows of the target's last pass, which had `count` tokens."""
        return rows_of(self._target.handle, count, self._width)

    def _fill(self, rows: Rows2D) -> None:
        """Fill in rows of the target as inputs of the next pass."""
        self._inputs[: len(rows)] = rows

    def _rows_before(self, start: int, count: int) -> Rows2D:
        """Return the target's rows for tokens from `start` on, as far as they are known.

        Those of tokens long gone count as zeros, as the one before the first token does.
        """
        known = self._waiting.between(start - 1, start - 1 + count)
        num_lost = min(count, self._waiting.first - start + 1)
        if num_lost <= 0:
            return known
        places = range(start - 1, start - 1 + num_lost)
        lost = [self._kept.get(place, self._lost) for place in places]
        return np.concatenate((lost, known))


class SharedHead(Head):
    """A head without a memory of its own, whose layers read the last ones of its target's.

    Every pass takes one token, which follows what the target has evaluated: those drafted before
    it are in the row alone. llama.cpp empties the target's memory with the head's, so that is
    never done.
    """

    def __init__(
        self, model: Model, options: ModelOptions, target: Context, abort: AbortFlag | None = None
    ) -> None:
        """Make the head's context over the target's memory, which has the same layout for both."""
        if not target.shape.flash:
            options = replace(options, flash_attention="off")
        super().__init__(model, options, target, abort)
        self.rollback_kind = Rollback(self.handle, "tail", lambda *_: True)

    @property
    def length(self) -> int:
        """The number of tokens in the target's memory."""
        return self._target.length

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens are in the target's memory."""
        return self._target.count_known(tokens)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Do nothing: the target reads the prompt."""
        del on_progress
        return len(tokens)

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Return the logits after the last token; the others are the target's to evaluate."""
        del num_rows
        self._num_evaluated = self.length
        self._pass(tokens[-1:], 1)
        rows = self._rows(1)
        return rows if self.length else [np.zeros_like(rows[0])]  # attention to nothing: no number

    def rollback(self, length: int) -> None:
        """Go on with the target's row."""
        del length
        self._own = self._nothing

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Take the rows of a pass of the target over tokens from `position` on."""
        self._num_true, self._own = position, self._nothing
        super().after_pass(position, tokens, is_prompt=is_prompt)

    def _rows_before(self, start: int, count: int) -> Rows2D:
        is_first = self._own is self._nothing
        return super()._rows_before(start, count if is_first else 0)
