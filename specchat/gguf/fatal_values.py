"""Values in files for which llama.cpp ends the process, rather than refuse the file."""

from collections.abc import Iterable

from specchat.gguf import reduced_vocabulary
from specchat.gguf.header import Header, Tensor
from specchat.gguf.tensor_types import STORED_TYPES

INDICES = frozenset({reduced_vocabulary.MAP, "masked_embd_ordering"})
"""Tensors of token ids: llama.cpp multiplies by none of them, and does not read the second one."""
NO_WEIGHTS = frozenset({"i8", "i16", "i32", "i64", "f64", "q8_1", "q8_K"})
MOST_LAYERS = 512
"""LLAMA_MAX_LAYERS in llama-hparams.h."""


def why_fatal(header: Header) -> str | None:
    """Return which number of a model or a head, None if all can be used."""
    if header.num_layers > MOST_LAYERS:
        return f"it has {header.num_layers} layers, and llama.cpp takes {MOST_LAYERS} at most"
    for kind in ("layer_norm_epsilon", "layer_norm_rms_epsilon"):
        epsilon = header.metadata.get(f"{header.architecture}.attention.{kind}", 0.0)
        if isinstance(epsilon, float) and epsilon < 0:
            return f"its {kind} is {epsilon:g}, less than 0"
    if header.own("full_attention_interval", 1) < 1:
        return "its full_attention_interval is less than 1"
    return None


def why_types_unusable(header: Header, tensors: Iterable[Tensor]) -> str | None:
    """Return which tensor of a head has a type that llama.cpp's operators do not take."""
    for tensor in tensors:
        kind = STORED_TYPES[tensor.stored].name
        is_wrong = kind in NO_WEIGHTS or (len(tensor.shape) == 1 and kind != "f32")
        if is_wrong and tensor.name.removesuffix(".weight") not in INDICES:
            return f"{header.name} has the tensor {tensor.name} in the type {kind}"
    return None


def why_rotation_unusable(header: Header) -> str | None:
    """Return which rotation of queries and keys does not fit their length.

    Layers with a sliding window have the values of the others, unless they have their own.
    """
    heads = header.metadata.get(f"{header.architecture}.attention.head_count")
    first = heads[0] if isinstance(heads, tuple) and heads else heads
    usual = header.own("embedding_length") // first if isinstance(first, int) and first > 0 else 0
    length = header.own("attention.key_length", usual)
    rotated = header.own("rope.dimension_count", length)
    in_window = header.own("attention.key_length_swa", length)
    rotated_in_window = header.own("rope.dimension_count_swa", rotated)
    for number, of_all in ((rotated, length), (rotated_in_window, in_window)):
        if number % 2 or not 0 < number <= of_all:
            return f"{header.name} rotates {number} of {of_all} numbers of each attention head"
    return None
