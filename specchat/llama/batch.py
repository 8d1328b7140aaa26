"""llama.cpp's batches: the tokens of a pass, where they belong, and which of them give logits."""

import ctypes
from collections.abc import Sequence
from typing import Any

import numpy as np

from specchat.llama.library import api


class Batch:
    """A batch of one sequence, made once; its positions are left to llama.cpp.

    With a `width`, each token is read together with a hidden state, or without `has_tokens`
    replaced by it. `inputs` holds the states, shape (size, width). A position without a token may
    have several parts (M-RoPE).
    """

    def __init__(
        self,
        size: int,
        width: int = 0,
        *,
        has_tokens: bool = True,
        num_parts: int = 1,
        sequence: int = 0,
    ) -> None:
        self.count = 0
        self.inputs = np.zeros((size, width), np.float32)
        self._tokens: Any = (api.llama_token * size)()
        self._outputs = (ctypes.c_int8 * size)()
        self._num_parts = num_parts
        self._positions: Any = (ctypes.c_int32 * (size * num_parts))()
        self._filled = (0, 0)
        self.native: Any = api.llama_batch(logits=self._outputs)
        if has_tokens:
            self.native.token = self._tokens
        if sequence:
            self._own = _Sequences(size, 1)
            self._own.fill([[sequence]] * size)
            self._own.join(self.native)
        if width:
            address: Any = self.inputs.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            self.native.embd = address

    def place(self, position: int, count: int) -> None:
        """Let tokens have the positions from this one on, though memory may hold none before it."""
        each = list(range(position, position + count))
        if self._num_parts > 1:  # time, height and width, by parts; the last one is not used
            each = [*each * (self._num_parts - 1), *[0] * count]
        self.place_each(each)

    def place_each(self, positions: Sequence[int]) -> None:
        """Let tokens have these positions; those of several parts are given by parts."""
        self._positions[: len(positions)] = positions
        self.native.pos = self._positions

    def leave_places(self) -> None:
        """Leave the positions to llama.cpp, as they are at first."""
        self.native.pos = None

    def fill(self, tokens: Sequence[int], num_rows: int) -> None:
        """Fill in tokens; the last `num_rows` give logits."""
        self.count = count = len(tokens)
        self._tokens[:count] = tokens
        if self._filled != (count, num_rows):
            self._filled = (count, num_rows)
            self._outputs[:count] = [index >= count - num_rows for index in range(count)]
            self.native.n_tokens = count


class _Sequences:
    """The sequences that each token of a batch belongs to."""

    def __init__(self, size: int, most: int) -> None:
        pointer: Any = ctypes.POINTER(ctypes.c_int32)
        self._counts = (ctypes.c_int32 * size)()
        self._each: list[Any] = [(ctypes.c_int32 * most)() for _ in range(size)]
        self._addresses = (pointer * size)(*(ctypes.cast(row, pointer) for row in self._each))

    def join(self, native: Any) -> None:
        """Have a batch of llama.cpp's refer to them."""
        native.n_seq_id, native.seq_id = self._counts, self._addresses

    def fill(self, sequences: Sequence[Sequence[int]]) -> None:
        """Fill in those of the first tokens."""
        for index, own in enumerate(sequences):
            self._counts[index] = len(own)
            self._each[index][: len(own)] = own


class SequencesBatch(Batch):
    """A batch that gives each token its position and the sequences it belongs to, up to `most`."""

    def __init__(self, size: int, most: int) -> None:
        super().__init__(size)
        self._sequences = _Sequences(size, most)
        self._sequences.join(self.native)
        self.native.pos = self._positions

    def fill_each(
        self,
        tokens: Sequence[int],
        positions: Sequence[int],
        sequences: Sequence[Sequence[int]],
        gives_logits: list[bool],
    ) -> None:
        """Fill in tokens, each with its position, its sequences, and whether it gives logits."""
        self.count = count = len(tokens)
        self._tokens[:count], self._positions[:count] = tokens, positions
        self._sequences.fill(sequences)
        self._outputs[:count] = [int(each) for each in gives_logits]
        self.native.n_tokens = count
