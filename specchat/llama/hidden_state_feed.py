"""How a prediction head gets its target's hidden states: a feed keeps them until they are read.

The target's context hands them over after every pass, and says where its text was cut. The head
reads them together with the next tokens that it drafts from, or at once where a prompt was read. A
head that is not asked for drafts reads nothing: the states of the last tokens are kept, and those
before them are missed, as if their tokens were not in the text.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Any, Protocol

import numpy as np

from specchat.gguf.draft_kinds import HEAD_BATCH
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.text_memory import TextMemory

NUM_PROMPTS = 8
"""States kept for the ends of prompts, after which the next answer may begin."""


class Follower(Protocol):
    """A head as its feed sees it. Lengths count tokens of the text."""

    @property
    def length(self) -> int:
        """The number of tokens it has read, drafted ones included."""

    @property
    def num_read(self) -> int:
        """The number of leading tokens it has read with the target's hidden states."""

    def prefill(self, tokens: Sequence[int]) -> object:
        """Read the tokens of a text that it has not read yet."""

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens."""


class HiddenStateFeed:
    """The hidden states of a target that its head has not read yet, by their tokens' positions.

    The head reads each token with the state of the token before it, or with its own where
    `distance` is 0. A lost state counts as zeros, and so does the missing one before the first
    token. The states of the first `num_taken` tokens were taken; `prompt_seconds` is the time that
    the head has spent on prompts.
    """

    def __init__(
        self, target: TextMemory, width: int, read: Callable[[], HiddenStates], distance: int = 1
    ) -> None:
        """Keep states of this width; `read` returns the target's last ones, (tokens, width)."""
        self.num_taken = 0
        self.prompt_seconds = 0.0
        self._target, self._read, self._distance = target, read, distance
        self._lost = np.zeros(width, np.float32)
        self._waiting = WaitingStates(width, 2 * HEAD_BATCH)
        self._kept: dict[int, Any] = {}  # by position, the lowest first
        self._head: Follower

    def begin(self, head: Follower) -> None:
        """Begin to keep the states of the target's passes for a head."""
        self._head = head
        self._target.listener = self

    @property
    def num_waiting(self) -> int:
        """The number of states that are kept for the head."""
        return len(self._waiting)

    def take(self, start: int, count: int) -> HiddenStates:
        """Return up to `count` states, to read the tokens from position `start` on with."""
        first = start - self._distance
        states = self._waiting.between(first, first + count)
        num_lost = min(count, self._waiting.first - first)
        if num_lost > 0:
            positions = range(first, first + num_lost)
            lost = [self._kept.get(position, self._lost) for position in positions]
            states = np.concatenate((lost, states))
        # taken without a gap: a state that waits further on may still be needed
        if start <= self.num_taken:
            self.num_taken = start + len(states)
        return states

    def first_after(self, num_read: int) -> int:
        """Return the token at which a head that has read `num_read` tokens goes on.

        One that was not used for a while passes over those whose states are lost; a single one is
        lost where the text was cut.
        """
        first = self._waiting.first
        return num_read if first - (num_read - self._distance) <= 1 else first + self._distance

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Keep the states of a pass of the target over tokens from `position` on."""
        self._cut(position)
        num_kept = max(self._head.num_read - self._distance, position - HEAD_BATCH)
        self._waiting.drop_before(num_kept)
        self._waiting.append(self._read()[: len(tokens)])  # branches may follow
        if is_prompt:
            self._read_prompt([*self._target.tokens[:position], *tokens])

    def after_rollback(self, length: int) -> None:
        """Drop the states after the target's first `length` tokens."""
        self._cut(length)
        # the entry of token p is made from state p - distance, so those of tokens up to there hold
        if self._head.length > length + self._distance:
            self._head.rollback(length + self._distance)

    def after_branches(self, position: int, rows: Sequence[int]) -> None:
        """Keep the states of accepted branches, whose tokens follow the text from `position` on.

        `rows` are the rows of the last pass that hold them.
        """
        self._cut(position)
        self._waiting.append(self._read()[list(rows)])

    def snapshot(self) -> "FeedSnapshot":
        """Return a copy of what is kept for the head."""
        waiting = self._waiting.between(self._waiting.first, self._target.length).copy()
        return FeedSnapshot(self.num_taken, self._waiting.first, waiting, dict(self._kept))

    def restore(self, kept: object) -> None:
        """Restore a snapshot; without one, keep nothing."""
        width, shot = self._lost.size, kept
        if not isinstance(shot, FeedSnapshot):
            shot = FeedSnapshot(0, 0, np.empty((0, width), np.float32), {})
        self.num_taken = shot.num_taken
        self._kept = dict(shot.kept)
        self._waiting = WaitingStates(width, 2 * HEAD_BATCH)
        self._waiting.cut(shot.first)
        if len(shot.waiting):
            self._waiting.append(shot.waiting)

    def _read_prompt(self, tokens: Sequence[int]) -> None:
        """Let the head read a prompt; keep the last state for a later answer after it."""
        end = len(tokens)
        self._kept[end - 1] = last = self._waiting.between(end - 1, end)[0].copy()
        self._kept = dict(list(self._kept.items())[-NUM_PROMPTS:])
        began = perf_counter()
        self._head.prefill(tokens)
        self.prompt_seconds += perf_counter() - began
        self._waiting = WaitingStates(len(last), 2 * HEAD_BATCH)  # without room for all others
        self._waiting.cut(end - 1)
        self._waiting.append(last[np.newaxis])

    def _cut(self, length: int) -> None:
        """Drop the states of all but the target's first `length` tokens."""
        self._waiting.cut(length)
        if self._kept and next(reversed(self._kept)) >= length:
            self._kept = {
                position: state for position, state in self._kept.items() if position < length
            }


@dataclass(frozen=True, slots=True)
class FeedSnapshot:
    """A copy of a feed: the states from position `first` on, and those at the ends of prompts."""

    num_taken: int
    first: int
    waiting: HiddenStates
    kept: Mapping[int, Any]


class WaitingStates:
    """Hidden states of consecutive tokens, waiting to be read.

    One array holds them, so taking several is a single copy.
    """

    def __init__(self, width: int, size: int) -> None:
        """Hold states of this width, with room for `size` of them before the array must grow."""
        self.first = 0
        self._size = size
        self._array = np.empty((size, width), np.float32)
        self._begin = self._end = 0

    def __len__(self) -> int:
        return self._end - self._begin

    def append(self, states: HiddenStates) -> None:
        """Append a copy of the states of the tokens that follow."""
        held, end = self._end - self._begin, self._end + len(states)
        if end > len(self._array):
            size = max(self._size, held + len(states))
            old, self._array = self._array, np.empty((size, states.shape[1]), np.float32)
            self._array[:held] = old[self._begin : self._end]
            self._begin, end = 0, held + len(states)
        self._array[end - len(states) : end] = states
        self._end = end

    def cut(self, position: int) -> None:
        """Drop the states from a position on; if none is left, the next one belongs there."""
        self._end = self._begin + max(0, min(position - self.first, self._end - self._begin))
        if self._end == self._begin:
            self.first, self._begin, self._end = position, 0, 0

    def drop_before(self, position: int) -> None:
        """Drop the states before a position, once the head has read them."""
        num_used = max(0, min(position - self.first, self._end - self._begin))
        self._begin += num_used
        self.first += num_used

    def between(self, start: int, end: int) -> HiddenStates:
        """Return the states held for the positions from `start` up to, but not including, `end`."""
        begin, shift = self._begin, self._begin - self.first  # from positions to rows of the array
        return self._array[max(begin, start + shift) : max(begin, min(self._end, end + shift))]
