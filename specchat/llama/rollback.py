"""Taking tokens out of a model's memory, for every kind of memory llama.cpp has.

- Attention caches drop their tail (`TailRollback`).
- Those with a sliding window do so as far back as it still reaches, and go back to the end of an
  earlier prompt beyond that (`WindowRollback`).
- Hybrids that keep a state per token of the last batch step back inside it (`SnapshotRollback`).
- Other recurrent and hybrid models go back to a saved state; what follows it is evaluated again
  together with the next tokens (`CheckpointRollback`).
- A memory that can do none of that is emptied (`NoRollback`): good for plain decoding only.

Each is tried on the real context at load, never concluded from the architecture's name.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeAlias

from specchat.errors import SpecchatError
from specchat.llama.library import api
from specchat.llama.model import Model

__all__ = [
    "CheckpointRollback",
    "NoRollback",
    "Rollback",
    "SnapshotRollback",
    "TailRollback",
    "WindowRollback",
    "choose_rollback",
]

SEQUENCE = 0
TO_THE_END = -1
PARTIAL_ONLY = 1
"""State without the part that a tail removal can restore (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)."""
NUM_PROMPT_CHECKPOINTS = 4
MOST_PROMPT_BYTES = 2**28
"""Of the ends of prompts so many bytes are kept: but for the last one's, however large it is."""
MOST_MARKS = 34
"""Marks of one step: a draft model that cannot step back marks before each token it drafts."""

Decode: TypeAlias = Callable[[Sequence[int], int], None]


class Rollback(Protocol):
    """One way of taking tokens out of a memory. Lengths count tokens from the beginning."""

    name: str
    can_speculate: bool

    def mark(self, length: int) -> None:
        """Prepare for going back to this length, which is the present one, or to a later one."""

    def keep(self, length: int) -> None:
        """Prepare for a later question that shares the first `length` tokens, all there now."""

    def to(self, length: int, present: int, num_last: int) -> int:
        """Go back to `length` tokens or fewer, and return to how many.

        `present` is the length now, `num_last` the number of tokens in the last pass.
        """

    def settle(self) -> None:
        """Hear that a step is over and all it added stays: nobody goes back behind its end."""


class TailRollback:
    """Removes the tail of an attention cache, which costs nothing."""

    name = "tail"
    can_speculate = True

    def __init__(self, memory: object) -> None:
        """Take the memory."""
        self._memory = memory

    def mark(self, length: int) -> None:
        """Need nothing."""

    def keep(self, length: int) -> None:
        """Need nothing."""

    def to(self, length: int, present: int, num_last: int) -> int:
        """Remove the tail."""
        del present, num_last
        is_removed = api.llama_memory_seq_rm(self._memory, SEQUENCE, length, TO_THE_END)
        return length if length and is_removed else _empty(self._memory)

    def settle(self) -> None:
        """Need nothing."""


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A saved state, and the number of tokens it stands for."""

    length: int
    data: ctypes.Array[ctypes.c_uint8]
    num_bytes: int


class CheckpointRollback:
    """Goes back to a saved state; the tokens after it are evaluated again with the next ones.

    States are kept for the step being decoded, one for each mark, and a few at the ends of prompts,
    where the next question is likely to depart.
    """

    name = "checkpoint"
    can_speculate = True

    def __init__(self, context: object) -> None:
        """Take the context whose states are saved."""
        self._context = context
        self._memory = api.llama_get_memory(context)
        self._step: list[_Checkpoint] = []
        self._prompts: list[_Checkpoint] = []
        self._spare: list[ctypes.Array[ctypes.c_uint8]] = []

    def mark(self, length: int) -> None:
        """Save the state, unless it is saved already."""
        self._forget(lambda saved: saved.length > length)
        if all(saved.length != length for saved in self._step):
            self._step.append(self._save(length))
        if len(self._step) > MOST_MARKS:
            self._spare.append(self._step.pop(0).data)

    def keep(self, length: int) -> None:
        """Save the state at the end of a prompt."""
        if not length or any(kept.length == length for kept in self._prompts):
            return
        latest = self._save(length)
        others = min(NUM_PROMPT_CHECKPOINTS, MOST_PROMPT_BYTES // max(1, latest.num_bytes)) - 1
        self._prompts = [*self._prompts[-others:], latest] if others > 0 else [latest]

    def to(self, length: int, present: int, num_last: int) -> int:
        """Restore the latest state at or before `length`; empty the memory where there is none."""
        del present, num_last
        self._forget(lambda saved: saved.length > length)
        self._drop_prompts(length)
        usable = [*self._prompts, *self._step]
        if not usable:
            return _empty(self._memory)
        latest = max(usable, key=lambda checkpoint: checkpoint.length)
        if not self._restore(latest):
            self._step, self._prompts = [], []  # whatever follows is another text
            return _empty(self._memory)
        self._forget(lambda saved: saved.length < latest.length)  # the next step begins here
        return latest.length

    def settle(self) -> None:
        """Drop all marks but the last one."""
        last = max((saved.length for saved in self._step), default=0)
        self._forget(lambda saved: saved.length < last)

    def _forget(self, is_useless: Callable[[_Checkpoint], bool]) -> None:
        """Drop marks, keeping their buffers for the next ones."""
        self._spare += [saved.data for saved in self._step if is_useless(saved)]
        self._step = [saved for saved in self._step if not is_useless(saved)]

    def _drop_prompts(self, length: int) -> None:
        """Forget the ends of prompts behind `length` tokens: another text follows there."""
        self._prompts = [kept for kept in self._prompts if kept.length <= length]

    def _save(self, length: int) -> _Checkpoint:
        size = api.llama_state_seq_get_size_ext(self._context, SEQUENCE, PARTIAL_ONLY)
        data = self._spare.pop() if self._spare else (ctypes.c_uint8 * size)()
        if len(data) < size:
            data = (ctypes.c_uint8 * size)()
        written = api.llama_state_seq_get_data_ext(
            self._context, data, size, SEQUENCE, PARTIAL_ONLY
        )
        return _Checkpoint(length, data, int(written))

    def _restore(self, saved: _Checkpoint) -> bool:
        read = api.llama_state_seq_set_data_ext(
            self._context, saved.data, saved.num_bytes, SEQUENCE, PARTIAL_ONLY
        )
        return bool(read) and bool(
            api.llama_memory_seq_rm(self._memory, SEQUENCE, saved.length, TO_THE_END)
        )


class SnapshotRollback(CheckpointRollback):
    """Steps back inside the last pass, whose states a hybrid's memory keeps (`n_rs_seq`).

    llama.cpp would also step back further, into states of an earlier pass that are no longer right,
    so the depth is checked here; beyond it the checkpoints of the prompts serve.
    """

    name = "snapshots"

    def __init__(self, context: object, depth: int) -> None:
        """Take the context and the number of states it keeps."""
        super().__init__(context)
        self._depth = depth

    def mark(self, length: int) -> None:
        """Need nothing: the memory keeps the states of its last pass."""

    def to(self, length: int, present: int, num_last: int) -> int:
        """Step back inside the last pass, or restore a prompt's state."""
        num_removed = present - length
        if num_removed <= min(self._depth, num_last - 1) and api.llama_memory_seq_rm(
            self._memory, SEQUENCE, length, TO_THE_END
        ):
            self._drop_prompts(length)
            return length
        return super().to(length, present, num_last)


class WindowRollback(CheckpointRollback):
    """Removes the tail while the sliding window before it is there, else restores a prompt's state.

    The cache holds little more than the window, so what a text needs after a long way back may be
    gone; the ends of the last prompts, where an answer is asked for again, are saved.
    """

    name = "window"

    def __init__(self, context: object, window: int) -> None:
        """Take the context and the number of tokens each token attends to."""
        super().__init__(context)
        self._window = window

    def mark(self, length: int) -> None:
        """Need nothing."""

    def to(self, length: int, present: int, num_last: int) -> int:
        """Remove the tail, or restore a prompt's state."""
        oldest = api.llama_memory_seq_pos_min(self._memory, SEQUENCE)
        is_there = 0 <= oldest <= max(0, length - self._window)
        if is_there and api.llama_memory_seq_rm(self._memory, SEQUENCE, length, TO_THE_END):
            self._drop_prompts(length)
            return length
        return super().to(length, present, num_last)


class NoRollback:
    """Can only forget everything."""

    name = "none"
    can_speculate = False

    def __init__(self, memory: object) -> None:
        """Take the memory."""
        self._memory = memory

    def mark(self, length: int) -> None:
        """Need nothing."""

    def keep(self, length: int) -> None:
        """Need nothing."""

    def to(self, length: int, present: int, num_last: int) -> int:
        """Empty the memory."""
        del length, present, num_last
        return _empty(self._memory)

    def settle(self) -> None:
        """Need nothing."""


def choose_rollback(context: object, model: Model, decode: Decode) -> Rollback:
    """Find out, by trying it, how tokens come out of this context's memory; leave it empty."""
    memory = api.llama_get_memory(context)
    try:
        return _tried(context, model, memory, decode)
    except SpecchatError:
        return NoRollback(memory)
    finally:
        _empty(memory)


def _tried(context: object, model: Model, memory: object, decode: Decode) -> Rollback:
    tokens = [0, 0, 0]
    decode(tokens, 0)
    depth = int(api.llama_n_rs_seq(context))
    if api.llama_memory_seq_rm(memory, SEQUENCE, len(tokens) - 1, TO_THE_END):
        if depth:
            return SnapshotRollback(context, depth)
        return WindowRollback(context, model.window) if model.window else TailRollback(memory)
    trial = CheckpointRollback(context)
    trial.mark(len(tokens))
    works = trial.to(len(tokens), len(tokens), 1) == len(tokens)
    return CheckpointRollback(context) if works else NoRollback(memory)  # without the trial's state


def _empty(memory: object) -> int:
    """Forget everything."""
    api.llama_memory_clear(memory, True)
    return 0
