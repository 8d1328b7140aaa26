"""A probe of llama.cpp on this machine: it decodes small batches of a quantised model.

Run as `python -m specchat.llama.probe MODEL.gguf [gpu]` in a child process, because native code may
crash: a build can use an instruction that the CPU announces but does not have.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import llama_cpp.llama_cpp as api

from specchat.errors import EngineFailed, ModelNotFound, ModelWontLoad, SpecchatError
from specchat.llama.child_process import ProbeReport

__all__ = ["LARGEST_BATCH", "main", "probe"]

LARGEST_BATCH = 16
"""The kernels for quantised weights change with the batch size; 1 to 16 tokens use all of them."""
ALL_LAYERS = 999
FAILED, USAGE_ERROR = 1, 2
NO_LOG = api.llama_log_callback(lambda _level, _text, _data: None)
"""Lives as long as llama.cpp may call it."""


def probe(path: Path, *, on_gpu: bool = False) -> ProbeReport:
    """Decode batches of 1 to 16 tokens on the CPU, or with all layers on the GPU.

    Native code that cannot run kills the process.
    """
    if not path.is_file():
        raise ModelNotFound(f"{path}: no such file; name a model to decode with")
    _start_silently()
    with _model(path, ALL_LAYERS if on_gpu else 0) as model, _context(model) as context:
        memory = api.llama_get_memory(context)
        vocabulary = api.llama_vocab_n_tokens(api.llama_model_get_vocab(model))
        sizes = range(1, LARGEST_BATCH + 1)
        for size in sizes:
            api.llama_memory_clear(memory, False)
            _decode(context, size, vocabulary)
        system = (api.llama_print_system_info() or b"").decode("utf-8", "replace").strip()
    return ProbeReport(str(path), len(sizes), sum(sizes), system)


def main(arguments: list[str]) -> int:
    """Probe a model and print the report as one line of JSON; return the exit code."""
    if not arguments or arguments[1:] not in ([], ["gpu"]):
        print("usage: python -m specchat.llama.probe MODEL.gguf [gpu]", file=sys.stderr)
        return USAGE_ERROR
    try:
        report = probe(Path(arguments[0]), on_gpu=len(arguments) == 2)
    except SpecchatError as error:
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    print(json.dumps(asdict(report)))
    return 0


def _start_silently() -> None:
    """Keep llama.cpp's log off the screen, from its first line to its last."""
    api.llama_log_set(NO_LOG, ctypes.c_void_p())
    api.llama_backend_init()


@contextmanager
def _model(path: Path, num_gpu_layers: int) -> Iterator[api.llama_model_p]:
    options = api.llama_model_default_params()
    options.n_gpu_layers = num_gpu_layers
    model = api.llama_model_load_from_file(os.fsencode(path), options)
    if model is None:
        raise ModelWontLoad(f"llama.cpp cannot load {path}; try another GGUF file")
    try:
        yield model
    finally:
        api.llama_model_free(model)


@contextmanager
def _context(model: api.llama_model_p) -> Iterator[api.llama_context_p]:
    options = api.llama_context_default_params()
    options.n_ctx = 256
    options.n_batch = options.n_ubatch = LARGEST_BATCH
    context = api.llama_init_from_model(model, options)
    if context is None:
        raise ModelWontLoad("llama.cpp cannot create a context; free some memory and try again")
    try:
        yield context
    finally:
        api.llama_free(context)


def _decode(context: api.llama_context_p, size: int, vocabulary: int) -> None:
    """Evaluate one batch and check its last row of logits."""
    tokens = (api.llama_token * size)(*(1 + index % (vocabulary - 1) for index in range(size)))
    code = api.llama_decode(context, api.llama_batch_get_one(tokens, size))
    if code != 0:
        raise EngineFailed(f"llama_decode of {size} tokens returned {code}")
    row = api.llama_get_logits_ith(context, -1)
    if not all(math.isfinite(row[index]) for index in range(vocabulary)):
        raise EngineFailed(f"llama_decode of {size} tokens gave logits that are not finite")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
