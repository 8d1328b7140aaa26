"""Models that people run, as GGUF files without weights: sizes and types of all their tensors.

The sizes are those of the models' public configurations. The types follow llama.cpp's recipe for
each quantization (`llama_tensor_get_type` in src/llama-quant.cpp), so that the sums are those of
the published files, to two percent: a test compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
from gguf import GGMLQuantizationType as Stored

from scripts.support.tiny_gguf.vocabulary import Vocabulary, add_vocabulary
from scripts.support.tiny_gguf.writing import finish_hollow

K_BLOCK = 256
RECIPES = {
    "Q4_K_M": (Stored.Q4_K, Stored.Q6_K, Stored.Q4_K),
    "Q4_0": (Stored.Q6_K, Stored.Q6_K, Stored.Q4_0),
    "MXFP4": (Stored.Q8_0, Stored.Q8_0, Stored.MXFP4),
}
"""The types of embeddings, of the output and of other matrices, by quantization; Q4_K_M stores
some of the latter in more bits."""
FALLBACKS = {Stored.Q4_K: Stored.Q5_0, Stored.Q5_K: Stored.Q5_1, Stored.Q6_K: Stored.Q8_0}
"""What is used for rows that do not fill whole blocks of 256."""
Tensors = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, kw_only=True)
class Model:
    """A model: its configuration, the quantization of its file, and the published size in GB.

    With `period`, each period's last layer has full attention; in the others there is a sliding
    `window`, with heads of `window_head` values, or else a recurrent state (gated delta nets of
    `num_values` heads). `global_kv` is the number of heads of keys where attention is full, if it
    differs. `dense` layers come before the experts. `rest` is the type of all that is neither
    experts nor embeddings, where it has one of its own.
    """

    name: str
    architecture: str
    quantisation: str
    published: float | None
    vocabulary: int
    num_layers: int
    width: int
    heads: int
    kv_heads: int
    head: int
    forward: int = 0
    experts: int = 0
    experts_used: int = 0
    expert_forward: int = 0
    shared_forward: int = 0
    dense: int = 0
    period: int = 0
    window: int = 0
    window_head: int = 0
    global_kv: int = 0
    num_values: int = 0
    is_tied: bool = False
    rest: Stored | None = None
    context: int = 131_072

    def is_full(self, layer: int) -> bool:
        """Return True for a layer whose attention sees the whole text."""
        return not self.period or layer % self.period == self.period - 1


STATE, GROUPS, CONVOLUTION = 128, 16, 4
"""The gated delta nets of all Qwen3.5 to 3.8."""
QWEN3: dict[str, Any] = {"vocabulary": 151_936, "head": 128, "architecture": "qwen3"}
QWEN35: dict[str, Any] = {"vocabulary": 248_320, "head": 256, "period": 4, "context": 262_144}
GEMMA4: dict[str, Any] = {
    "architecture": "gemma4",
    "quantisation": "Q4_0",
    "vocabulary": 262_144,
    "head": 512,
    "window_head": 256,
    "period": 6,
    "window": 1024,
    "is_tied": True,
    "context": 262_144,
}
GPT_OSS: dict[str, Any] = {
    "architecture": "gpt-oss",
    "quantisation": "MXFP4",
    "rest": Stored.Q8_0,
    "vocabulary": 201_088,
    "width": 2880,
    "heads": 64,
    "kv_heads": 8,
    "head": 64,
    "experts_used": 4,
    "expert_forward": 2880,
    "period": 2,
    "window": 128,
}
MODELS: tuple[Model, ...] = (
    Model(
        name="Qwen3 8B", quantisation="Q4_K_M", published=5.03, num_layers=36, width=4096,
        heads=32, kv_heads=8, forward=12_288, **QWEN3,
    ),
    Model(
        name="Mistral Small 3.2 24B", architecture="llama", quantisation="Q4_K_M", published=14.3,
        vocabulary=131_072, num_layers=40, width=5120, heads=32, kv_heads=8, head=128,
        forward=32_768,
    ),
    Model(
        name="Qwen3.8 27B", architecture="qwen35", quantisation="Q4_K_M", published=None,
        num_layers=64, width=5120, heads=24, kv_heads=4, forward=17_408, num_values=48, **QWEN35,
    ),
    Model(
        name="Gemma 4 31B", published=None, num_layers=60, width=5376, heads=32, kv_heads=16,
        global_kv=4, forward=21_504, **GEMMA4,
    ),
    Model(
        name="Qwen3 32B", quantisation="Q4_K_M", published=19.76, num_layers=64, width=5120,
        heads=64, kv_heads=8, forward=25_600, **QWEN3,
    ),
    Model(
        name="Llama 3.3 70B", architecture="llama", quantisation="Q4_K_M", published=42.5,
        vocabulary=128_256, num_layers=80, width=8192, heads=64, kv_heads=8, head=128,
        forward=28_672,
    ),
    Model(
        name="gpt-oss 20B", published=12.11, num_layers=24, experts=32, **GPT_OSS,
    ),
    Model(
        name="Gemma 4 26B-A4B", published=14.24, num_layers=30, width=2816, heads=16, kv_heads=8,
        global_kv=2, forward=2112, experts=128, experts_used=8, expert_forward=704, **GEMMA4,
    ),
    Model(
        name="Qwen3 30B-A3B", quantisation="Q4_K_M", published=18.56, num_layers=48, width=2048,
        heads=32, kv_heads=4, experts=128, experts_used=8, expert_forward=768,
        **QWEN3 | {"architecture": "qwen3moe"},
    ),
    Model(
        name="Qwen3.6 35B-A3B", architecture="qwen35moe", quantisation="Q4_K_M", published=22.13,
        num_layers=40, width=2048, heads=16, kv_heads=2, experts=256, experts_used=8,
        expert_forward=512, shared_forward=512, num_values=32, rest=Stored.Q8_0, **QWEN35,
    ),
    Model(
        name="gpt-oss 120B", published=63.4, num_layers=36, experts=128, **GPT_OSS,
    ),
    Model(
        name="GLM-4.5-Air", architecture="glm4moe", quantisation="Q4_K_M", published=None,
        vocabulary=151_552, num_layers=46, width=4096, heads=96, kv_heads=8, head=128,
        forward=10_944, experts=128, experts_used=8, expert_forward=1408, shared_forward=1408,
        dense=1,
    ),
)  # fmt: skip


def write_header(folder: Path, model: Model) -> Path:
    """Write the file of a model into a folder; its weights are a hole, which takes no disk."""
    path = folder / f"{model.name.replace(' ', '-')}.gguf"
    kind = model.architecture
    writer = gguf.GGUFWriter(path, kind)
    writer.add_name(model.name)
    writer.add_context_length(model.context)
    writer.add_block_count(model.num_layers)
    writer.add_embedding_length(model.width)
    writer.add_feed_forward_length(model.forward or model.expert_forward)
    writer.add_head_count(model.heads)
    layers = range(model.num_layers)
    each = [_kv_heads(model, layer) for layer in layers]
    writer.add_head_count_kv(each if model.global_kv else model.kv_heads)
    writer.add_key_length(model.head)
    writer.add_value_length(model.head)
    writer.add_layer_norm_rms_eps(1e-6)
    if model.window:
        writer.add_sliding_window(model.window)
    if model.window_head:
        writer.add_sliding_window_pattern([not model.is_full(layer) for layer in layers])
        for part in ("key", "value"):
            writer.add_uint32(f"{kind}.attention.{part}_length_swa", model.window_head)
        writer.add_rope_dimension_count_swa(model.window_head)
    if model.experts:
        writer.add_expert_count(model.experts)
        writer.add_expert_used_count(model.experts_used)
        writer.add_expert_feed_forward_length(model.expert_forward)
    if model.num_values:
        writer.add_ssm_conv_kernel(CONVOLUTION)
        writer.add_ssm_inner_size(model.num_values * STATE)
        writer.add_ssm_state_size(STATE)
        writer.add_ssm_time_step_rank(model.num_values)
        writer.add_ssm_group_count(GROUPS)
    add_vocabulary(writer, Vocabulary(size=model.vocabulary, tokenizer=False))
    tensors = ((name, size, _stored(model, name, size)) for name, size in _tensors(model))
    return finish_hollow(path, writer, tensors)


def _tensors(model: Model) -> Tensors:
    """Every tensor: its name and NumPy shape, a matrix being (outputs, inputs)."""
    yield "token_embd.weight", (model.vocabulary, model.width)
    yield "output_norm.weight", (model.width,)
    if not model.is_tied:
        yield "output.weight", (model.vocabulary, model.width)
    for layer in range(model.num_layers):
        block = f"blk.{layer}."
        attention = _delta_net if model.num_values and not model.is_full(layer) else _attention
        for name, size in (*attention(model, layer), *_forward(model, layer)):
            yield block + name, size


def _kv_heads(model: Model, layer: int) -> int:
    return model.global_kv if model.global_kv and model.is_full(layer) else model.kv_heads


def _attention(model: Model, layer: int) -> Tensors:
    is_full = model.is_full(layer)
    head = model.head if is_full or not model.window_head else model.window_head
    queries, keys = model.heads * head, _kv_heads(model, layer) * head
    yield "attn_norm.weight", (model.width,)
    yield "attn_q.weight", (queries * (2 if model.num_values else 1), model.width)
    yield "attn_k.weight", (keys, model.width)
    if not (model.global_kv and is_full):  # there, keys are values, too
        yield "attn_v.weight", (keys, model.width)
    yield "attn_output.weight", (model.width, queries)


def _delta_net(model: Model, _layer: int) -> Tensors:
    inner = model.num_values * STATE
    convolved = inner + 2 * GROUPS * STATE
    yield "attn_norm.weight", (model.width,)
    yield "attn_qkv.weight", (convolved, model.width)
    yield "attn_gate.weight", (inner, model.width)
    yield "ssm_conv1d.weight", (convolved, CONVOLUTION)
    yield "ssm_beta.weight", (model.num_values, model.width)
    yield "ssm_alpha.weight", (model.num_values, model.width)
    yield "ssm_out.weight", (model.width, inner)


def _forward(model: Model, layer: int) -> Tensors:
    """The feed-forward block: dense, experts, or, in Gemma 4, both."""
    has_experts = model.experts > 0 and layer >= model.dense
    inner = model.shared_forward if has_experts and not model.global_kv else model.forward
    kind = "_shexp" if has_experts and not model.global_kv else ""
    if inner:
        yield f"ffn_gate{kind}.weight", (inner, model.width)
        yield f"ffn_up{kind}.weight", (inner, model.width)
        yield f"ffn_down{kind}.weight", (model.width, inner)
    if has_experts:
        count, hidden = model.experts, model.expert_forward
        yield "ffn_gate_inp.weight", (count, model.width)
        yield "ffn_gate_exps.weight", (count, hidden, model.width)
        yield "ffn_up_exps.weight", (count, hidden, model.width)
        yield "ffn_down_exps.weight", (count, model.width, hidden)


def _stored(model: Model, name: str, size: tuple[int, ...]) -> Stored:
    """Return the type of a tensor in a file of the model's quantization."""
    if len(size) == 1 or any(part in name for part in ("norm", "ffn_gate_inp", "conv1d", "ssm_a")):
        return Stored.F32
    embeddings, output, chosen = RECIPES[model.quantisation]
    if name == "token_embd.weight":
        chosen = embeddings
    elif name == "output.weight":
        chosen = output
    elif model.rest is not None and "_exps" not in name:
        chosen = model.rest
    elif model.quantisation == "Q4_K_M" and (".attn_v" in name or ".ffn_down" in name):
        chosen = Stored.Q6_K if _has_more_bits(int(name.split(".")[1]), model) else chosen
    return FALLBACKS.get(chosen, chosen) if size[-1] % K_BLOCK else chosen


def _has_more_bits(layer: int, model: Model) -> bool:
    """Return whether Q4_K_M stores some matrices of a layer as Q6_K."""
    eighth = model.num_layers // 8
    is_outer = layer < eighth or layer >= 7 * model.num_layers // 8
    return is_outer or (layer - eighth) % 3 == 2
