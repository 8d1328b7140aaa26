"""The layout of a model's layers: the sizes of their caches, states and computations.

The rules are those of llama.cpp's `load_hparams` and `create_memory` (src/llama-model.cpp), applied
to the file's metadata and, where layers of an architecture differ, to its tensors.
"""

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from specchat.gguf.header import Header, Tensor
from specchat.gguf.sliding_windows import layers_with_window, window_of

MOST_LAYERS = 4096
BLOCK = re.compile(r"blk\.(\d{1,4})\.(.+)")
BOTH_KINDS = frozenset({"falcon-h1"})
"""Hybrids with both attention and a recurrent state in every layer."""
INDEXED = frozenset({"deepseek32", "glm-dsa"})
"""Architectures with an indexer that chooses the tokens to attend to."""
COMPRESSING, OVERLAPPING = "deepseek4", 4
"""An architecture that keeps keys of a window, and compressed ones, which serve as values, too.
Compressed keys of so many tokens are also made of as many tokens before those, and indexed."""
RECURRENT = ("ssm_", "shortconv", "time_mix")
STEPS_BACK = frozenset(
    {
        *("qwen35", "qwen35moe", "qwen4exp", "nemotron_h", "nemotron_h_moe", "lfm2", "lfm2moe"),
        *("bailingmoe3", "deepseek4", "glm5-next", "kimi-k3"),
    }
)
"""Architectures that can keep the states of their last tokens, for a rollback."""
RECURRENT_KINDS = STEPS_BACK | {
    *("mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7", "jamba", "falcon-h1", "plamo2"),
    *("granitehybrid", "qwen3next", "kimi-linear", "minimax-01"),
}
"""Architectures with a recurrent state, alone or beside attention."""


@dataclass(frozen=True, slots=True)
class Layer:
    """The sizes of one layer, counted in numbers.

    The KV cache holds `num_keys` and `num_values` per token, only for tokens in the window if
    `is_windowed`. `num_states` does not depend on the context. An indexer, which chooses the tokens
    to attend to, keeps `num_index_keys` per token. A pass needs `num_queries`, `feed_forward` and
    `num_recurrent` numbers per token, and scores per head. A layer that compresses the keys of
    `ratio` tokens into one keeps `num_compressed` numbers for these.
    """

    num_keys: int = 0
    num_values: int = 0
    is_windowed: bool = False
    num_states: int = 0
    num_heads: int = 0
    num_queries: int = 0
    feed_forward: int = 0
    num_recurrent: int = 0
    num_index_keys: int = 0
    ratio: int = 0
    num_compressed: int = 0


@dataclass(frozen=True, slots=True)
class ModelLayout:
    """A model's layers; `window` is the sliding window in tokens, 0 without one."""

    layers: tuple[Layer, ...]
    width: int
    vocabulary: int
    training_context: int
    window: int
    is_recurrent: bool
    """Whether any layer keeps a recurrent state."""
    steps_back: bool
    """Whether it can keep the recurrent states of its last tokens."""
    num_positions: int = 0
    """The size of a table of absolute positions, 0 without one."""
    head_widths: tuple[tuple[int, int], ...] = ()
    """The values per head of keys and of values, for layers without and with a window."""


def layout_of(header: Header) -> ModelLayout:
    """Return the layout of a model; values that the file lacks count as 0."""
    count = max(0, min(header.num_layers, MOST_LAYERS) - header.own("nextn_predict_layers"))
    blocks = blocks_of(header)
    window = window_of(header)
    embedding = header.tensors.get("token_embd.weight")
    return ModelLayout(
        layers=tuple(
            _layer(header, blocks.get(number, {}), number, is_windowed=is_windowed)
            for number, is_windowed in enumerate(layers_with_window(header, count))
        ),
        width=header.own("embedding_length"),
        vocabulary=embedding.shape[-1] if embedding else header.own("vocab_size"),
        training_context=header.training_context,
        window=window,
        is_recurrent=header.architecture in RECURRENT_KINDS,
        steps_back=header.architecture in STEPS_BACK,
        num_positions=header.num_positions,
        head_widths=_widths_of_all(header, window),
    )


def blocks_of(header: Header) -> Mapping[int, Mapping[str, Tensor]]:
    """Return the tensors of each block by their names in it."""
    blocks: dict[int, dict[str, Tensor]] = defaultdict(dict)
    for tensor in header.tensors.values():
        match = BLOCK.fullmatch(tensor.name)
        if match:
            blocks[int(match[1])][match[2]] = tensor
    return blocks


def _layer(
    header: Header, tensors: Mapping[str, Tensor], number: int, *, is_windowed: bool
) -> Layer:
    is_recurrent = any(name.startswith(RECURRENT) for name in tensors)
    has_attention = not is_recurrent or header.architecture in BOTH_KINDS
    num_sharing = header.own("attention.shared_kv_layers")  # the last layers share a KV cache
    num_own_caches = 20 if header.architecture == "gemma3n" else header.num_layers - num_sharing
    has_attention &= number < num_own_caches
    heads = _of_layer(header, "attention.head_count", number)
    key_heads = _of_layer(header, "attention.head_count_kv", number, heads) * has_attention
    suffix = "_swa" if is_windowed else ""
    key_width, value_width = _head_widths(header, heads, suffix)
    is_compressed = header.architecture == COMPRESSING and header.draft_kind == "model"
    has_values = not is_compressed and header.own("attention.key_length_mla") < 1
    ratio = _of_layer(header, "attention.compress_ratios", number) * is_compressed
    index_width = header.own("attention.indexer.key_length")
    num_compressed = key_width + index_width * (ratio == OVERLAPPING) if ratio else 0
    has_indexer = header.architecture in INDEXED and "indexer.proj.weight" in tensors
    return Layer(
        num_keys=key_heads * key_width,
        num_values=key_heads * value_width * has_values,
        is_windowed=is_windowed,
        num_states=_num_states(header) if is_recurrent else _to_compress(ratio, num_compressed),
        num_heads=heads if key_heads else 0,
        num_queries=heads * header.own("attention.key_length_mla", key_width),
        feed_forward=_feed_forward(header, tensors),
        num_recurrent=_num_recurrent(header, tensors) if is_recurrent else 0,
        num_index_keys=index_width * has_indexer,
        ratio=ratio,
        num_compressed=num_compressed,
    )


def _head_widths(header: Header, heads: int, suffix: str) -> tuple[int, int]:
    usual = header.own("embedding_length") // max(1, heads)
    keys, values = "attention.key_length", "attention.value_length"
    return (
        header.own(f"{keys}{suffix}", header.own(keys, usual)),
        header.own(f"{values}{suffix}", header.own(values, usual)),
    )


def _widths_of_all(header: Header, window: int) -> tuple[tuple[int, int], ...]:
    heads = _of_layer(header, "attention.head_count", 0)
    suffixes = ("", "_swa") if window else ("",)
    return tuple(_head_widths(header, heads, suffix) for suffix in suffixes) if heads else ()


def _of_layer(header: Header, key: str, number: int, default: int = 0) -> int:
    """Return a layer's value of a key, which has one value for all layers or one for each."""
    value = header.metadata.get(f"{header.architecture}.{key}")
    if isinstance(value, tuple) and number < len(value):
        own = value[number]
        return max(0, own) if isinstance(own, int) else default
    return max(0, header.own(key, default))


def _num_states(header: Header) -> int:
    """Return the size of a layer's recurrent state, convolution included."""
    width = header.own("embedding_length")
    if head := header.own("wkv.head_size"):
        return width * (header.own("token_shift_count", 2) + head)
    if short := header.own("shortconv.l_cache"):
        return width * (short - 1)
    kernel = header.own("ssm.conv_kernel")
    if head := header.own("kda.head_dim"):
        heads = _of_layer(header, "attention.head_count", 0)
        return 3 * (max(kernel, 4) - 1) * heads * head + head * head * heads
    inner, state = header.own("ssm.inner_size"), header.own("ssm.state_size")
    convolved = inner + 2 * header.own("ssm.group_count") * state
    return max(0, kernel - 1) * convolved + state * inner


def _to_compress(ratio: int, num_compressed: int) -> int:
    """Return the size of what a layer keeps of its last tokens, to compress their keys."""
    return 2 * ratio * num_compressed * (4 if ratio == OVERLAPPING else 1)


def _feed_forward(header: Header, tensors: Mapping[str, Tensor]) -> int:
    """Return the numbers per token of a feed-forward block in a pass, as measured.

    The outputs of a mixture's experts take the place of their inner values where they fit.
    """
    used = header.own("expert_used_count")
    total = 0
    for name, times in (("", 1), ("_exps", used), ("_shexp", 1)):
        ins = [tensors.get(f"ffn_{part}{name}.weight") for part in ("gate", "up", "gate_up")]
        inner = sum(tensor.shape[1] for tensor in ins if tensor and len(tensor.shape) > 1)
        out = tensors.get(f"ffn_down{name}.weight")
        width, given = out.shape[:2] if out and len(out.shape) > 1 else (0, 0)
        if name != "_shexp":
            total += times * inner
        total += times * width
        if name == "_exps" and given > inner:
            total += times * given
    return total


def _num_recurrent(header: Header, tensors: Mapping[str, Tensor]) -> int:
    """Return the numbers per token of a recurrent block in a pass, as measured."""
    if "shortconv.in_proj.weight" in tensors or "ssm_conv1d.weight" not in tensors:
        return 5 * header.own("embedding_length")
    inner = header.own("ssm.inner_size")
    convolved = tensors["ssm_conv1d.weight"].shape[-1]
    if "ssm_beta.weight" in tensors or "ssm_ba.weight" in tensors:
        return 4 * convolved
    return 2 * inner + 4 * convolved
