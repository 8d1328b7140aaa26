"""The size of a trained draft or head, its metadata, and the weights it begins with."""

from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from specchat.errors import SpecchatError
from specchat.gguf.header import Header
from specchat.gguf.reader import read_part
from specchat.gguf.tensor_types import STORED_TYPES
from specchat.gguf.writer import BLOCK, Value

if TYPE_CHECKING:
    from specchat.derivation.draft_network import Shape
    from specchat.derivation.head_network import HeadShape

TRAINABLE = frozenset({"llama", "qwen3", "qwen3moe", "qwen35", "qwen35moe", "gpt-oss"})
"""Architectures of targets for which a head can be trained."""
DRAFT_SHARE, HEAD_SHARE = 0.14, 0.16
"""The size of a draft and of a head: bytes that a pass reads, as a share of the target's.

Here such a pass takes 0.06 of the target's time: smaller matrices are faster.
"""
LAYERS, HEAD_WIDTH = 3, 64
LEAST_WIDTH, LARGEST_WIDTH = 128, 512
BYTES_PER_WEIGHT, BYTES_PER_HEAD_WEIGHT = 18 / 32, 34 / 32
EMBEDDING, OUTPUT, NORM = "token_embd.weight", "output.weight", "output_norm.weight"
READABLE = {
    *("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0"),
    *("q2_K", "q3_K", "q4_K", "q5_K", "q6_K", "tq1_0", "tq2_0", "mxfp4", "nvfp4"),
    *("iq2_xxs", "iq2_xs", "iq2_s", "iq3_xxs", "iq3_s", "iq1_s", "iq1_m", "iq4_nl", "iq4_xs"),
}
"""Types of tensors that the Python package gguf can read."""
LEAST_LAYERS = 4
"""The fewest layers of a target with a head, which reads three different ones."""
LEAST_DRAFTED = 8192
"""The number of tokens that a head can draft, if the vocabulary has as many."""


def draft_shape(header: Header) -> "Shape":
    """Return the widest network whose pass reads at most DRAFT_SHARE of the target's bytes."""
    from specchat.derivation.draft_network import Shape

    vocabulary = header.tensors["token_embd.weight"].shape[1]
    most = DRAFT_SHARE * _bytes_of_pass(header) / BYTES_PER_WEIGHT
    widths = range(LARGEST_WIDTH, LEAST_WIDTH, -2 * HEAD_WIDTH)
    fitting = (width for width in widths if width * (vocabulary + 12 * LAYERS * width) <= most)
    width = next(fitting, LEAST_WIDTH)
    heads, feed_forward = width // HEAD_WIDTH, width * 8 // 3 // HEAD_WIDTH * HEAD_WIDTH
    return Shape(vocabulary, width, LAYERS, heads, heads // 3 or 1, feed_forward)


def _bytes_of_pass(header: Header) -> float:
    return header.file_bytes * header.active_share


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


def can_have_head(header: Header) -> bool:
    """Return True if a head can be trained for a target: its sizes and tensors are standard."""
    width, heads = header.own("embedding_length"), header.own("attention.head_count")
    shared, usual = header.own("attention.head_count_kv"), width // max(1, heads)
    sizes = (width, heads, shared, header.own("attention.key_length", usual))
    readable = all(
        tensor is None or STORED_TYPES[tensor.stored].name in READABLE
        for tensor in map(header.tensors.get, (EMBEDDING, OUTPUT, NORM))
    )
    has_tensors = {EMBEDDING, NORM} <= header.tensors.keys()
    is_usual = min(sizes) > 0 and width % BLOCK == sizes[3] % BLOCK == heads % max(1, shared) == 0
    is_deep = header.num_layers >= LEAST_LAYERS and not header.num_heads
    return header.architecture in TRAINABLE and is_deep and is_usual and has_tensors and readable


def head_layers(header: Header) -> tuple[int, int, int]:
    """Return the layers whose inputs a head reads: an early, a middle and the last one."""
    middle, last = header.num_layers // 2, header.num_layers - 1
    return min(2, middle - 1), middle, last


def head_shape(header: Header) -> "HeadShape":
    """Return the sizes of a head with attention like the target's and a vocabulary of a quarter.

    Its feed-forward network is as wide as HEAD_SHARE allows.
    """
    from specchat.derivation.head_network import HeadShape

    vocabulary = header.tensors["token_embd.weight"].shape[1]
    drafted = max(vocabulary // 4, min(vocabulary, LEAST_DRAFTED)) // BLOCK * BLOCK
    width, heads = header.own("embedding_length"), header.own("attention.head_count")
    kv_heads = header.own("attention.head_count_kv", heads)
    head_width = header.own("attention.key_length", width // heads)
    attention = (3 * heads + 4 * kv_heads) * head_width * width
    most = int(HEAD_SHARE * _bytes_of_pass(header) / BYTES_PER_HEAD_WEIGHT)
    room = most - (drafted + 3 * width) * width - attention
    widest = max(width, min(4 * width, room // (3 * width) // BLOCK * BLOCK))
    return HeadShape(width, heads, kv_heads, head_width, widest, drafted)


def num_head_weights(header: Header) -> int:
    """Return how many numbers the training of a head keeps, with the target's embedding."""
    tokens = header.tensors[EMBEDDING].shape[1]
    width, drafted = header.own("embedding_length"), tokens // 4
    return width * (tokens // 8 + drafted + 3 * 4 * width + 10 * width)


def head_metadata(header: Header, shape: "HeadShape") -> dict[str, Value]:
    """Return a head's metadata in a GGUF file."""
    from specchat.derivation.draft_network import NORM_EPSILON, ROPE_BASE

    values: dict[str, Value] = {
        "context_length": header.training_context,
        "embedding_length": shape.width,
        "block_count": 1,
        "feed_forward_length": shape.feed_forward,
        "attention.head_count": shape.heads,
        "attention.head_count_kv": shape.kv_heads,
        "attention.key_length": shape.head_width,
        "attention.value_length": shape.head_width,
        "rope.dimension_count": shape.head_width,
        "rope.freq_base": ROPE_BASE,
        "attention.layer_norm_rms_epsilon": NORM_EPSILON,
        "target_layers": head_layers(header),
        "target_hidden_size": shape.width,
        "norm_before_fc": True,
    }
    return {
        "general.architecture": "eagle3",
        "general.file_type": 7,
        **{f"eagle3.{key}": value for key, value in values.items()},
    }


def weights_of(header: Header, name: str) -> NDArray[np.float32]:
    """Return a target's tensor as numbers, of shape (tokens, width) or (width,).

    Raises SpecchatError for one of a type that Python cannot read.
    """
    from gguf import GGMLQuantizationType, quants

    for path in header.parts:
        part = read_part(path)
        if tensor := part.tensors.get(name):
            with path.open("rb") as file:
                file.seek(part.data_position + tensor.offset)
                data = np.frombuffer(file.read(tensor.num_bytes), np.uint8)
            rows = data.reshape(*tensor.shape[:0:-1], -1)
            with suppress(NotImplementedError, ValueError):  # a type that gguf cannot read
                kind = GGMLQuantizationType(tensor.stored)
                return quants.dequantize(rows, kind).astype(np.float32, copy=False)
    raise SpecchatError(f"no draft can be trained for {header.name}: {name} is unreadable")
