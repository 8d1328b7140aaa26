"""Removes tokens from a model's memory, for every kind of memory llama.cpp has.

- "tail": attention caches drop their tail.
- "window": those with a sliding window do so as far back as the window still reaches; beyond that
  they return to the end of an earlier prompt.
- "snapshots": hybrids that keep a state per token of the last batch step back within it.
- "checkpoint": other recurrent and hybrid models return to a saved state; the tokens after it are
  evaluated again together with the next ones.
- "none": a memory that supports none of this is emptied, which allows plain decoding only.

Each way is tried on the real context at load, not inferred from the architecture's name.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import TypeAlias

import numpy as np

from specchat.errors import SpecchatError
from specchat.llama.library import api
from specchat.llama.memory_snapshot import Bytes, Checkpoint, address_of, spread
from specchat.llama.model import Model
from specchat.llama.token_positions import Positions
from specchat.options.declarations import LONGEST_DRAFT
from specchat.planning.text_copies import num_states

COPY = 1
"""The sequence that copies of a text pass through."""
TO_THE_END = -1
PARTIAL_ONLY = 1
"""The state without what removing a tail restores (LLAMA_STATE_SEQ_FLAGS_PARTIAL_ONLY)."""
NO_BYTES: Bytes = np.empty(0, np.uint8)
MOST_MARKS = LONGEST_DRAFT + 2
"""The most marks of one step: a draft model that cannot step back sets one before each token."""

Decode: TypeAlias = Callable[[Sequence[int], int], None]

CanRemove: TypeAlias = Callable[[int, int, int], bool]
"""Whether removing the tail leaves a valid memory, given the length to return to, the present
length, and the number of tokens in the last pass."""


class Rollback:
    """Returns a context's memory to fewer tokens. Lengths count tokens from the beginning.

    The tail is removed if `can_remove` allows it, which costs nothing. Otherwise the latest saved
    state is restored, and the tokens after it are evaluated again with the next ones. States are
    kept for places in the prompt where the next one may diverge, as many as have `room`, in bytes,
    and with "checkpoint" for the step being decoded, one per mark. The `positions` are those of the
    tokens in the memory; whoever adds an image to it notes them.
    """

    def __init__(
        self,
        context: object,
        name: str = "none",
        can_remove: CanRemove = lambda *_: False,
        sequence: int = 0,
        *,
        is_alone: bool = True,
        positions: Positions | None = None,
    ) -> None:
        self.name = name
        self.positions = Positions() if positions is None else positions
        self._sequence, self._is_alone = sequence, is_alone
        self.room = 0
        self._context = context
        self._memory = api.llama_get_memory(context)
        self._can_remove = can_remove
        self._step: list[Checkpoint] = []
        self._prompts: list[Checkpoint] = []
        self._spare: list[Bytes] = []
        self._length_lent = 0  # states of up to this length share their buffers with copies

    @property
    def can_speculate(self) -> bool:
        """Whether rejected tokens can be removed without emptying the memory."""
        return self.name != "none"

    @property
    def removes_any_tail(self) -> bool:
        """Whether the memory can return to any length without a saved state."""
        return self.name == "tail"

    @property
    def saves_states(self) -> bool:
        """Whether it returns to places in earlier passes by states saved there."""
        return self.name not in {"tail", "none"}

    @property
    def restores_bits(self) -> bool:
        """Whether a restored copy of the memory gives the same bits as the memory itself.

        With a sliding window, llama.cpp puts what is left of a text in another order.
        """
        return self.name != "window"

    @property
    def pads_together(self) -> bool:
        """Whether passes made together are to be equally long, whatever that takes."""
        return self.name == "snapshots"

    @property
    def is_free(self) -> bool:
        """Whether removing the last tokens of a pass takes no other pass."""
        return self.name in {"tail", "window", "snapshots"}

    def mark(self, length: int) -> None:
        """Prepare for a return to `length`, the present length, or to a later one.

        Saves the state unless it is already saved or a step's tokens can be removed.
        """
        if self.name != "checkpoint":
            return
        self._forget(lambda saved: saved.length > length)
        if all(saved.length != length for saved in self._step):
            self._step.append(self._save(length))
        if len(self._step) > MOST_MARKS:
            self._spare.append(_buffer(self._step.pop(0)))

    def keep(self, length: int) -> None:
        """Prepare for a later prompt that shares the `length` tokens in memory."""
        is_kept = not length or any(kept.length == length for kept in self._prompts)
        if is_kept or not self.saves_states:
            return
        # behind all others: those of another text that was there are dropped
        states = [*self._prompts, Checkpoint(length, NO_BYTES)]
        *kept, _ = spread(states, num_states(self.room, self._state_size))
        stays = {state.length for state in kept}
        dropped = [state for state in self._prompts if state.length not in stays]
        self._spare += [_buffer(state) for state in dropped if state.length > self._length_lent]
        self._prompts = kept  # before a dropped state is written over
        kept.append(self._save(length))

    @property
    def checkpoints(self) -> tuple[Checkpoint, ...]:
        """The states kept for places in the prompt."""
        return tuple(self._prompts)

    def lend(self) -> tuple[Checkpoint, ...]:
        """Return the same for a copy of the memory: their buffers are not used again."""
        self._length_lent = max((state.length for state in self._prompts), default=0)
        return self.checkpoints

    def begin_with(self, checkpoints: Sequence[Checkpoint]) -> None:
        """Use the saved states of a text that was restored."""
        self._forget(lambda _: True)
        self._prompts = list(checkpoints)
        self.lend()

    def reachable(self, length: int, present: int, num_last: int) -> int:
        """Return how many tokens `to` would keep in going back to `length`."""
        if length >= present or self._can_remove(length, present, num_last):
            return min(length, present)
        return longest_within([*self._prompts, *self._step], length)

    def settle(self) -> None:
        """Release everything prepared for a return to before the last mark."""
        if self._step:
            last = max(saved.length for saved in self._step)
            self._forget(lambda saved: saved.length < last)

    def to(self, length: int, present: int, num_last: int) -> int:
        """Go back to at most `length` tokens; return the number of tokens kept.

        `present` is the present length, `num_last` the number of tokens in the last pass. Empties
        the memory if the tail cannot be removed and no state is saved.
        """
        if self._can_remove(length, present, num_last) and self.remove_tail(length):
            self._drop_prompts(length)
            self.positions.cut(length)
            return length
        self._forget(lambda saved: saved.length > length)
        self._drop_prompts(length)
        usable = [*self._prompts, *self._step]
        if not usable:
            return self.empty()
        latest = max(usable, key=lambda checkpoint: checkpoint.length)
        if not self._restore(latest):
            self._step, self._prompts = [], []  # what follows is another text
            return self.empty()
        self._forget(lambda saved: saved.length < latest.length)  # the next step begins here
        self.positions.cut(latest.length)
        return latest.length

    def remove_tail(self, length: int) -> bool:
        """Remove the tokens from `length` on; return False if the memory does not support it."""
        first = self.positions.at(length)
        return bool(api.llama_memory_seq_rm(self._memory, self._sequence, first, TO_THE_END))

    def repeat(self, num_times: int) -> bool:
        """Fill the KV cache with copies of its tokens, which later ones attend to, too.

        Passes then use the kernels, and take the time, of a deep context, without evaluating one.
        The copies stay until the memory is emptied. Returns False if they do not fit, or if the
        memory is more than a KV cache; the caller must then empty the memory.
        """
        if self.name not in {"tail", "window"} or not self._is_alone:
            return False
        size = api.llama_state_seq_get_size_ext(self._context, self._sequence, 0)
        state = (ctypes.c_uint8 * size)()
        api.llama_state_seq_get_data_ext(self._context, state, size, self._sequence, 0)
        for _ in range(num_times - 1):
            if not api.llama_state_seq_set_data_ext(self._context, state, size, COPY, 0):
                return False
            api.llama_memory_seq_cp(self._memory, COPY, self._sequence, 0, TO_THE_END)
            api.llama_memory_seq_rm(self._memory, COPY, 0, TO_THE_END)
        return True

    def empty(self) -> int:
        """Remove all tokens; return 0, the number left."""
        if self._is_alone:
            api.llama_memory_clear(self._memory, True)
        else:
            self.remove_tail(0)
        self.positions.cut(0)
        return 0

    def _forget(self, is_useless: Callable[[Checkpoint], bool]) -> None:
        """Drop marks, keeping their buffers for reuse."""
        self._spare += [_buffer(saved) for saved in self._step if is_useless(saved)]
        self._step = [saved for saved in self._step if not is_useless(saved)]

    def _drop_prompts(self, length: int) -> None:
        """Drop states of prompts longer than `length` tokens: another text follows there now."""
        self._length_lent = min(self._length_lent, length)
        if self._prompts:
            self._prompts = [kept for kept in self._prompts if kept.length <= length]

    @property
    def _state_size(self) -> int:
        return int(api.llama_state_seq_get_size_ext(self._context, self._sequence, PARTIAL_ONLY))

    def _save(self, length: int) -> Checkpoint:
        size = self._state_size
        data = self._spare.pop() if self._spare else np.empty(size, np.uint8)
        if data.size < size:
            data = np.empty(size, np.uint8)
        written = api.llama_state_seq_get_data_ext(
            self._context, address_of(data), size, self._sequence, PARTIAL_ONLY
        )
        return Checkpoint(length, data[: int(written)])

    def _restore(self, saved: Checkpoint) -> bool:
        read = api.llama_state_seq_set_data_ext(
            self._context, address_of(saved.data), saved.num_bytes, self._sequence, PARTIAL_ONLY
        )
        return bool(read) and self.remove_tail(saved.length)


def longest_within(checkpoints: Sequence[Checkpoint], length: int) -> int:
    """Return the length of the longest saved state of at most `length` tokens, 0 without one."""
    return max(
        (checkpoint.length for checkpoint in checkpoints if checkpoint.length <= length), default=0
    )


def _buffer(saved: Checkpoint) -> Bytes:
    """Return the whole array that a state was written into, to be used again."""
    base = saved.data.base
    return base if isinstance(base, np.ndarray) else saved.data


def choose_rollback(
    context: object, model: Model, decode: Decode, sequence: int = 0, *, is_alone: bool = True
) -> Rollback:
    """Return the kind of rollback that works for a sequence, by trying; empty its memory."""
    positions = Positions()

    def kind(name: str = "none", can_remove: CanRemove = lambda *_: False) -> Rollback:
        return Rollback(context, name, can_remove, sequence, is_alone=is_alone, positions=positions)

    none = kind()
    try:
        return _tried(kind, context, model, decode, sequence, positions)
    except SpecchatError:
        return none
    finally:
        none.empty()


def _tried(
    kind: Callable[..., Rollback],
    context: object,
    model: Model,
    decode: Decode,
    sequence: int,
    positions: Positions,
) -> Rollback:
    tokens = [0, 0, 0]
    decode(tokens, 0)
    if kind().remove_tail(len(tokens) - 1):
        if depth := int(api.llama_n_rs_seq(context)):

            def within_pass(length: int, present: int, num_last: int) -> bool:
                # llama.cpp would step back further, into states that are no longer valid
                return present - length <= min(depth, num_last - 1)

            return kind("snapshots", within_pass)
        if model.window:
            memory = api.llama_get_memory(context)

            def in_window(length: int, *_: int) -> bool:
                # the cache holds little more than the window: older tokens may be gone
                oldest = api.llama_memory_seq_pos_min(memory, sequence)
                return bool(length and 0 <= oldest <= max(0, positions.at(length) - model.window))

            return kind("window", in_window)
        return kind("tail", lambda length, *_: length > 0)
    trial = kind("checkpoint")
    trial.mark(len(tokens))
    works = trial.to(len(tokens), len(tokens), 1) == len(tokens)
    return kind("checkpoint") if works else kind()  # without the trial's state
