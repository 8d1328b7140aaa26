"""An EAGLE-3 draft: a prediction head that reads what three of its target's layers read.

An encoder joins these three rows of a token to one of the head's own width, which stands for the
target's row. All else is as with other heads, but for the text's first token: no row precedes it,
and there is no entry for it in the head's memory.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from specchat.decoding.ports import Rows
from specchat.gguf.draft_kinds import HEAD_BATCH
from specchat.gguf.eagle_draft import NUM_LAYERS, eagle_facts
from specchat.llama.context import DONE, Context
from specchat.llama.head import Head
from specchat.llama.hidden_rows import (
    Rows2D,
    keep_layers,
    keep_rows,
    layers_of,
    rows_of,
)
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model
from specchat.planning.context_shape import ModelOptions


class EagleHead(Head):
    """The memory of an EAGLE-3 draft beside its target's."""

    def __init__(
        self, model: Model, options: ModelOptions, target: Context, abort: AbortFlag | None = None
    ) -> None:
        """Make the draft's context, and let the target hand over what its layers read.

        The target must be empty. Raises as `Context` does.
        """
        facts = eagle_facts(model.header)
        self._layers = facts.layers
        self._features = np.zeros((HEAD_BATCH, NUM_LAYERS * facts.target_width), np.float32)
        address = self._features.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        self._features_batch = api.llama_batch(embd=address)
        self._positions = (ctypes.c_int32 * HEAD_BATCH)()
        super().__init__(model, options, target, abort)

    def _listen(self) -> Any:
        keep_features(self._target, self._layers)
        return np.zeros(self._features.shape[1], np.float32)

    def _read_target(self, count: int) -> Rows2D:
        return features_of(self._target, self._layers, count)

    def _fill(self, rows: Rows2D) -> None:
        """Join the rows of the target's layers."""
        if self._target.listener is not self:  # a trial, before rows are kept
            return
        count = len(rows)
        self._features[:count] = rows
        self._features_batch.n_tokens = count
        result = api.llama_encode(self.handle, self._features_batch)
        if result != DONE:
            self._fail(result, 0)
        self._inputs[:count] = rows_of(self.handle, count, self._width)

    def _pass(self, tokens: Sequence[int], num_rows: int) -> None:
        """Evaluate tokens, but for the text's first, of which nothing stays.

        If logits are asked for after that alone, they are those without a row before it.
        llama.cpp gives the first rows of a pass whichever are asked for, so all of them are.
        """
        is_first = not self._num_evaluated
        if is_first and (len(tokens) > 1 or not num_rows):
            self._num_evaluated = self._num_true = 1
            is_first, tokens = False, tokens[1:]
        if not tokens:
            return
        start = self._num_evaluated
        self._positions[: len(tokens)] = list(range(start, start + len(tokens)))
        batch: Any = self._batch.native
        batch.pos = self._positions
        super()._pass(tokens, len(tokens) if num_rows else 0)
        if is_first:
            self.rollback_kind.empty()

    def _rows(self, num_rows: int) -> Rows:
        return super()._rows(self._num_last)[-num_rows:] if num_rows else ()


def keep_features(target: Context, layers: Sequence[int]) -> None:
    """Let a target keep what these layers read, and what its last gives if that is among them."""
    last = int(api.llama_model_n_layer(target.model.handle))
    keep_layers(target.handle, [layer for layer in layers if layer < last])
    if last in layers:
        keep_rows(target.handle)


def features_of(target: Context, layers: Sequence[int], count: int) -> Rows2D:
    """Return what layers read in a target's last pass, side by side: (tokens, layers * width)."""
    model = target.model.handle
    last, width = int(api.llama_model_n_layer(model)), int(api.llama_model_n_embd(model))
    columns = [
        rows_of(target.handle, count, width)
        if layer == last
        else layers_of(target.handle, [layer], count, width)
        for layer in layers
    ]
    return np.hstack(columns)
