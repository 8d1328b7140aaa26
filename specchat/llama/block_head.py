"""A DFlash draft: a model of a few layers that drafts a whole block of tokens in one pass.

It makes its keys and values for every token of the text from what some of the target's layers read
there. A pass over the text's last token and masks behind it then gives the logits of the tokens in
the masks' places, each as if the others were unknown. The target's context hands over what its
layers read after every pass.
"""

import ctypes
from collections.abc import Sequence
from time import perf_counter
from typing import Any

import numpy as np

from specchat.decoding.ports import PromptProgress, Rows
from specchat.gguf.block_draft import block_facts
from specchat.gguf.draft_kinds import HEAD_BATCH
from specchat.llama.context import DONE, Batch, Context
from specchat.llama.head import MOST_WAITING
from specchat.llama.hidden_rows import keep_layers, layers_of
from specchat.llama.library import AbortFlag, api
from specchat.llama.model import Model
from specchat.llama.rollback import Rollback
from specchat.planning.context_shape import ModelOptions


class BlockHead(Context):
    """The memory of a DFlash draft beside its target's, which holds what the target evaluated.

    Behind it `tokens` has those of the block that was drafted last, which are in no memory. A pass
    drafts up to `room` tokens, at most `longest_block`.
    """

    def __init__(
        self, model: Model, options: ModelOptions, target: Context, abort: AbortFlag | None = None
    ) -> None:
        """Make the draft's context, and let the target hand over what its layers read.

        The target must be empty. Raises as `Context` does.
        """
        facts = block_facts(model.header)
        self._target, self._layers, self._mask = target, facts.layers, facts.mask
        self._width = int(api.llama_model_n_embd(target.model.handle))
        self._inputs = np.zeros((HEAD_BATCH, len(self._layers) * self._width), np.float32)
        self._nothing = np.zeros(self._inputs.shape[1], np.float32)
        self._waiting: list[Any] = []  # what the layers read of tokens behind those in memory
        self._block: Rows = ()
        super().__init__(model, options, abort, target)
        self.rollback_kind = Rollback(self.handle, "tail", lambda *_: True)
        self.room = self.longest_block = min(facts.size - 1, self.longest_draft)
        self._injection = Batch(HEAD_BATCH)
        native: Any = self._injection.native
        native.token = None
        native.embd = self._inputs.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
        api.llama_set_causal_attn(self.handle, facts.is_causal)
        keep_layers(target.handle, self._layers)
        target.listener = self

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens are in the memory."""
        return min(super().count_known(tokens), self._num_evaluated)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many were there already."""
        del on_progress
        num_known = self.count_known(tokens)
        self.rollback(num_known)
        self._inject(tokens[num_known:])
        return num_known

    def mark(self) -> None:
        """Do nothing: any rollback is possible."""

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Return the logits after the last token: those of a new block, or of the next in it."""
        del num_rows
        if not self._block:
            self._inject(tokens[:-1])
            self._block = self._draft_block(tokens[-1])
            tokens = tokens[-1:]
        self.tokens += tokens
        return [self._block[self.length - 1 - self._num_evaluated]]

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens, none of a drafted block."""
        super().rollback(min(length, self._num_evaluated))

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Take what the layers read in a pass of the target over tokens from `position` on."""
        self.after_rollback(position)
        missing = position - self._num_evaluated - len(self._waiting)
        if not is_prompt and len(self._waiting) > MOST_WAITING:
            self._inject(self._target.tokens[self._num_evaluated : position])
        read = layers_of(self._target.handle, self._layers, len(tokens), self._width)
        self._waiting += [*[self._nothing] * missing, *read]
        if is_prompt:
            began = perf_counter()
            self._inject([*self._target.tokens[self._num_evaluated : position], *tokens])
            self.prompt_seconds += perf_counter() - began

    def after_rollback(self, length: int) -> None:
        """Forget what came after the first `length` tokens of the target."""
        del self._waiting[max(0, length - self._num_evaluated) :]
        if self._num_evaluated > length:
            self.rollback(length)

    def _forget(self, length: int) -> None:
        self._block = ()
        if length < self._num_evaluated:
            self._waiting = []
        super()._forget(length)

    def _inject(self, tokens: Sequence[int]) -> None:
        """Append tokens to the memory; what was never read of them counts as zeros."""
        self.rollback(self._num_evaluated)
        while tokens:
            part, tokens = tokens[:HEAD_BATCH], tokens[HEAD_BATCH:]
            rows = self._waiting[: len(part)]
            rows += [self._nothing] * (len(part) - len(rows))
            self._inputs[: len(part)] = rows
            self._run(self._injection, part, 0)
            self._num_evaluated += len(part)
            self.tokens += part
            del self._waiting[: len(part)]

    def _draft_block(self, last: int) -> Rows:
        """Return the logits of the tokens that follow the last one, which leave the memory.

        llama.cpp gives the first rows of the pass whichever are asked for, so all of them are.
        """
        count = 1 + max(1, min(self.room, self.longest_block))
        self._run(self._batch, [last, *[self._mask] * (count - 1)], count)
        rows = self._rows(count)[1:]
        self.rollback_kind.remove_tail(self._num_evaluated)
        return rows

    def _run(self, batch: Batch, tokens: Sequence[int], num_rows: int) -> None:
        self._require_open()
        batch.fill(tokens, num_rows)
        result = api.llama_decode(self.handle, batch.native)
        if result != DONE:
            self._fail(result, len(tokens))
