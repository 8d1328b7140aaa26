"""Values in files for which llama.cpp ends the process, rather than refuse the file."""

from collections.abc import Iterable

from specchat.gguf import reduced_vocabulary
from specchat.gguf.header import Header, Tensor
from specchat.gguf.tensor_types import STORED_TYPES

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
        if is_wrong and tensor.name != reduced_vocabulary.MAP:
            return f"{header.name} has the tensor {tensor.name} in the type {kind}"
    return None


def why_rotation_unusable(header: Header) -> str | None:
    """Return which rotation of queries and keys does not fit their length."""
    heads = header.own("attention.head_count")
    usual = header.own("embedding_length") // heads if heads > 0 else 0
    for window in ("", "_swa"):
        length = header.own(f"attention.key_length{window}", usual)
        rotated = header.own(f"rope.dimension_count{window}", length)
        if rotated % 2 or not 0 < rotated <= length:
            return f"{header.name} rotates {rotated} of {length} numbers of each attention head"
    return None
