"""A model's context: evaluating tokens, reading logits, and rolling the memory back."""

import ctypes
from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, NoReturn

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.decoding.ports import PromptProgress, Rows
from specchat.errors import Cancelled, ContextFull, EngineFailed, ModelWontLoad, OutOfMemory
from specchat.llama.hidden_rows import Listener
from specchat.llama.library import AbortFlag, api, last_errors, logits_address
from specchat.llama.model import CACHE_TYPES, Model, is_no_memory
from specchat.llama.rollback import Rollback, choose_rollback
from specchat.planning.cache_types import require_cache_types
from specchat.planning.context_shape import ContextShape, ModelOptions, shape_context
from specchat.planning.host_resources import num_threads

SEQUENCE = 0
LONGEST_REPLAY = 16
"""If more tokens than this wait to be evaluated again, they are, and a new state is saved."""
DONE, NO_ROOM, ABORTED = 0, 1, 2
"""What llama_decode returns; anything negative is a failure."""
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}


class Context(AbstractContextManager["Context"]):
    """The memory of one model, as the decoding loop wants it (specchat.decoding.ports).

    `tokens` lists what the memory stands for. llama.cpp's own memory may be shorter for a while:
    after a rollback to a checkpoint, the tokens behind it are evaluated again with the next ones.
    `capacity` is the number of tokens that fit, `longest_draft` the number a step may draft and
    roll back, `num_bytes` the size of the memory. One that `is_longest` cannot be made larger.
    Tokens are evaluated again in passes of up to `longest_replay`, and so are they with those of a
    verification. A head spends `prompt_seconds` on the prompts of its target.
    """

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        abort: AbortFlag | None = None,
        target: "Context | None" = None,
        hook: Any = None,
    ) -> None:
        """Make a context, for a prediction head with its target's; ModelWontLoad without memory.

        InvalidOption for a KV cache of a type that the model cannot have.
        llama.cpp calls `hook` with the results of a pass while it is computed.
        """
        self.tokens: list[int] = []
        self.listener: Listener | None = None
        self.prompt_seconds = 0.0
        self.model = model
        self._abort = abort or AbortFlag()
        require_cache_types(model.sizes, options)
        is_on_gpu = options.gpu_layers != 0 and bool(api.llama_supports_gpu_offload())
        self.shape = shape = shape_context(model.sizes.layout, options, is_on_gpu=is_on_gpu)
        self.handle: Any = _make(model, options, shape, target.handle if target else None, hook)
        self._abort.attach(self.handle)
        self.capacity = shape.ctx  # llama.cpp rounds up
        self.is_longest = shape.ctx == model.sizes.layout.num_positions
        self.longest_draft = shape.num_rows - 1
        self.num_bytes = model.sizes.cache(shape)
        # One micro-batch per pass: to make room in a sliding window's cache for a later one,
        # llama.cpp may drop tokens that an earlier one still attends to.
        self._chunk = int(api.llama_n_ubatch(self.handle))
        self.longest_replay = self._chunk
        self._batch = Batch(self._chunk)
        self.vocabulary_size = model.vocabulary.size
        self._num_evaluated = 0
        self._num_last = 0
        self._rows_at: tuple[int | None, list[Logits]] = (None, [])
        if not api.llama_get_memory(self.handle):
            self.close()
            raise ModelWontLoad(_no_text(model))
        self.rollback_kind = Rollback(self.handle)
        self.rollback_kind = choose_rollback(self.handle, model, self._decode)
        self._num_evaluated = 0

    @property
    def length(self) -> int:
        """The number of tokens in the memory."""
        return len(self.tokens)

    def count_known(self, tokens: Sequence[int]) -> int:
        """Return how many leading tokens of this text are in the memory."""
        shorter = min(len(self.tokens), len(tokens))
        ours = np.asarray(self.tokens[:shorter], dtype=np.int64)
        differs = (ours != np.asarray(tokens[:shorter], dtype=np.int64)).nonzero()[0]
        return int(differs[0]) if differs.size else shorter

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
        num_cached = self._num_evaluated
        if on_progress:
            on_progress(num_cached, len(tokens))
        self.tokens = list(tokens[:num_cached])
        while len(self.tokens) < len(tokens):
            place = len(self.tokens)
            self.evaluate(tokens[place : place + self._chunk], 0)
            if on_progress:
                on_progress(len(self.tokens), len(tokens))
        if num_cached < len(tokens):  # passes without logits: a GPU may still be at work on them,
            api.llama_synchronize(self.handle)  # and the next pass would be charged for that
        self.rollback_kind.keep(self._num_evaluated)
        return num_cached

    def mark(self) -> None:
        """Allow a rollback to here, which for some memories costs a copy of their state."""
        self._require_open()
        if len(self.tokens) - self._num_evaluated > LONGEST_REPLAY:
            self._catch_up()
        self.rollback_kind.mark(self._num_evaluated)

    def evaluate(self, tokens: Sequence[int], num_rows: int) -> Rows:
        """Append tokens; return the logits after each of the last `num_rows`, as views.

        Raises Cancelled when aborted and EngineFailed when llama.cpp fails; the memory is then as
        it was.
        """
        if num_rows > self.longest_draft + 1:
            raise ValueError(f"num_rows must be at most {self.longest_draft + 1}, not {num_rows}")
        try:
            missing = self.tokens[self._num_evaluated :]
            if missing and len(missing) + len(tokens) > self.longest_replay:
                self._catch_up()  # all rows must come from one pass
                missing = []
            self._decode([*missing, *tokens] if missing else tokens, num_rows)
            rows = self._rows(num_rows)
        except BaseException:
            self._forget(len(self.tokens))
            raise
        self.tokens.extend(tokens)
        return rows

    def rollback(self, length: int) -> None:
        """Keep the first `length` tokens."""
        self._require_open()
        if length >= self._num_evaluated:
            self.rollback_kind.settle()
        self._forget(length)
        del self.tokens[length:]

    def close(self) -> None:
        """Free the memory; closing twice does nothing."""
        if self.handle is not None:
            self._rows_at = (None, [])
            api.llama_free(self.handle)
            self.handle = None

    def __exit__(self, *_: object) -> None:
        self.close()

    def _catch_up(self) -> None:
        """Evaluate the tokens that wait since a rollback to a saved state."""
        while missing := self.tokens[self._num_evaluated :]:
            self._decode(missing[: self.longest_replay], 0)

    def _decode(self, tokens: Sequence[int], num_rows: int) -> None:
        """Evaluate tokens that follow those evaluated so far, in as many passes as that takes."""
        while len(tokens) > self._chunk:
            self._pass(tokens[: self._chunk], 0)
            tokens = tokens[self._chunk :]
        if tokens:
            self._pass(tokens, num_rows)

    def _pass(self, tokens: Sequence[int], num_rows: int) -> None:
        """Evaluate tokens in one pass; the last `num_rows` give logits."""
        self._require_open()
        count = len(tokens)
        self._batch.fill(tokens, num_rows)
        self._num_last = 0
        try:
            result = api.llama_decode(self.handle, self._batch.native)
        except BaseException:  # Ctrl+C arrives after the pass: it may be in the memory
            self._undo(count)
            raise
        if result != DONE:
            self._fail(result, count)
        self._num_evaluated += count  # no call between the pass and its bookkeeping
        self._num_last = count
        if self.listener:
            start = self._num_evaluated - count
            self.listener.after_pass(start, tokens, is_prompt=not num_rows)

    def _require_open(self) -> None:
        if self.handle is None:
            raise EngineFailed("the engine is closed: load it again")

    def _forget(self, length: int) -> None:
        """Remove what was evaluated after `length` tokens from llama.cpp's memory."""
        present = self._num_evaluated
        if length < present and self.handle is not None:
            self._num_evaluated = self.rollback_kind.to(length, present, self._num_last)
            self._num_last = 0  # the states of that pass cannot be used again
        if self.listener:
            self.listener.after_rollback(length)

    def _undo(self, count: int) -> None:
        """Bring the memory to a known state after an unfinished pass over `count` tokens."""
        length = self._num_evaluated
        self._num_evaluated = self.rollback_kind.to(length, length + count, 0)

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

    def _rows(self, num_rows: int) -> Rows:
        """Return views of llama.cpp's logits, each of shape (vocabulary,)."""
        if num_rows == 0:
            return ()
        address = logits_address(self.handle)  # waits for the pass to end
        known, rows = self._rows_at
        if address != known or len(rows) < num_rows:
            if not address:
                raise EngineFailed(_no_text(self.model))
            values = (ctypes.c_float * (num_rows * self.vocabulary_size)).from_address(address)
            rows = list(np.ctypeslib.as_array(values).reshape(num_rows, self.vocabulary_size))
            self._rows_at = (address, rows)
        return rows[:num_rows]


class Batch:
    """llama.cpp's batch, made once; positions and the sequence are left to llama.cpp."""

    def __init__(self, size: int) -> None:
        self._tokens: Any = (api.llama_token * size)()
        self._outputs = (ctypes.c_int8 * size)()
        self._filled = (0, 0)
        self.native = api.llama_batch(token=self._tokens, logits=self._outputs)

    def fill(self, tokens: Sequence[int], num_rows: int) -> None:
        """Fill in tokens; the last `num_rows` give logits."""
        count = len(tokens)
        self._tokens[:count] = tokens
        if self._filled != (count, num_rows):
            self._filled = (count, num_rows)
            self._outputs[:count] = [place >= count - num_rows for place in range(count)]
            self.native.n_tokens = count


def _make(
    model: Model, options: ModelOptions, shape: ContextShape, target: object, hook: Any
) -> object:
    parameters = api.llama_context_default_params()
    if hook:
        parameters.cb_eval = hook
    parameters.ctx_other = target
    if target and not model.sizes.kind.has_encoder:
        parameters.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
    parameters.n_ctx = shape.ctx
    parameters.n_batch = shape.batch
    parameters.n_ubatch = shape.ubatch
    wanted = options.flash_attention if shape.flash else "off"
    parameters.flash_attn_type = FLASH_ATTENTION[wanted]
    parameters.n_seq_max = 1
    parameters.n_outputs_max = shape.num_rows
    parameters.n_rs_seq = shape.num_steps_back
    parameters.n_threads = parameters.n_threads_batch = num_threads(model.path, options.threads)
    parameters.type_k = CACHE_TYPES[shape.key_type]
    parameters.type_v = CACHE_TYPES[shape.value_type]
    parameters.swa_full = False  # a sliding window's cache holds the window only
    parameters.no_perf = True
    last_errors()
    handle = api.llama_init_from_model(model.handle, parameters)
    if handle is None:
        reason = " ".join(last_errors()[-2:]) or "llama.cpp gave no reason"
        is_type = "cache" in reason and "type" in reason
        advice = "another --cache-type-k or -v" if is_type else "a smaller one with --ctx"
        kind = OutOfMemory if is_no_memory(reason) else ModelWontLoad
        raise kind(
            f"no context of {shape.ctx} tokens for {model.path.name}: {reason}; choose {advice}"
        )
    return handle


def _no_text(model: Model) -> str:
    return f"{model.path.name} is not a text-generation model: choose a chat model"
