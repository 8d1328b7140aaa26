"""llama.cpp's context: the passes over one or several texts, and what they give."""

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np

from specchat.decoding.distribution import Logits
from specchat.errors import Cancelled, ContextFull, EngineFailed, ModelWontLoad, OutOfMemory
from specchat.llama.batch import Batch
from specchat.llama.device_list import has_gpus
from specchat.llama.hidden_states import (
    HiddenStates,
    hidden_states_of,
    keep_hidden_states,
    keep_layer_inputs,
    layer_inputs_of,
    use_head,
)
from specchat.llama.library import STOPPED, AbortFlag, api, last_errors, logits_address
from specchat.llama.model import CACHE_TYPES, Model, is_no_memory
from specchat.planning.cache_types import require_cache_type
from specchat.planning.context_shape import ContextShape, ModelOptions, shape_context
from specchat.planning.host_resources import num_threads

DONE, NO_ROOM, ABORTED = 0, 1, 2
"""What llama_decode returns; anything negative is a failure."""
BRIEF_CHUNK = 32
"""The tokens of a pass over a prompt on a CPU while other texts wait: nearly as fast as longer
ones. On a GPU short passes would be much slower."""
FLASH_ATTENTION = {"auto": -1, "off": 0, "on": 1}


@dataclass(frozen=True, slots=True)
class BesideTarget:
    """How a head's context is attached to its target's, and the width of the states that it reads.

    A state is read together with a token, or without `has_tokens` in place of one.
    """

    target: Any
    """llama.cpp's handle of the target's context."""
    width: int
    has_tokens: bool = True


class NativeContext(AbstractContextManager["NativeContext"]):
    """One of llama.cpp's contexts. Which texts its memory holds, their TextMemory knows.

    `chunk` is the most tokens of a pass, `brief_chunk` those of one that should not take long. With
    `is_on_gpu` some of it is on a GPU, here or a worker's. It `reads_images` unless it is beside a
    target, whose states of them are all that it gets.
    """

    def __init__(
        self,
        model: Model,
        options: ModelOptions,
        abort: AbortFlag | None = None,
        beside: BesideTarget | None = None,
        shape: ContextShape | None = None,
    ) -> None:
        """Create a context; `beside` is for a head's. Raises ModelWontLoad if memory is short.

        Raises InvalidOption for a KV cache type that the model does not support. The `shape`
        follows from the options unless it is given.
        """
        self.model = model
        self._abort = abort or AbortFlag()
        require_cache_type(model.sizes, options)
        is_on_gpu = options.gpu_layers != 0 and (bool(options.workers) or has_gpus())
        shape = shape or shape_context(model.sizes.layout, options, is_on_gpu=is_on_gpu)
        self.shape = shape
        self.handle: Any = _make(model, options, shape, beside)
        self._abort.attach(self.handle)
        self.is_longest = shape.ctx == model.sizes.layout.num_positions
        # One micro-batch per pass: to make room in a sliding window's cache for a later one,
        # llama.cpp may drop tokens that an earlier one still attends to.
        self.chunk = int(api.llama_n_ubatch(self.handle))
        self.is_on_gpu = is_on_gpu
        self.brief_chunk = self.chunk if is_on_gpu else min(BRIEF_CHUNK, self.chunk)
        self._beside = beside
        self.reads_images = beside is None
        self.gives_all_logits = model.sizes.kind.gives_all_logits
        self._rows_at: tuple[int | None, list[Logits]] = (None, [])
        if not api.llama_get_memory(self.handle):
            self.close()
            raise ModelWontLoad(_no_text(model))

    def new_batch(self, sequence: int) -> Batch:
        """Return a batch for the passes over one text."""
        if beside := self._beside:
            width, has_tokens = beside.width, beside.has_tokens
            return Batch(self.chunk, width, has_tokens=has_tokens, sequence=sequence)
        return Batch(self.chunk, sequence=sequence)

    def new_image_batch(self, sequence: int) -> Batch:
        """Return a batch for the passes over images of one text."""
        return Batch(
            self.chunk, self.model.input_width, has_tokens=False, num_parts=4, sequence=sequence
        )

    @contextmanager
    def non_causal(self) -> Iterator[None]:
        """Let the tokens of a pass attend to those behind them, too."""
        api.llama_set_causal_attn(self.handle, False)
        try:
            yield
        finally:
            api.llama_set_causal_attn(self.handle, True)

    def require_open(self) -> None:
        """Raise EngineFailed once it is closed."""
        if self.handle is None:
            raise EngineFailed("the engine is closed: load it again")

    def require_wanted(self) -> None:
        """Raise Cancelled if the answer was stopped."""
        if self._abort.is_set():
            raise Cancelled(STOPPED)

    def run(self, batch: Batch) -> None:
        """Evaluate a filled batch in one pass.

        Raises Cancelled when aborted, ContextFull without room, and EngineFailed. What the memory
        then holds of the batch is not known.
        """
        self.require_open()
        result = api.llama_decode(self.handle, batch.native)
        if result != DONE:
            self._fail(result)

    def encode(self, batch: Batch) -> HiddenStates:
        """Return the model's encoding of a batch of hidden states, shape (tokens, width)."""
        self.require_open()
        result = api.llama_encode(self.handle, batch.native)
        if result != DONE:
            self._fail(result)
        return hidden_states_of(self.handle, batch.count, self.model.hidden_width)

    def logits(self, count: int) -> list[Logits]:
        """Return the `count` rows of logits of the last pass, as views: (vocabulary,) each."""
        address = logits_address(self.handle)  # waits for the pass to end
        last, rows = self._rows_at
        if address != last or len(rows) < count:
            if not address:
                raise EngineFailed(_no_text(self.model))
            size = self.model.vocabulary.size
            values: Any = (ctypes.c_float * (count * size)).from_address(address)
            rows = list(np.ctypeslib.as_array(values).reshape(count, size))
            self._rows_at = (address, rows)
        return rows

    def keep_hidden_states(self, layers: Sequence[int] = (), *, of_outputs: bool = False) -> None:
        """From now on, keep the last layer's output of each pass, or the inputs of some layers.

        With `of_outputs`, the output is kept for tokens with logits alone.
        """
        if layers:
            keep_layer_inputs(self.handle, layers)
        else:
            keep_hidden_states(self.handle, of_outputs=of_outputs)

    def use_head(self, number: int) -> None:
        """From now on, run the prediction head with this number, from 0 on."""
        use_head(self.handle, number)

    def hidden_states(self, count: int) -> HiddenStates:
        """Return the last layer's output of the last pass over `count` tokens, (tokens, width)."""
        return hidden_states_of(self.handle, count, self.model.hidden_width)

    def layer_inputs(self, layers: Sequence[int], count: int) -> HiddenStates:
        """Return the layers' inputs of that pass side by side: (tokens, layers * width)."""
        return layer_inputs_of(self.handle, layers, count, self.model.width)

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

    def _fail(self, result: int) -> NoReturn:
        """Raise an error that says why a pass failed."""
        if result == ABORTED:
            raise Cancelled(STOPPED)
        if result == NO_ROOM:
            advice = "start a new chat" if self.is_longest else "choose a larger one with --ctx"
            raise ContextFull(f"the context is full: {advice}")
        reason = " ".join(last_errors()[-2:]) or f"code {result}"
        raise EngineFailed(f"llama.cpp failed to evaluate a batch: {reason}; try --gpu-layers 0")


def _make(
    model: Model, options: ModelOptions, shape: ContextShape, beside: BesideTarget | None
) -> object:
    parameters = api.llama_context_default_params()
    if beside:
        parameters.ctx_other = beside.target
    if beside and not model.sizes.kind.has_encoder:
        parameters.ctx_type = api.LLAMA_CONTEXT_TYPE_MTP
    parameters.n_ctx = shape.num_texts * shape.ctx
    parameters.n_batch = shape.batch
    parameters.n_ubatch = shape.ubatch
    wanted = options.flash_attention if shape.flash else "off"
    parameters.flash_attn_type = FLASH_ATTENTION[wanted]
    parameters.n_seq_max = shape.num_texts + shape.num_branches
    parameters.kv_unified = shape.num_branches > 0
    parameters.n_outputs_max = shape.num_rows_in_all
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
