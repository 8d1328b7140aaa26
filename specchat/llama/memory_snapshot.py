"""Copies of a context's memory that it can be restored from: bit for bit, except sliding windows.

A copy lies in the host's memory, whatever device the context is on, and is as large as the state of
its tokens. This lets several texts take turns in one context without being read again.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from specchat.errors import EngineFailed
from specchat.llama.library import api

Bytes: TypeAlias = NDArray[np.uint8]
NEAR = 256
"""Reading as many tokens again is as cheap as reading none."""
WHOLE = 0
"""The flag for all of a sequence's state."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A saved state of a memory that cannot drop its tail, and the number of tokens it covers."""

    length: int
    data: Bytes

    @property
    def num_bytes(self) -> int:
        """The size of the state."""
        return self.data.size


@dataclass(frozen=True, slots=True)
class MemorySnapshot:
    """A copy of a context's memory: the tokens it stands for, its state and its checkpoints.

    For a prediction head, `states` holds those of its target's that it has not read yet, and
    `others` the memories of the heads after it. `ends` are the lengths after the passes that filled
    the memory, from the first on, as far as known; `gaps` those of the text's positions (M-RoPE).
    """

    tokens: Sequence[int]
    data: Bytes
    checkpoints: tuple[Checkpoint, ...] = ()
    states: object = field(default=None, compare=False)
    ends: tuple[int, ...] = ()
    gaps: tuple[tuple[int, int], ...] = ()
    others: tuple["MemorySnapshot", ...] = ()

    @property
    def length(self) -> int:
        """The number of tokens."""
        return len(self.tokens)

    @property
    def num_bytes(self) -> int:
        """The memory that the copy takes."""
        saved = sum(checkpoint.num_bytes for checkpoint in self.checkpoints)
        return self.data.size + saved + sum(snapshot.num_bytes for snapshot in self.others)

    def thinned(self, most: int) -> "MemorySnapshot":
        """Return this copy with at most `most` checkpoints, but never fewer than three."""
        others = tuple(snapshot.thinned(most) for snapshot in self.others)
        return replace(self, checkpoints=tuple(spread(self.checkpoints, most)), others=others)


def spread(checkpoints: Sequence[Checkpoint], most: int) -> list[Checkpoint]:
    """Return at most `most` checkpoints, but at least three, of those in a text's order.

    Texts diverge near their end more often than far from it, so the checkpoints that stay are the
    farther apart the farther they are from the end. The first one, behind the system prompt, and
    the last two always stay.
    """
    kept = list(checkpoints)

    def loss(place: int) -> float:
        before = kept[place - 1].length
        return (kept[place + 1].length - before) / (kept[-1].length - before + NEAR)

    while len(kept) > max(3, most):
        del kept[min(range(1, len(kept) - 2), key=loss)]
    return kept


def read_state(context: object, sequence: int) -> Bytes:
    """Return a copy of all of a sequence's state. Raises MemoryError."""
    size = int(api.llama_state_seq_get_size_ext(context, sequence, WHOLE))
    data: Bytes = np.empty(size, np.uint8)
    written = api.llama_state_seq_get_data_ext(context, address_of(data), size, sequence, WHOLE)
    return data[: int(written)]


def write_state(context: object, sequence: int, data: Bytes) -> None:
    """Replace all of a sequence's state. Raises EngineFailed if llama.cpp refuses it."""
    read = api.llama_state_seq_set_data_ext(context, address_of(data), data.size, sequence, WHOLE)
    if int(read) != data.size:
        raise EngineFailed("llama.cpp cannot restore this state of its memory")


def address_of(data: Bytes) -> object:
    """Return an array's address as llama.cpp takes it."""
    return data.ctypes.data_as(ctypes.POINTER(ctypes.c_uint8))
