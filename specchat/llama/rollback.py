"""Removing tokens from a model's memory, for every kind of memory llama.cpp has.

- Attention caches drop their tail (`TailRollback`).
- Those with a sliding window do so as far back as the window still reaches; beyond that they return
  to the end of an earlier prompt (`WindowRollback`).
- Hybrids that keep a state per token of the last batch step back inside it (`SnapshotRollback`).
- Other recurrent and hybrid models return to a saved state; the tokens after it are evaluated again
  together with the next ones (`CheckpointRollback`).
- A memory that supports none of this is emptied (`NoRollback`), which allows plain decoding only.

Each is tried on the real context at load, not inferred from the architecture's name.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from specchat.errors import SpecchatError
from specchat.llama.library import api
from specchat.llama.model import Model

SEQUENCE = 0
TO_THE_END = -1
PARTIAL_ONLY = 1
"""State without the part that a tail removal can restore (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)."""
NUM_PROMPT_CHECKPOINTS = 4
MOST_PROMPT_BYTES = 2**28
"""Limits the states kept at the ends of prompts; the last one is kept whatever its size."""
MOST_MARKS = 34
"""Marks of one step: a draft model that cannot step back marks before each token it drafts."""

Decode: TypeAlias = Callable[[Sequence[int], int], None]


class NoRollback:
    """Empties the memory; the base class of the others. Lengths count tokens from the beginning."""

    name = "none"
    can_speculate = False

    def __init__(self, context: object) -> None:
        """Store the context whose memory is rolled back."""
        self._context = context
        self._memory = api.llama_get_memory(context)

    def mark(self, length: int) -> None:
        """Prepare for a return to `length`, which is the present length, or to a later one."""

    def keep(self, length: int) -> None:
        """Prepare for a later question that shares the `length` tokens in memory."""

    def settle(self) -> None:
        """Release what was prepared for a return to before the last mark."""

    def to(self, length: int, present: int, num_last: int) -> int:
        """Return to `length` tokens or fewer; return to how many.

        `present` is the present length, `num_last` the number of tokens in the last pass.
        """
        del length, present, num_last
        return self._empty()

    def remove_tail(self, length: int) -> bool:
        """Remove the tokens from `length` on; False if the memory cannot."""
        return bool(api.llama_memory_seq_rm(self._memory, SEQUENCE, length, TO_THE_END))

    def _empty(self) -> int:
        api.llama_memory_clear(self._memory, True)
        return 0


class TailRollback(NoRollback):
    """Removes the tail of an attention cache, which costs nothing."""

    name = "tail"
    can_speculate = True

    def to(self, length: int, present: int, num_last: int) -> int:
        """Remove the tail."""
        del present, num_last
        return length if length and self.remove_tail(length) else self._empty()


@dataclass(frozen=True, slots=True)
class _Checkpoint:
    """A saved state, and the number of tokens it stands for."""

    length: int
    data: ctypes.Array[ctypes.c_uint8]
    num_bytes: int


class CheckpointRollback(NoRollback):
    """Returns to a saved state; the tokens after it are evaluated again with the next ones.

    States are kept for the step being decoded, one per mark, and for the ends of a few prompts,
    where the next question is likely to depart.
    """

    name = "checkpoint"
    can_speculate = True
    needs_marks = True

    def __init__(self, context: object) -> None:
        """Start without saved states of the context."""
        super().__init__(context)
        self._step: list[_Checkpoint] = []
        self._prompts: list[_Checkpoint] = []
        self._spare: list[ctypes.Array[ctypes.c_uint8]] = []

    def mark(self, length: int) -> None:
        """Save the state, unless it is saved already or a step's tokens can be removed."""
        if not self.needs_marks:
            return
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

    def settle(self) -> None:
        """Drop all marks but the last one."""
        last = max((saved.length for saved in self._step), default=0)
        self._forget(lambda saved: saved.length < last)

    def to(self, length: int, present: int, num_last: int) -> int:
        """Remove the tail if possible, else restore the latest state at or before `length`.

        Empties the memory if there is none.
        """
        if self._can_remove(length, present, num_last) and self.remove_tail(length):
            self._drop_prompts(length)
            return length
        self._forget(lambda saved: saved.length > length)
        self._drop_prompts(length)
        usable = [*self._prompts, *self._step]
        if not usable:
            return self._empty()
        latest = max(usable, key=lambda checkpoint: checkpoint.length)
        if not self._restore(latest):
            self._step, self._prompts = [], []  # what follows is another text
            return self._empty()
        self._forget(lambda saved: saved.length < latest.length)  # the next step begins here
        return latest.length

    def _can_remove(self, length: int, present: int, num_last: int) -> bool:
        """Return True if removing the tail leaves a valid memory; most recurrent states do not."""
        del length, present, num_last
        return False

    def _forget(self, is_useless: Callable[[_Checkpoint], bool]) -> None:
        """Drop marks, keeping their buffers for the next ones."""
        self._spare += [saved.data for saved in self._step if is_useless(saved)]
        self._step = [saved for saved in self._step if not is_useless(saved)]

    def _drop_prompts(self, length: int) -> None:
        """Drop the ends of prompts after `length` tokens: another text follows there."""
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
        return bool(read) and self.remove_tail(saved.length)


class SnapshotRollback(CheckpointRollback):
    """Steps back inside the last pass, whose states a hybrid's memory keeps (`n_rs_seq`).

    llama.cpp would also step back further, into states of an earlier pass that are no longer right,
    so the depth is checked here.
    """

    name = "snapshots"
    needs_marks = False

    def __init__(self, context: object, depth: int) -> None:
        """Store the context and the number of states it keeps."""
        super().__init__(context)
        self._depth = depth

    def _can_remove(self, length: int, present: int, num_last: int) -> bool:
        return present - length <= min(self._depth, num_last - 1)


class WindowRollback(CheckpointRollback):
    """Removes the tail while the sliding window before it is still in the cache.

    The cache holds little more than the window, so tokens needed after a long way back may be gone.
    """

    name = "window"
    needs_marks = False

    def __init__(self, context: object, window: int) -> None:
        """Store the context and its window: the number of tokens each token attends to."""
        super().__init__(context)
        self._window = window

    def _can_remove(self, length: int, present: int, num_last: int) -> bool:
        del present, num_last
        oldest = api.llama_memory_seq_pos_min(self._memory, SEQUENCE)
        return bool(0 <= oldest <= max(0, length - self._window))


def choose_rollback(context: object, model: Model, decode: Decode) -> NoRollback:
    """Return the way that works for this context, found by trying it; leave the memory empty."""
    nothing = NoRollback(context)
    try:
        return _tried(context, model, decode) or nothing
    except SpecchatError:
        return nothing
    finally:
        nothing.to(0, 0, 0)


def _tried(context: object, model: Model, decode: Decode) -> NoRollback | None:
    tokens = [0, 0, 0]
    decode(tokens, 0)
    tail = TailRollback(context)
    if tail.remove_tail(len(tokens) - 1):
        if depth := int(api.llama_n_rs_seq(context)):
            return SnapshotRollback(context, depth)
        return WindowRollback(context, model.window) if model.window else tail
    trial = CheckpointRollback(context)
    trial.mark(len(tokens))
    works = trial.to(len(tokens), len(tokens), 1) == len(tokens)
    return CheckpointRollback(context) if works else None  # without the trial's state
