"""Loads GGUF models: checks them first, reports progress, can be stopped, and explains failures."""

import ctypes
import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager
from copy import copy
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, get_args
from weakref import WeakValueDictionary

from specchat.errors import ModelWontLoad, OutOfMemory
from specchat.gguf.header import Header
from specchat.gguf.model_files import read_whole_model
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.gguf.unfinished_file import AGAIN
from specchat.llama.image_cells import ImageIndex
from specchat.llama.library import api, last_errors, start
from specchat.llama.memory_lock import lock_notice
from specchat.llama.remote_devices import devices_for
from specchat.llama.tokenizer import Vocabulary
from specchat.llama.weight_placement import Override, weights_on_host
from specchat.options.declarations import CacheType
from specchat.planning.context_shape import ModelOptions
from specchat.planning.memory import Sizes

if TYPE_CHECKING:
    from specchat.llama.vision import ImageReader

ALL_LAYERS = 999
LOAD_MODES = {(False, False): 0, (True, False): 1, (False, True): 2, (True, True): 3}
"""llama.cpp's load mode by (memory-mapped, locked)."""
CACHE_TYPES: dict[str, int] = {
    kind.name: number for number, kind in STORED_TYPES.items() if kind.name in get_args(CacheType)
}
"""ggml's numbers of the types a KV cache may have."""

UNKNOWN = {
    "unknown model architecture": "architecture",
    "unknown pre-tokenizer type": "pre-tokenizer",
    "unknown tokenizer": "tokenizer",
}
"""llama.cpp's errors about files that are newer than itself, with a word for what they name."""


class Model(AbstractContextManager["Model"]):
    """A loaded model: header, weights and vocabulary. Close it after its contexts.

    Its contexts can read the `images`, which prompts have by the first ids of their cells. They are
    made by `vision`, None without a projector.
    """

    vision: "ImageReader | None" = None

    def __init__(
        self,
        path: Path,
        options: ModelOptions,
        on_progress: Callable[[float], object] | None = None,
        sizes: Sizes | None = None,
    ) -> None:
        """Load a GGUF file; `sizes` saves reading them again.

        `on_progress` is called with the share loaded so far, 0 to 1; an exception from it stops
        loading and is raised here. Raises ModelNotFound, and ModelWontLoad (or its subclass
        OutOfMemory) with llama.cpp's reason.
        """
        self.path = path
        self.sizes = sizes or Sizes(read_whole_model(path))
        self.header = self.sizes.header
        start()
        self._overrides = weights_on_host(options.kept)  # as long as the model
        self.handle = _load(self.header, options, on_progress, self._overrides)
        self.lock_notice = lock_notice(self.header.name, last_errors()) if options.mlock else ""
        if api.llama_model_has_encoder(self.handle) and not self.sizes.kind.has_encoder:
            self.close()
            raise ModelWontLoad(f"{path}: encoder-decoder models are not supported")
        self.vocabulary = Vocabulary(self.handle)
        self.images: ImageIndex = WeakValueDictionary()

    @cached_property
    def input_width(self) -> int:
        """The width of what it reads in place of tokens."""
        return int(api.llama_model_n_embd_inp(self.handle))

    @cached_property
    def width(self) -> int:
        """The width of its layers' inputs."""
        return int(api.llama_model_n_embd(self.handle))

    @cached_property
    def hidden_width(self) -> int:
        """The width of its last layer's hidden states."""
        return int(api.llama_model_n_embd_out(self.handle))

    @property
    def window(self) -> int:
        """The size of the sliding attention window, 0 for a model without one."""
        return int(api.llama_model_n_swa(self.handle))

    def part(self, sizes: Sizes) -> "Model":
        """Return a part of this model as a model of its own, which is freed with this one."""
        part = copy(self)
        part.sizes, part.header = sizes, sizes.header
        return part

    def close(self) -> None:
        """Free the weights; closing twice does nothing."""
        if self.vision is not None:
            self.vision.close()
        if self.handle is not None:
            api.llama_model_free(self.handle)
            self.handle = None

    def __exit__(self, *_: object) -> None:
        self.close()


def _load(
    header: Header,
    options: ModelOptions,
    on_progress: Callable[[float], object] | None,
    overrides: "ctypes.Array[Override] | None",
) -> object:
    path = header.path
    raised: BaseException | None = None

    def progress(share: float, _: object) -> bool:
        nonlocal raised
        try:
            if on_progress:
                on_progress(share)
        except BaseException as error:  # must not pass through llama.cpp  # noqa: BLE001
            raised = error
        return raised is None

    parameters = api.llama_model_default_params()
    callback = api.llama_progress_callback(progress)
    parameters.progress_callback = callback
    if options.gpu_layers is None:
        parameters.n_gpu_layers = ALL_LAYERS
    else:  # llama.cpp counts the heads after the last layer
        parameters.n_gpu_layers = options.gpu_layers and options.gpu_layers + header.num_heads
    parameters.load_mtp = options.with_head
    parameters.vocab_only = options.vocabulary_only
    parameters.load_mode = LOAD_MODES[options.mmap, options.mlock]
    if options.vocabulary_only:  # else llama.cpp asks each GPU what is free, which takes memory
        devices = (ctypes.c_void_p * 1)()
        parameters.devices = ctypes.cast(devices, ctypes.c_void_p)
    elif options.workers:
        devices = devices_for(options.workers)
        parameters.devices = ctypes.cast(devices, ctypes.c_void_p)
    parameters.use_extra_bufts = options.is_repacked
    if overrides:
        parameters.tensor_buft_overrides = ctypes.cast(overrides, ctypes.c_void_p)
    split = (ctypes.c_float * int(api.llama_max_devices()))(*options.tensor_split)
    if options.tensor_split:
        parameters.tensor_split = split
    last_errors()
    handle = api.llama_model_load_from_file(os.fsencode(path), parameters)
    if raised is not None:
        if handle is not None:
            api.llama_model_free(handle)
        raise raised
    if handle is None:
        errors = " ".join(last_errors())
        if is_no_memory(errors):
            raise OutOfMemory(
                f"not enough memory for {path}: choose a smaller quantization or fewer --gpu-layers"
            )
        raise ModelWontLoad(_reason(path, errors))
    return handle


def is_no_memory(errors: str) -> bool:
    """Return True if llama.cpp's errors report a failed allocation."""
    return any(word in errors for word in ("alloc", "out of memory", "failed to reserve"))


def _reason(path: Path, errors: str) -> str:
    """Return one line for llama.cpp's last errors, with advice."""
    if "not within the file bounds" in errors or "failed to read" in errors:
        return f"{path} is damaged or incomplete: {AGAIN}"
    for what, name in UNKNOWN.items():
        if what in errors:
            quoted = errors.split(f"{what}:")[1].split("'")[1:2]
            return (
                f"{path}: this llama.cpp does not support the {name} {''.join(quoted)}: update"
                " specchat, or choose another model or another conversion of it"
            )
    detail = errors.rpartition("error loading model:")[2].partition("llama_model_load")[0].strip()
    detail = re.sub(r"^error loading model \w+: ", "", detail)
    return (
        f"llama.cpp cannot load {path}: {detail or 'it gave no reason'}; update specchat, or choose"
        " another conversion of the model"
    )
