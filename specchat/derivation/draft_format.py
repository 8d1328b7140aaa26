"""The size of a trained draft, its metadata, and the embedding it begins with."""

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specchat.errors import SpecchatError
from specchat.gguf.header import Header
from specchat.gguf.reader import read_part

if TYPE_CHECKING:
    from specchat.derivation.draft_network import Shape

DRAFT_SHARE = 0.14
"""The size of a draft: bytes that a pass reads, as a share of the target's.

Here such a pass takes 0.06 of the target's time: q4_0 is fast.
"""
LAYERS, HEAD_WIDTH = 3, 64
LEAST_WIDTH, LARGEST_WIDTH = 128, 512
BYTES_PER_WEIGHT = 18 / 32


def draft_shape(header: Header) -> "Shape":
    """Return the widest network whose pass reads at most DRAFT_SHARE of what the target's does."""
    from specchat.derivation.draft_network import Shape

    vocabulary = header.tensors["token_embd.weight"].shape[1]
    most = DRAFT_SHARE * header.file_bytes * header.active_share / BYTES_PER_WEIGHT
    widths = range(LARGEST_WIDTH, LEAST_WIDTH, -2 * HEAD_WIDTH)
    fitting = (each for each in widths if each * (vocabulary + 12 * LAYERS * each) <= most)
    width = next(fitting, LEAST_WIDTH)
    heads, feed_forward = width // HEAD_WIDTH, width * 8 // 3 // HEAD_WIDTH * HEAD_WIDTH
    return Shape(vocabulary, width, LAYERS, heads, heads // 3 or 1, feed_forward)


def network_metadata(shape: "Shape", name: str) -> dict[str, str | int | float]:
    """Return a network's metadata in a GGUF file."""
    from specchat.derivation.draft_network import NORM_EPSILON, ROPE_BASE

    sizes: dict[str, int | float] = {
        "vocab_size": shape.vocabulary,
        "context_length": shape.context,
        "embedding_length": shape.width,
        "block_count": shape.layers,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "rope.dimension_count": shape.head_width,
        "rope.freq_base": ROPE_BASE,
        "attention.layer_norm_rms_epsilon": NORM_EPSILON,
    }
    return {
        "general.architecture": "llama",
        "general.name": name,
        "general.file_type": 2,
        **{f"llama.{key}": size for key, size in sizes.items()},
    }


def embedding_of(header: Header) -> NDArray[np.float32]:
    """Return a target's embedding, of shape (vocabulary, width)."""
    from gguf import GGMLQuantizationType, quants

    for path in header.parts:
        part = read_part(path)
        if tensor := part.tensors.get("token_embd.weight"):
            with path.open("rb") as file:
                file.seek(part.data_place + tensor.offset)
                data = np.frombuffer(file.read(tensor.num_bytes), np.uint8)
            rows = data.reshape(tensor.shape[1], -1)
            with suppress(NotImplementedError, ValueError):  # a type that gguf cannot read
                kind = GGMLQuantizationType(tensor.stored)
                return quants.dequantize(rows, kind).astype(np.float32)
    raise SpecchatError(f"no draft can be trained for {header.name}: its embedding is unreadable")
