"""The memory of one text in a context: evaluating tokens, reading logits, and rolling back."""

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from specchat.decoding.ports import PromptProgress, Rows
from specchat.errors import ContextFull
from specchat.llama.batch import Batch
from specchat.llama.hidden_states import HiddenStates
from specchat.llama.image_reading import ImageReading
from specchat.llama.library import api
from specchat.llama.memory_snapshot import Checkpoint, MemorySnapshot, read_state, write_state
from specchat.llama.native_context import NativeContext
from specchat.llama.pass_record import PassRecord
from specchat.llama.rollback import Rollback, choose_rollback, longest_within

LONGEST_REPLAY = 16
"""Once more tokens than this wait to be replayed, they are, and a new state is saved."""


class PassListener(Protocol):
    """A listener to what happens to a context's memory, such as a prediction head's feed."""

    def after_pass(self, position: int, tokens: Sequence[int], *, is_prompt: bool) -> None:
        """Take note of a pass from `position` on; a prompt's tokens are never rejected."""

    def after_rollback(self, length: int) -> None:
        """Take note of a rollback to this length."""

    def after_branches(self, position: int, rows: Sequence[int]) -> None:
        """Take note of the branches that were kept, given by their rows in the last pass.

        They continue the text from `position` on.
        """


class StateSource(Protocol):
    """A provider of the hidden states that a context reads together with its tokens."""

    def fill(self, position: int, count: int) -> None:
        """Fill the inputs of the batch for the next pass, over `count` tokens from `position`."""


class TextMemory:
    """The memory of one text, as the decoding loop wants it (specchat.decoding.ports).

    It is a sequence of a context, which others may share. `tokens` lists what the memory stands
    for. llama.cpp's own memory may be shorter for a while: after a rollback to a checkpoint, the
    tokens after it are evaluated again with the next ones.
    `capacity` is the number of tokens that fit, `longest_draft` the number a step may draft and
    roll back. A context that `is_longest` cannot be made larger. A replay after a rollback, whether
    by itself or as part of a verification pass, takes at most `longest_replay` tokens a pass.
    `num_evaluated` is the number of tokens in llama.cpp's memory.

    Tokens below zero are cells of images, which are read whole and never cut
    (specchat.llama.image_cells).

    Prediction heads need more of their own memory and their target's: a `listener` follows the
    passes and rollbacks, and a `source` fills in `batch.inputs` before each pass.
    """

    def __init__(self, native: NativeContext, sequence: int = 0) -> None:
        """Begin with an empty memory."""
        self.native, self.sequence = native, sequence
        self.tokens: list[int] = []
        self.listener: PassListener | None = None
        self.source: StateSource | None = None
        self.model, self.shape = native.model, native.shape
        self.capacity = native.shape.ctx  # llama.cpp rounds up
        self.is_longest = native.is_longest
        self.longest_draft = native.shape.num_rows - 1
        self._chunk = self.longest_replay = native.chunk
        self.batch = native.new_batch(sequence)
        self._images = ImageReading(native, sequence)
        self.vocabulary_size = native.model.vocabulary.size
        self.num_evaluated = 0
        self._record = PassRecord()
        self._num_last = 0
        self._last = slice(0)
        self._num_padded = 0
        is_alone = native.shape.num_texts == 1
        self.rollback_kind = Rollback(self.handle, sequence=sequence, is_alone=is_alone)
        self.rollback_kind = choose_rollback(
            self.handle, self.model, self._decode, sequence, is_alone=is_alone
        )
        self.num_evaluated = 0
        self._record.cut(0)

    @property
    def handle(self) -> Any:
        """llama.cpp's handle of the context, None once it is closed."""
        return self.native.handle

    @property
    def length(self) -> int:
        """The number of tokens in the memory."""
        return len(self.tokens)

    @property
    def num_waiting(self) -> int:
        """The tokens of the text that the next pass reads again."""
        return len(self.tokens) - self.num_evaluated

    @property
    def image_seconds(self) -> float:
        """The seconds that encoding images has taken so far."""
        return self._images.seconds

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of this text are in the memory."""
        return self._images.whole(tokens, count_common(self.tokens, tokens))

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many were there already.

        Keeps the longest common prefix. Raises ContextFull if they do not fit, Cancelled when
        stopped; the memory then holds a prefix of the tokens.
        """
        reading = self.reading(tokens, on_progress, lambda: False)
        while True:
            try:
                next(reading)
            except StopIteration as end:
                num_cached: int = end.value
                return num_cached

    def reading(
        self,
        tokens: Sequence[int],
        on_progress: PromptProgress | None,
        is_brief: Callable[[], bool],
    ) -> Generator[None, None, int]:
        """Do the same with a pause after each pass: others may use the context meanwhile.

        Passes are short while `is_brief`.
        """
        if len(tokens) > self.capacity:
            raise ContextFull(f"{len(tokens)} tokens do not fit a context of {self.capacity}")
        num_common = self.count_known(tokens)
        if num_common < len(self.tokens):
            self.rollback(num_common)
        num_cached = self.num_evaluated
        if num_cached < len(tokens):
            self.rollback_kind.keep(num_cached)  # the end of an answer, before the next question
        if on_progress:
            on_progress(num_cached, len(tokens))
        self.tokens = list(tokens[:num_cached])
        while len(self.tokens) < len(tokens):
            start = len(self.tokens)
            most = self.native.brief_chunk if is_brief() else self._chunk
            if self._images.has(tokens[start]):
                self._catch_up()  # a failed pass of several texts may have shortened the memory
                self._read_image(tokens, start)
            else:
                most = self._images.text_length(tokens, start, most)
                self.evaluate(tokens[start : start + most], 0)
            if on_progress:
                on_progress(len(self.tokens), len(tokens))
            yield
        if num_cached < len(tokens):  # passes without logits: a GPU may still be at work on them,
            api.llama_synchronize(self.handle)  # and the next pass would be charged for that
        self.rollback_kind.keep(self.num_evaluated)
        return num_cached

    def mark(self) -> None:
        """Allow a rollback to here, which for some memories costs a copy of their state."""
        self.native.require_open()
        if len(self.tokens) - self.num_evaluated > LONGEST_REPLAY:
            self._catch_up()
        self.rollback_kind.mark(self.num_evaluated)

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return the logits after each of the last `num_rows`, as views.

        Raises Cancelled when aborted and EngineFailed when llama.cpp fails; the memory is then as
        it was.
        """
        if num_rows > self.longest_draft + 1:
            raise ValueError(f"num_rows must be at most {self.longest_draft + 1}, not {num_rows}")
        try:
            self._decode(self.with_missing(tokens), num_rows)
            rows = self.logits(num_rows)
        except BaseException:
            self._forget(len(self.tokens))
            raise
        self.tokens.extend(tokens)
        return rows

    def with_missing(self, tokens: Sequence[int]) -> Sequence[int]:
        """Return these tokens, which follow the text, behind those to be evaluated again first.

        Where they are more than may be replayed in a pass, they are evaluated now: all rows must
        come from one pass.
        """
        missing = self.tokens[self.num_evaluated :]
        is_long = len(missing) + len(tokens) > self.longest_replay
        if missing and (is_long or self._images.has(min(missing))):
            self._catch_up()
            missing = []
        return [*missing, *tokens] if missing else tokens

    def take_part(
        self, read: Sequence[int], num_new: int, place: slice, num_padded: int, num_all: int
    ) -> None:
        """Note a pass over `num_all` tokens that texts shared, these of this one among them.

        The last `num_new` are new to the text. They have this `place` in the pass, followed by
        padding that makes the parts equally long.
        """
        start = self.num_evaluated
        self.num_evaluated += len(read)
        self._num_padded, self._num_last = num_padded, len(read) + num_padded
        self._last = place
        if num_all <= self._record.longest_exact:
            self._record.note(start, len(read))
        if self.listener:
            self.listener.after_pass(start, read, is_prompt=False)
        self.tokens.extend(read[len(read) - num_new :])

    def forget_last_pass(self) -> None:
        """Step back within the last pass no more: the states in it are gone, or may be."""
        self._num_last = 0

    def leave_out_padding(self) -> None:
        """Remove the padding of the last shared pass."""
        if self._num_padded:
            self._forget(len(self.tokens))

    def undo(self, count: int) -> None:
        """Return the memory to a defined state after an unfinished pass over `count` tokens."""
        length = self.num_evaluated
        self.num_evaluated = self.rollback_kind.to(length, length + count, 0)
        self._record.cut(self.num_evaluated)
        self.forget_last_pass()

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self.native.require_open()
        if length >= self.num_evaluated:
            self.rollback_kind.settle()
        self._forget(length)
        del self.tokens[length:]

    @contextmanager
    def exact_passes(self, longest: int | None) -> Iterator[None]:
        """Trust that passes over up to `longest` tokens give the bits of single-token passes.

        None leaves everything as it is.
        """
        if longest is None:
            yield
            return
        record = self._record
        before = self.longest_replay, record.longest_exact
        self.longest_replay, record.longest_exact = min(longest, self.longest_replay), longest
        try:
            yield
        finally:
            self.longest_replay, record.longest_exact = before

    def keep_repeatable(self, tokens: Sequence[int], stops: Sequence[int]) -> int:
        """Drop what would have other bits if these tokens were read from the first one on.

        They would be read up to each of `stops` in turn, then in exact passes. Returns the number
        of tokens that are left.
        """

        def size_at(start: int, stop: int) -> int:
            # a later pass over the same image begins inside it
            return self._images.pass_length(tokens, start, min(self._chunk, stop - start))

        planned = self._record.planned(stops, len(tokens), size_at)
        while True:
            known = min(self.count_known(tokens), self.num_evaluated)
            length = self._images.whole(tokens, self._record.num_matching(planned, known))
            if length < len(self.tokens):
                self.rollback(length)
            if length == self.num_evaluated:
                return length

    def run(self, batch: Batch) -> None:
        """Evaluate a filled batch in one pass, after the tokens that llama.cpp's memory holds.

        Raises as `evaluate` does; the memory is then as it was. The caller extends `tokens`.
        """
        self._num_last = 0
        try:
            self.native.run(batch)
        except BaseException:  # Ctrl+C arrives after the pass: it may be in the memory
            self.undo(batch.count)
            raise
        self.num_evaluated += batch.count  # no call between the pass and its bookkeeping
        self._num_last = batch.count
        self._last = slice(0, batch.count)

    def encode(self, batch: Batch) -> HiddenStates:
        """Return the model's encoding of a batch of hidden states, shape (tokens, width)."""
        return self.native.encode(batch)

    def logits(self, num_rows: int) -> Rows:
        """Return the logits after the last tokens of the last pass, as views: (vocabulary,) each.

        There are as many as were asked for, or one for each token.
        """
        if num_rows == 0:
            return ()
        count = self._num_last if self.native.gives_all_logits else num_rows
        return self.native.logits(count)[count - num_rows : count]

    def keep_hidden_states(self, layers: Sequence[int] = (), *, of_outputs: bool = False) -> None:
        """From now on, keep the last layer's output of each pass, or the inputs of some layers.

        With `of_outputs`, the output is kept for tokens with logits alone.
        """
        self.native.keep_hidden_states(layers, of_outputs=of_outputs)

    def hidden_states(self) -> HiddenStates:
        """Return the last layer's output of the last pass, (tokens, width), until the next."""
        return self.native.hidden_states(self._last.stop)[self._last]

    def layer_inputs(self, layers: Sequence[int]) -> HiddenStates:
        """Return the layers' inputs of the last pass side by side: (tokens, layers * width)."""
        return self.native.layer_inputs(layers, self._last.stop)[self._last]

    def snapshot(self) -> MemorySnapshot:
        """Return a copy of the memory. Raises MemoryError if there is no room for one."""
        self.native.require_open()
        kind = self.rollback_kind
        return MemorySnapshot(
            self.tokens[: self.num_evaluated],
            read_state(self.handle, self.sequence),
            kind.lend(),
            ends=self.pass_ends,
            gaps=kind.positions.gaps,
        )

    def restore(self, snapshot: MemorySnapshot) -> None:
        """Restore a copy of the memory; on failure, empty the memory and raise EngineFailed."""
        self.native.require_open()
        self.rollback_kind.begin_with(snapshot.checkpoints)
        self._num_last = 0
        self._record.begin_with(())
        try:
            self.rollback_kind.empty()
            write_state(self.handle, self.sequence, snapshot.data)
        except BaseException:
            self.rollback_kind.begin_with(())
            self.tokens, self.num_evaluated = [], self.rollback_kind.empty()
            raise
        self.tokens, self.num_evaluated = list(snapshot.tokens), snapshot.length
        self.rollback_kind.positions.begin_with(snapshot.gaps)
        if self.rollback_kind.restores_bits:
            self._record.begin_with(snapshot.ends)

    def shared_by(self, tokens: Sequence[int], *, repeats: bool = False) -> int:
        """Return how many leading tokens of a text a copy of this one would save evaluating.

        If the text `repeats`, they must have been read in the passes that read a prompt alone, and
        a copy must have their bits.
        """
        length = min(self.count_known(tokens), self.num_evaluated)
        if repeats and not self.rollback_kind.restores_bits:
            return 0
        if repeats:
            length = min(length, self._record.num_in_passes_of(self._chunk))
        return self._left_of_copy(length, self.num_evaluated, self.rollback_kind.checkpoints)

    @property
    def pass_ends(self) -> tuple[int, ...]:
        """The lengths after the passes that filled the memory, as far as known."""
        return self._record.ends

    def reachable(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of a text need not be evaluated again."""
        length = min(self.count_known(tokens), self.num_evaluated)
        return self.rollback_kind.reachable(length, self.num_evaluated, self._num_last)

    def reachable_in(self, snapshot: MemorySnapshot, tokens: Sequence[int]) -> int:
        """Return the same as `reachable`, for a copy of this memory if it were restored."""
        length = self._images.whole(tokens, count_common(snapshot.tokens, tokens))
        return self._left_of_copy(length, snapshot.length, snapshot.checkpoints)

    def _left_of_copy(self, length: int, whole: int, checkpoints: Sequence[Checkpoint]) -> int:
        """Return how many tokens are left of a copy of `whole` tokens that goes back to a length.

        It has a sliding window's last tokens alone, and no states of the last pass.
        """
        if length == whole or self.rollback_kind.removes_any_tail:
            return length
        return longest_within(checkpoints, length)

    def _catch_up(self) -> None:
        """Evaluate the tokens that have waited since a rollback to a saved state."""
        while missing := self.tokens[self.num_evaluated :]:
            if self._images.has(missing[0]):
                self._read_image(self.tokens, self.num_evaluated)
            else:
                length = self._images.text_length(missing, 0, self.longest_replay)
                self._decode(missing[:length], 0)

    def _decode(self, tokens: Sequence[int], num_rows: int) -> None:
        """Evaluate the next tokens in as many passes as needed.

        All logits come from the last pass.
        """
        self._make_way()
        while len(tokens) > self._chunk:
            size = min(self._chunk, len(tokens) - num_rows)
            self._pass(tokens[:size], 0)
            tokens = tokens[size:]
        if tokens:
            self._pass(tokens, num_rows)

    def _pass(self, tokens: Sequence[int], num_rows: int) -> None:
        """Evaluate tokens in one pass; the last `num_rows` give logits."""
        start = self.num_evaluated
        if self.source:
            self.source.fill(start, len(tokens))
        shown = self._images.show(self.batch, tokens, start, self.rollback_kind.positions)
        self.batch.fill(
            shown, len(tokens) if num_rows and self.native.gives_all_logits else num_rows
        )
        self.run(self.batch)
        self._record.note(start, len(tokens))
        if self.listener:
            self.listener.after_pass(start, tokens, is_prompt=not num_rows)

    def _make_way(self) -> None:
        """Remove from llama.cpp's memory what is there beside the text: nothing."""

    def _read_image(self, tokens: Sequence[int], place: int) -> None:
        """Read the image at a place of a text, up to which the memory holds the text.

        Raises as `evaluate` does; the memory is then as it was.
        """
        cells, states = self._images.encoded(tokens, place)
        count, length, positions = len(cells.ids), len(self.tokens), self.rollback_kind.positions
        self._make_way()
        try:
            for first in range(0, count, self._chunk):
                batch = self._images.part(cells, states, first, positions.at(place))
                with nullcontext() if cells.is_causal else self.native.non_causal():
                    self.run(batch)
                start, ids = place + first, cells.ids[first : first + batch.count]
                self._record.note(start, len(ids))
                self.tokens[start : start + len(ids)] = ids  # a head that follows reads them now
                if self.listener:
                    self.listener.after_pass(start, ids, is_prompt=True)
        except BaseException:
            self._forget(place)
            del self.tokens[length:]
            raise
        positions.note(place + count, count - cells.num_positions)

    def _forget(self, length: int) -> None:
        """Remove what was evaluated after `length` tokens from llama.cpp's memory."""
        present, kept = self.num_evaluated + self._num_padded, min(length, self.num_evaluated)
        if kept < present and self.handle is not None:
            self.num_evaluated = self.rollback_kind.to(kept, present, self._num_last)
            self._record.cut(self.num_evaluated)
            self._num_padded = 0
            self.forget_last_pass()
        if self.listener:
            self.listener.after_rollback(length)


def count_common(
    first: Sequence[int] | NDArray[np.int32], second: Sequence[int] | NDArray[np.int32]
) -> int:
    """Return how many leading tokens two texts have in common."""
    shorter = min(len(first), len(second))
    leading = np.asarray(first[:shorter], dtype=np.int64)
    differs = (leading != np.asarray(second[:shorter], dtype=np.int64)).nonzero()[0]
    return int(differs[0]) if differs.size else shorter
