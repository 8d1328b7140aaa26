"""Writing the files, whole and damaged."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Literal

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Stored
from gguf import quants

from scripts.support.tiny_gguf.shapes import (
    ARCHITECTURES,
    WITH_IMAGES,
    WITH_POSITIONS,
    Shape,
    add_hyperparameters,
    tensors,
)
from scripts.support.tiny_gguf.vocabulary import CONTROLS, Vocabulary, add_vocabulary
from scripts.support.tiny_gguf.weights import Mixture, Weights, make_tensor, silence

Quantisation = Literal["f32", "f16", "q8_0", "q4_0"]
STORED: dict[Quantisation, Stored] = {
    "f32": Stored.F32,
    "f16": Stored.F16,
    "q8_0": Stored.Q8_0,
    "q4_0": Stored.Q4_0,
}
PLAIN = {Stored.F32: np.float32, Stored.F16: np.float16, Stored.I64: np.int64}
ALIGNMENT = 32
# llama.cpp's operators on these want float32, and abort the process otherwise.
ALWAYS_F32 = (
    "norm",
    "ssm_a",
    "ssm_d",
    "conv1d",
    "shortconv.conv",
    "ffn_gate_inp",
    ".bias",
    "conv_base",
)


def write_model(
    path: Path,
    architecture: str,
    *,
    seed: int = 0,
    vocabulary: Vocabulary | int = 320,
    num_layers: int = 4,
    num_kept_layers: int | None = None,
    perturb: float = 0.0,
    quantisation: Quantisation = "f32",
    context_length: int = 512,
    tokenizer: bool = True,
    sliding_window: int = 24,
    width: int = 64,
    feed_forward: int = 128,
    head_width: int = 16,
    state: int = 16,
    can_end: bool = False,
    is_head_only: bool = False,
    metadata: Mapping[str, str] | None = None,
) -> Path:
    """Write a tiny model of `architecture` (a key of ARCHITECTURES) to `path`, and return it.

    Another `seed` is another model: a draft that is wrong. The same seed with `perturb` near
    HALF_RIGHT[architecture] is a draft that is half right; with `num_kept_layers`, a draft made
    of the target's first layers. `vocabulary` may be just a size. `can_end` lets the end-of-turn
    token be as probable as any other; without it, it is next to never drawn. Keep two layers or
    more of a hybrid: with one kind of layer missing, llama.cpp aborts the process. `is_head_only`
    writes the prediction head of a qwen35 model without the model. `metadata` adds texts by key.
    """
    known = {**ARCHITECTURES, **WITH_POSITIONS, **WITH_IMAGES}
    if architecture not in known:
        raise ValueError(f"no tiny {architecture}; there are {', '.join(known)}")
    words = Vocabulary(size=vocabulary) if isinstance(vocabulary, int) else vocabulary
    words = replace(words, tokenizer=tokenizer and words.tokenizer)
    shape = Shape(
        vocabulary=words.size,
        num_layers=num_kept_layers or num_layers,
        width=width,
        feed_forward=feed_forward,
        head_width=head_width,
        state=state,
        sliding_window=sliding_window,
        is_head_only=is_head_only,
        num_positions=context_length,
    )
    writer = gguf.GGUFWriter(path, architecture)
    for key, text in {"general.name": f"tiny {architecture} {seed}", **(metadata or {})}.items():
        writer.add_string(key, text)
    writer.add_context_length(context_length)
    add_hyperparameters(writer, architecture, shape)
    add_vocabulary(writer, words)
    silent = tuple(token for token in range(len(CONTROLS)) if token != words.eos or not can_end)
    mixture = Mixture(seed, perturb)
    for name, size in tensors(architecture, shape):
        weights = make_tensor(mixture, architecture, name, size)
        if name == "output.weight":
            silence(weights, silent)
        add_tensor(writer, name, weights, STORED[quantisation])
    finish(writer)
    return path


def write_big_vocabulary(path: Path, *, seed: int = 0, perturb: float = 0.0) -> Path:
    """Write a llama of 152 000 tokens and two narrow layers: work per token is all vocabulary."""
    return write_model(
        path,
        "llama",
        seed=seed,
        perturb=perturb,
        vocabulary=152_000,
        num_layers=2,
        width=32,
        feed_forward=64,
        quantisation="q8_0",
        tokenizer=False,
    )


def truncate(path: Path, fraction: float) -> Path:
    """Cut the file to `fraction` of its bytes, as an interrupted download does."""
    with path.open("r+b") as file:
        file.truncate(int(path.stat().st_size * fraction))
    return path


def add_tensor(writer: gguf.GGUFWriter, name: str, weights: Weights, stored: Stored) -> None:
    """Add a tensor in a type, or in float32 where llama.cpp wants that."""
    stored = _stored(name, weights.shape, stored)
    data = quants.quantize(weights, stored)
    writer.add_tensor(name, data, raw_dtype=stored)


def finish(writer: gguf.GGUFWriter) -> None:
    """Write the file and close it."""
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def write_hollow(
    path: Path,
    architecture: str,
    shape: Shape,
    *,
    quantisation: Quantisation = "f16",
    is_tied: bool = False,
    context_length: int = 131_072,
) -> Path:
    """Write a model of any size whose weights are zero, as a hole in the file: at once.

    Only the last byte is not, for a file that ends in a hole is an unfinished download. It has no
    tokenizer. `is_tied` leaves the output matrix out, so that the embeddings serve.
    """
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"hollow {architecture}")
    writer.add_context_length(context_length)
    add_hyperparameters(writer, architecture, shape)
    add_vocabulary(writer, Vocabulary(size=shape.vocabulary, tokenizer=False))
    written = (
        (name, size, _stored(name, size, STORED[quantisation]))
        for name, size in tensors(architecture, shape)
        if not (is_tied and name == "output.weight")
    )
    return finish_hollow(path, writer, written)


def finish_hollow(
    path: Path, writer: gguf.GGUFWriter, tensors: Iterable[tuple[str, tuple[int, ...], Stored]]
) -> Path:
    """Write a file whose weights are a hole, and close it; the tensors are names, shapes, types."""
    num_bytes = 0
    for name, size, stored in tensors:
        values, per_block = gguf.GGML_QUANT_SIZES[stored]
        taken = math.prod(size) // values * per_block
        plain = PLAIN.get(stored)
        kept = size if plain else quants.quant_shape_to_byte_shape(size, stored)
        writer.add_tensor_info(name, kept, np.dtype(plain or np.uint8), taken, raw_dtype=stored)
        num_bytes += -(-taken // ALIGNMENT) * ALIGNMENT
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    length = -(-path.stat().st_size // ALIGNMENT) * ALIGNMENT + num_bytes
    with path.open("r+b") as file:
        file.seek(length - 1)
        file.write(b"\1")
    return path


def _stored(name: str, size: tuple[int, ...], wanted: Stored) -> Stored:
    """The type of a tensor in a file of the type `wanted`."""
    if name == "d2t":
        return Stored.I64
    is_f32 = len(size) == 1 or any(part in name for part in ALWAYS_F32) or size[-1] % 32
    return Stored.F32 if is_f32 else wanted
