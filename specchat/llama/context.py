"""A model's context: evaluating tokens, reading logits, and rolling the memory back."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn, Protocol

import numpy as np
from numpy.typing import NDArray

from specchat.decoding.distribution import Logits
from specchat.decoding.ports import PromptProgress, Rows
from specchat.errors import Cancelled, ContextFull, EngineFailed, ModelWontLoad, OutOfMemory
from specchat.llama.device_list import has_gpus
from specchat.llama.hidden_states import (
    HiddenStates,
    hidden_states_of,
    keep_hidden_states,
    keep_layer_inputs,
    layer_inputs_of,
)
from specchat.llama.library import AbortFlag, api, last_errors, logits_address
from specchat.llama.memory_image import MemoryImage, read_state, write_state
from specchat.llama.model import CACHE_TYPES, Model, is_no_memory
from specchat.llama.pass_record import PassRecord
from specchat.llama.rollback import Rollback, choose_rollback, longest_within
from specchat.planning.cache_types import require_cache_type
from specchat.planning.context_shape import ContextShape, ModelOptions, shape_context
from specchat.planning.host_resources import num_threads

SEQUENCE = 0
LONGEST_REPLAY = 16
"""Once more tokens than this wait to be replayed, they are, and a new state is saved."""
DONE, NO_ROOM, ABORTED = 0, 1, 2
"""What llama_decode returns; anything negative is a failure."""
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}


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


@dataclass(frozen=True, slots=True)
class BesideTarget:
    """How a head's context is attached to its target's, and the width of the states that it reads.

    A state is read together with a token, or without `has_tokens` in place of one.
    """

    target: "Context"
    width: int
    has_tokens: bool = True


class Context(AbstractContextManager["Context"]):
    """The memory of one model, as the decoding loop wants it (specchat.decoding.ports).

    `tokens` lists what the memory stands for. llama.cpp's own memory may be shorter for a while:
    after a rollback to a checkpoint, the tokens after it are evaluated again with the next ones.
    `capacity` is the number of tokens that fit, `longest_draft` the number a step may draft and
    roll back, `num_bytes` the size of the memory. A context that `is_longest` cannot be made
    larger. A replay after a rollback, whether by itself or as part of a verification pass, takes at
    most `longest_replay` tokens a pass. `num_evaluated` is the number of tokens in llama.cpp's
    memory.

    Prediction heads need more of their own context and their target's: a `listener` follows the
    passes and rollbacks, and a `source` fills in `batch.inputs` before each pass.
    """

    prompt_seconds = 0.0
    """The seconds spent while a target read its prompts: none, for a context by itself."""

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        abort: AbortFlag | None = None,
        beside: BesideTarget | None = None,
        hook: Any = None,
        shape: ContextShape | None = None,
    ) -> None:
        """Create a context; `beside` is for a head's. Raises ModelWontLoad if memory is short.

        Raises InvalidOption for a KV cache type that the model does not support. The `shape`
        follows from the options unless it is given. llama.cpp calls `hook` with the results of a
        pass while it is computed.
        """
        self.tokens: list[int] = []
        self.listener: PassListener | None = None
        self.source: StateSource | None = None
        self.model = model
        self._abort = abort or AbortFlag()
        require_cache_type(model.sizes, options)
        is_on_gpu = options.gpu_layers != 0 and (bool(options.workers) or has_gpus())
        shape = shape or shape_context(model.sizes.layout, options, is_on_gpu=is_on_gpu)
        self.shape = shape
        self.handle: Any = _make(model, options, shape, beside, hook)
        self._abort.attach(self.handle)
        self.capacity = shape.ctx  # llama.cpp rounds up
        self.is_longest = shape.ctx == model.sizes.layout.num_positions
        self.longest_draft = shape.num_rows - 1
        self.num_bytes = model.sizes.cache(shape)
        # One micro-batch per pass: to make room in a sliding window's cache for a later one,
        # llama.cpp may drop tokens that an earlier one still attends to.
        self._chunk = int(api.llama_n_ubatch(self.handle))
        self.longest_replay = self._chunk
        self.batch = Batch(self._chunk)
        if beside:
            self.batch = Batch(self._chunk, beside.width, has_tokens=beside.has_tokens)
        self.vocabulary_size = model.vocabulary.size
        self._gives_all_logits = model.sizes.kind.gives_all_logits
        self.num_evaluated = 0
        self._record = PassRecord()
        self._num_last = 0
        self._rows_at: tuple[int | None, list[Logits]] = (None, [])
        if not api.llama_get_memory(self.handle):
            self.close()
            raise ModelWontLoad(_no_text(model))
        self.rollback_kind = Rollback(self.handle)
        self.rollback_kind = choose_rollback(self.handle, model, self._decode)
        self.num_evaluated = 0
        self._record.cut(0)

    @property
    def length(self) -> int:
        """The number of tokens in the memory."""
        return len(self.tokens)

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of this text are in the memory."""
        return count_common(self.tokens, tokens)

    def prefill(self, tokens: Sequence[int], on_progress: PromptProgress | None = None) -> int:
        """Make the memory hold exactly these tokens; return how many were there already.

        Keeps the longest common prefix. Raises ContextFull if they do not fit, Cancelled when
        stopped; the memory then holds a prefix of the tokens.
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
            self.evaluate(tokens[start : start + self._chunk], 0)
            if on_progress:
                on_progress(len(self.tokens), len(tokens))
        if num_cached < len(tokens):  # passes without logits: a GPU may still be at work on them,
            api.llama_synchronize(self.handle)  # and the next pass would be charged for that
        self.rollback_kind.keep(self.num_evaluated)
        return num_cached

    def mark(self) -> None:
        """Allow a rollback to here, which for some memories costs a copy of their state."""
        self._require_open()
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
            missing = self.tokens[self.num_evaluated :]
            if missing and len(missing) + len(tokens) > self.longest_replay:
                self._catch_up()  # all rows must come from one pass
                missing = []
            self._decode([*missing, *tokens] if missing else tokens, num_rows)
            rows = self.logits(num_rows)
        except BaseException:
            self._forget(len(self.tokens))
            raise
        self.tokens.extend(tokens)
        return rows

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self._require_open()
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
        planned = self._record.planned(stops, len(tokens), self._chunk)
        while True:
            known = min(self.count_known(tokens), self.num_evaluated)
            length = self._record.num_matching(planned, known)
            if length < len(self.tokens):
                self.rollback(length)
            if length == self.num_evaluated:
                return length

    def run(self, batch: "Batch") -> None:
        """Evaluate a filled batch in one pass, after the tokens that llama.cpp's memory holds.

        Raises as `evaluate` does; the memory is then as it was. The caller extends `tokens`.
        """
        self._require_open()
        self._num_last = 0
        try:
            result = api.llama_decode(self.handle, batch.native)
        except BaseException:  # Ctrl+C arrives after the pass: it may be in the memory
            self._undo(batch.count)
            raise
        if result != DONE:
            self._fail(result, batch.count)
        self.num_evaluated += batch.count  # no call between the pass and its bookkeeping
        self._num_last = batch.count

    def encode(self, batch: "Batch") -> HiddenStates:
        """Return the model's encoding of a batch of hidden states, shape (tokens, width)."""
        self._require_open()
        result = api.llama_encode(self.handle, batch.native)
        if result != DONE:
            self._fail(result, 0)
        return hidden_states_of(self.handle, batch.count, self.model.hidden_width)

    def logits(self, num_rows: int) -> Rows:
        """Return the logits after the last tokens of the last pass, as views: (vocabulary,) each.

        There are as many as were asked for, or one for each token.
        """
        if num_rows == 0:
            return ()
        count = self._num_last if self._gives_all_logits else num_rows
        address = logits_address(self.handle)  # waits for the pass to end
        last, rows = self._rows_at
        if address != last or len(rows) < count:
            if not address:
                raise EngineFailed(_no_text(self.model))
            values: Any = (ctypes.c_float * (count * self.vocabulary_size)).from_address(address)
            rows = list(np.ctypeslib.as_array(values).reshape(count, self.vocabulary_size))
            self._rows_at = (address, rows)
        return rows[count - num_rows : count]

    def keep_hidden_states(self, layers: Sequence[int] = ()) -> None:
        """From now on, keep the last layer's output of each pass, or the inputs of some layers."""
        if layers:
            keep_layer_inputs(self.handle, layers)
        else:
            keep_hidden_states(self.handle)

    def hidden_states(self) -> HiddenStates:
        """Return the last layer's output of the last pass, (tokens, width), until the next."""
        return hidden_states_of(self.handle, self._num_last, self.model.hidden_width)

    def layer_inputs(self, layers: Sequence[int]) -> HiddenStates:
        """Return the layers' inputs of the last pass side by side: (tokens, layers * width)."""
        return layer_inputs_of(self.handle, layers, self._num_last, self.model.width)

    def image(self) -> MemoryImage:
        """Return a copy of the memory. Raises MemoryError if there is no room for one."""
        self._require_open()
        kind = self.rollback_kind
        tokens = self.tokens[: self.num_evaluated]
        return MemoryImage(tokens, read_state(self.handle), kind.lend(), ends=self._record.ends)

    def restore(self, image: MemoryImage) -> None:
        """Restore a copy of the memory; on failure, empty the memory and raise EngineFailed."""
        self._require_open()
        self.rollback_kind.begin_with(image.checkpoints)
        self._num_last = 0
        self._record.begin_with(())
        try:
            self.rollback_kind.empty()
            write_state(self.handle, image.data)
        except BaseException:
            self.rollback_kind.begin_with(())
            self.tokens, self.num_evaluated = [], self.rollback_kind.empty()
            raise
        self.tokens, self.num_evaluated = list(image.tokens), image.length
        if self.rollback_kind.restores_bits:
            self._record.begin_with(image.ends)

    def reachable(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of a text need not be evaluated again."""
        length = min(self.count_known(tokens), self.num_evaluated)
        return self.rollback_kind.reachable(length, self.num_evaluated, self._num_last)

    def reachable_in(self, image: MemoryImage, tokens: Sequence[int]) -> int:
        """Return the same as `reachable`, for a copy of this memory if it were restored."""
        length = count_common(image.tokens, tokens)
        if length == image.length or self.rollback_kind.removes_any_tail:
            return length
        return longest_within(image.checkpoints, length)

    def use_threads(self, count: int) -> None:
        """Compute with this number of threads from the next pass on."""
        api.llama_set_n_threads(self.handle, count, count)

    def close(self) -> None:
        """Free the memory; closing twice does nothing."""
        if self.handle is not None:
            self._rows_at = (None, [])
            api.llama_free(self.handle)
            self.handle = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _catch_up(self) -> None:
        """Evaluate the tokens that have waited since a rollback to a saved state."""
        while missing := self.tokens[self.num_evaluated :]:
            self._decode(missing[: self.longest_replay], 0)

    def _decode(self, tokens: Sequence[int], num_rows: int) -> None:
        """Evaluate the next tokens in as many passes as needed.

        All logits come from the last pass.
        """
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
        self.batch.fill(tokens, len(tokens) if num_rows and self._gives_all_logits else num_rows)
        self.run(self.batch)
        self._record.note(start, len(tokens))
        if self.listener:
            self.listener.after_pass(start, tokens, is_prompt=not num_rows)

    def _require_open(self) -> None:
        if self.handle is None:
            raise EngineFailed("the engine is closed: load it again")

    def _forget(self, length: int) -> None:
        """Remove what was evaluated after `length` tokens from llama.cpp's memory."""
        present = self.num_evaluated
        if length < present and self.handle is not None:
            self.num_evaluated = self.rollback_kind.to(length, present, self._num_last)
            self._record.cut(self.num_evaluated)
            self._num_last = 0  # the states of that pass cannot be used again
        if self.listener:
            self.listener.after_rollback(length)

    def _undo(self, count: int) -> None:
        """Return the memory to a defined state after an unfinished pass over `count` tokens."""
        length = self.num_evaluated
        self.num_evaluated = self.rollback_kind.to(length, length + count, 0)
        self._record.cut(self.num_evaluated)

    def _fail(self, result: int, count: int) -> NoReturn:
        """Undo a failed pass and raise an error with the reason."""
        self._undo(count)
        if result == ABORTED:
            raise Cancelled("the answer was stopped")
        if result == NO_ROOM:
            advice = "start a new chat" if self.is_longest else "choose a larger one with --ctx"
            raise ContextFull(f"the context is full: {advice}")
        reason = " ".join(last_errors()[-2:]) or f"code {result}"
        raise EngineFailed(f"llama.cpp failed to evaluate a batch: {reason}; try --gpu-layers 0")


class Batch:
    """llama.cpp's batch, made once. The sequence is left to llama.cpp, and so are positions.

    With a `width`, each token is read together with a hidden state, or without `has_tokens`
    replaced by it. `inputs` holds the states, shape (size, width). A position without a token may
    have several parts (M-RoPE).
    """

    def __init__(
        self, size: int, width: int = 0, *, has_tokens: bool = True, num_parts: int = 1
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
        if width:
            address: Any = self.inputs.ctypes.data_as(ctypes.POINTER(ctypes.c_float))
            self.native.embd = address

    def place(self, position: int, count: int) -> None:
        """Let tokens have the positions from this one on, though memory may hold none before it."""
        each = list(range(position, position + count))
        if self._num_parts > 1:  # time, height and width, by parts; the last one is not used
            each = [*each * (self._num_parts - 1), *[0] * count]
        self._positions[: len(each)] = each
        self.native.pos = self._positions

    def fill(self, tokens: Sequence[int], num_rows: int) -> None:
        """Fill in tokens; the last `num_rows` give logits."""
        self.count = count = len(tokens)
        self._tokens[:count] = tokens
        if self._filled != (count, num_rows):
            self._filled = (count, num_rows)
            self._outputs[:count] = [index >= count - num_rows for index in range(count)]
            self.native.n_tokens = count


def count_common(
    first: Sequence[int] | NDArray[np.int32], second: Sequence[int] | NDArray[np.int32]
) -> int:
    """Return how many leading tokens two texts have in common."""
    shorter = min(len(first), len(second))
    leading = np.asarray(first[:shorter], dtype=np.int64)
    differs = (leading != np.asarray(second[:shorter], dtype=np.int64)).nonzero()[0]
    return int(differs[0]) if differs.size else shorter


def _make(
    model: Model,
    options: ModelOptions,
    shape: ContextShape,
    beside: BesideTarget | None,
    hook: Any,
) -> object:
    parameters = api.llama_context_default_params()
    if hook:
        parameters.cb_eval = hook
    if beside:
        parameters.ctx_other = beside.target.handle
    if beside and not model.sizes.kind.has_encoder:
        parameters.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
    parameters.n_ctx = shape.ctx
    parameters.n_batch = shape.batch
    parameters.n_ubatch = shape.ubatch
    wanted = options.flash_attention if shape.flash else "off"
    parameters.flash_attn_type = FLASH_ATTENTION[wanted]
    parameters.n_seq_max = 1 + shape.num_branches
    parameters.kv_unified = shape.num_branches > 0
    parameters.n_outputs_max = shape.num_rows
    parameters.n_rs_seq = shape.num_steps_back
    parameters.n_threads = parameters.n_threads_batch = num_threads(model.path, options.threads)
    parameters.type_k = parameters.type_v = CACHE_TYPES[shape.cache_type]
    parameters.swa_full = False  # a sliding window's cache holds the window only
    parameters.no_perf = True
    last_errors()
    handle = api.llama_init_from_model(model.handle, parameters)
    if handle is None:
        reason = " ".join(last_errors()[-2:]) or "llama.cpp gave no reason"
        is_type = "cache" in reason and "type" in reason
        advice = "another --cache-type" if is_type else "a smaller one with --ctx"
        kind = OutOfMemory if is_no_memory(reason) else ModelWontLoad
        raise kind(
            f"no context of {shape.ctx} tokens for {model.path.name}: {reason}; choose {advice}"
        )
    return handle


def _no_text(model: Model) -> str:
    return f"{model.path.name} is not a text-generation model: choose a chat model"
