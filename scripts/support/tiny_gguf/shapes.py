"""What each architecture needs in its file: hyperparameters, and every tensor's shape.

The lists follow `load_arch_hparams` and `load_arch_tensors` of llama.cpp's src/models/*.cpp.
Shapes are NumPy's, the reverse of ggml's: a matrix is (outputs, inputs).
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import gguf

ASSISTANT_LAYERS = 2
NUM_DENSE = 2
INDEXER_HEADS, INDEXER_WIDTH = 2, 64
WIDER_INDEXER = 128
"""That of DeepSeek V4 differs from the width of a head: llama.cpp takes equal ones for the same."""
Tensors = Iterator[tuple[str, tuple[int, ...]]]


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of a tiny model; `width` is a multiple of 32, not all use a `sliding_window`.

    With `has_head` a prediction head (MTP) follows the layers, or several `num_in_turn`; with
    `is_head_only` the layers are left out. An EAGLE-3 draft does not know `num_left_out` of the
    tokens. `num_positions` is the size of a table of absolute positions, which only some have.
    """

    vocabulary: int
    num_layers: int = 4
    width: int = 64
    feed_forward: int = 128
    head_width: int = 16
    sliding_window: int = 24
    num_experts: int = 4
    num_experts_used: int = 2
    state: int = 16
    convolution: int = 4
    has_head: bool = False
    is_head_only: bool = False
    num_in_turn: int = 1
    num_left_out: int = 0
    num_positions: int = 512
    has_own_output: bool = True
    has_own_embedding: bool = False
    block_kind: str = "DFlash"
    """The kind of a block draft: "DFlash", "DSpark", or "DFlash window" with all else it can have.
    """
    eagle_layers: tuple[int, ...] = (1, 2, 3)
    """Layers of the target whose inputs an EAGLE-3 draft reads."""

    @property
    def signs(self) -> list[tuple[int, int]]:
        """The signs of the states that each head in turn reads and gives.

        They differ, so that a head in another's place drafts worse; the last one continues.
        """
        last = self.num_in_turn - 1
        signs, read = list[tuple[int, int]](), 1
        for number in range(last + 1):
            signs.append((read, read if number == last else -read))
            read = signs[-1][1]
        return signs

    @property
    def num_drafted(self) -> int:
        """The tokens that an EAGLE-3 draft knows."""
        return self.vocabulary - self.num_left_out

    @property
    def eagle_heads(self) -> tuple[int, int]:
        """An EAGLE-3 draft's heads of queries and of keys, for three halves of the width."""
        return 3 * self.num_heads, 3 * self.num_heads // 2

    @property
    def assistant_width(self) -> int:
        """The width of an assistant, which must differ from its target's."""
        return self.width + 32

    @property
    def num_heads(self) -> int:
        """Heads that together are as wide as the model; LFM2 takes no other number."""
        return self.width // self.head_width

    @property
    def num_kv_heads(self) -> int:
        """Two query heads share a key head."""
        return max(1, self.num_heads // 2)

    @property
    def inner(self) -> int:
        """Width inside a Mamba block; llama.cpp insists on twice the model's width."""
        return 2 * self.width

    def is_recurrent(self, layer: int) -> bool:
        """Hybrids here have recurrent layers at even indices and attention at odd ones."""
        return layer % 2 == 0

    def is_sliding(self, layer: int) -> bool:
        """Gemma's layers here slide their window at even indices and see all at odd ones."""
        return layer % 2 == 0


def feed_forward(shape: Shape, block: str) -> Tensors:
    """A gated feed-forward block with the norm before it."""
    yield f"{block}.ffn_norm.weight", (shape.width,)
    yield f"{block}.ffn_gate.weight", (shape.feed_forward, shape.width)
    yield f"{block}.ffn_up.weight", (shape.feed_forward, shape.width)
    yield f"{block}.ffn_down.weight", (shape.width, shape.feed_forward)


def experts(shape: Shape, block: str) -> Tensors:
    """A mixture of experts with the norm before it."""
    count, hidden = shape.num_experts, shape.feed_forward // 2
    yield f"{block}.ffn_norm.weight", (shape.width,)
    yield f"{block}.ffn_gate_inp.weight", (count, shape.width)
    yield f"{block}.ffn_gate_exps.weight", (count, hidden, shape.width)
    yield f"{block}.ffn_up_exps.weight", (count, hidden, shape.width)
    yield f"{block}.ffn_down_exps.weight", (count, shape.width, hidden)


def attention(shape: Shape, block: str, *, qk_norm: bool = False, gated: bool = False) -> Tensors:
    """Grouped-query attention; `gated` doubles the query for Qwen3.5's output gate."""
    queries, keys = shape.num_heads * shape.head_width, shape.num_kv_heads * shape.head_width
    yield f"{block}.attn_q.weight", (queries * (2 if gated else 1), shape.width)
    yield f"{block}.attn_k.weight", (keys, shape.width)
    yield f"{block}.attn_v.weight", (keys, shape.width)
    yield f"{block}.attn_output.weight", (shape.width, queries)
    if qk_norm:
        yield f"{block}.attn_q_norm.weight", (shape.head_width,)
        yield f"{block}.attn_k_norm.weight", (shape.head_width,)


def llama_layer(shape: Shape, layer: int) -> Tensors:
    """Llama: plain attention and feed-forward."""
    block = f"blk.{layer}"
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from attention(shape, block)
    yield from feed_forward(shape, block)


def qwen3_layer(shape: Shape, layer: int) -> Tensors:
    """Qwen3: llama with normalised queries and keys."""
    block = f"blk.{layer}"
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from attention(shape, block, qk_norm=True)
    yield from feed_forward(shape, block)


def qwen3moe_layer(shape: Shape, layer: int) -> Tensors:
    """Qwen3 with a mixture of experts."""
    block = f"blk.{layer}"
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from attention(shape, block, qk_norm=True)
    yield from experts(shape, block)


def gemma3_layer(shape: Shape, layer: int) -> Tensors:
    """Gemma 3: norms before and after both blocks; every other layer slides a window."""
    yield from qwen3_layer(shape, layer)
    yield f"blk.{layer}.post_attention_norm.weight", (shape.width,)
    yield f"blk.{layer}.post_ffw_norm.weight", (shape.width,)


def mamba_layer(shape: Shape, layer: int) -> Tensors:
    """Mamba 1: nothing but a recurrent state."""
    block, inner, rank = f"blk.{layer}", shape.inner, shape.num_heads
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield f"{block}.ssm_in.weight", (2 * inner, shape.width)
    yield f"{block}.ssm_conv1d.weight", (inner, shape.convolution)
    yield f"{block}.ssm_conv1d.bias", (inner,)
    yield f"{block}.ssm_x.weight", (rank + 2 * shape.state, inner)
    yield f"{block}.ssm_dt.weight", (inner, rank)
    yield f"{block}.ssm_dt.bias", (inner,)
    yield f"{block}.ssm_a", (inner, shape.state)
    yield f"{block}.ssm_d", (inner,)
    yield f"{block}.ssm_out.weight", (shape.width, inner)


def granitehybrid_layer(shape: Shape, layer: int) -> Tensors:
    """Granite hybrid: Mamba 2 and attention in turn; needs checkpoints to roll back."""
    block = f"blk.{layer}"
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from mamba2(shape, block) if shape.is_recurrent(layer) else attention(shape, block)
    yield from feed_forward(shape, block)


def mamba2(shape: Shape, block: str) -> Tensors:
    """A Mamba 2 block without the norm before it."""
    inner, heads, convolved = shape.inner, shape.num_heads, shape.inner + 2 * shape.state
    yield f"{block}.ssm_in.weight", (inner + convolved + heads, shape.width)
    yield f"{block}.ssm_conv1d.weight", (convolved, shape.convolution)
    yield f"{block}.ssm_conv1d.bias", (convolved,)
    yield f"{block}.ssm_dt.bias", (heads,)
    yield f"{block}.ssm_a", (heads, 1)
    yield f"{block}.ssm_d", (heads, 1)
    yield f"{block}.ssm_norm.weight", (1, inner)
    yield f"{block}.ssm_out.weight", (shape.width, inner)


def lfm2_layer(shape: Shape, layer: int) -> Tensors:
    """LFM2: short convolutions and attention in turn; rolls back by `n_rs_seq`."""
    block = f"blk.{layer}"
    yield f"{block}.attn_norm.weight", (shape.width,)
    if shape.is_recurrent(layer):
        yield f"{block}.shortconv.conv.weight", (shape.width, shape.convolution)
        yield f"{block}.shortconv.in_proj.weight", (3 * shape.width, shape.width)
        yield f"{block}.shortconv.out_proj.weight", (shape.width, shape.width)
    else:
        yield from attention(shape, block, qk_norm=True)
    yield from feed_forward(shape, block)


def qwen35_layer(shape: Shape, layer: int) -> Tensors:
    """Qwen3.5: gated delta nets and gated attention in turn; rolls back by `n_rs_seq`."""
    block, values = f"blk.{layer}", shape.num_heads * shape.state
    yield f"{block}.attn_norm.weight", (shape.width,)
    if shape.is_recurrent(layer):
        convolved = values + 2 * shape.num_kv_heads * shape.state
        yield f"{block}.attn_qkv.weight", (convolved, shape.width)
        yield f"{block}.attn_gate.weight", (values, shape.width)
        yield f"{block}.ssm_conv1d.weight", (convolved, shape.convolution)
        yield f"{block}.ssm_dt.bias", (shape.num_heads,)
        yield f"{block}.ssm_a", (shape.num_heads,)
        yield f"{block}.ssm_beta.weight", (shape.num_heads, shape.width)
        yield f"{block}.ssm_alpha.weight", (shape.num_heads, shape.width)
        yield f"{block}.ssm_norm.weight", (shape.state,)
        yield f"{block}.ssm_out.weight", (shape.width, values)
    else:
        yield from attention(shape, block, qk_norm=True, gated=True)
    for name, size in feed_forward(shape, block):
        yield name.replace("ffn_norm", "post_attention_norm"), size


def qwen35moe_layer(shape: Shape, layer: int) -> Tensors:
    """Qwen3.5 with a mixture of experts, one of them shared."""
    block, hidden = f"blk.{layer}", shape.feed_forward // 2
    dense = {"ffn_gate", "ffn_up", "ffn_down"}
    for name, size in qwen35_layer(shape, layer):
        if name.split(".")[2] not in dense:
            yield name, size
    yield from (each for each in experts(shape, block) if not each[0].endswith("ffn_norm.weight"))
    yield f"{block}.ffn_gate_inp_shexp.weight", (shape.width,)
    yield from shared_expert(block, shape.width, hidden)


def shared_expert(block: str, width: int, hidden: int) -> Tensors:
    """The expert that every token uses."""
    yield f"{block}.ffn_gate_shexp.weight", (hidden, width)
    yield f"{block}.ffn_up_shexp.weight", (hidden, width)
    yield f"{block}.ffn_down_shexp.weight", (width, hidden)


def glm4moe_layer(shape: Shape, layer: int) -> Tensors:
    """GLM-4.5: attention and a mixture of experts with a shared one; the first layer is dense."""
    block = f"blk.{layer}"
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from attention(shape, block, qk_norm=True)
    forward = experts(shape, block) if layer else feed_forward(shape, block)
    for name, size in forward:
        yield name.replace("ffn_norm", "post_attention_norm"), size
    if layer:
        yield f"{block}.exp_probs_b.bias", (shape.num_experts,)
        yield from shared_expert(block, shape.width, shape.feed_forward // 2)


def hy_v3_layer(shape: Shape, layer: int) -> Tensors:
    """Hunyuan 3: as GLM-4.5, with other names for two tensors."""
    for name, size in glm4moe_layer(shape, layer):
        own = name.replace("post_attention_norm", "ffn_norm")
        yield own.replace("exp_probs_b.bias", "exp_probs_b"), size


def cohere2moe_layer(shape: Shape, layer: int) -> Tensors:
    """Command A: attention beside the experts, with one norm for both; two dense layers."""
    block = f"blk.{layer}"
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from attention(shape, block)
    forward = experts(shape, block) if layer >= NUM_DENSE else feed_forward(shape, block)
    yield from (each for each in forward if not each[0].endswith("ffn_norm.weight"))
    if layer >= NUM_DENSE:
        yield from shared_expert(block, shape.width, shape.feed_forward // 2)


def deepseek2_layer(shape: Shape, layer: int) -> Tensors:
    """DeepSeek V3: attention to a latent vector, half as wide as the model; then as GLM-4.5."""
    block, heads, head = f"blk.{layer}", shape.num_heads, shape.head_width
    latent = shape.width // 2
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield f"{block}.attn_q_a.weight", (latent, shape.width)
    yield f"{block}.attn_q_a_norm.weight", (latent,)
    yield f"{block}.attn_q_b.weight", (2 * heads * head, latent)
    yield f"{block}.attn_kv_a_mqa.weight", (latent + head, shape.width)
    yield f"{block}.attn_kv_a_norm.weight", (latent,)
    yield f"{block}.attn_k_b.weight", (heads, latent, head)
    yield f"{block}.attn_v_b.weight", (heads, head, latent)
    yield f"{block}.attn_output.weight", (shape.width, heads * head)
    for name, size in glm4moe_layer(shape, layer):
        if ".attn_" not in name:
            yield name.replace("post_attention_norm", "ffn_norm"), size


def deepseek32_layer(shape: Shape, layer: int) -> Tensors:
    """DeepSeek V3.2: as V3, with an indexer that chooses the tokens to attend to."""
    block = f"blk.{layer}"
    yield from deepseek2_layer(shape, layer)
    yield f"{block}.indexer.k_norm.weight", (INDEXER_WIDTH,)
    yield f"{block}.indexer.k_norm.bias", (INDEXER_WIDTH,)
    yield f"{block}.indexer.proj.weight", (INDEXER_HEADS, shape.width)
    yield f"{block}.indexer.attn_k.weight", (INDEXER_WIDTH, shape.width)
    yield f"{block}.indexer.attn_q_b.weight", (INDEXER_HEADS * INDEXER_WIDTH, shape.width // 2)


def bailingmoe3_layer(shape: Shape, layer: int) -> Tensors:
    """Ling 3: Kimi's delta attention and gated latent attention in turn."""
    block, heads = f"blk.{layer}", shape.num_heads
    if not shape.is_recurrent(layer):
        yield f"{block}.attn_gate.weight", (heads, shape.width)
        yield from deepseek2_layer(shape, layer)
        return
    inner = heads * shape.head_width
    for each in ("q", "k", "v"):
        yield f"{block}.attn_{each}.weight", (inner, shape.width)
        yield f"{block}.ssm_conv1d_{each}.weight", (1, inner, 1, shape.convolution)
    yield f"{block}.ssm_f_a.weight", (inner, shape.width)
    yield f"{block}.ssm_g_a.weight", (inner, shape.width)
    yield f"{block}.ssm_beta.weight", (heads, shape.width)
    yield f"{block}.ssm_a", (heads, 1)
    yield f"{block}.ssm_dt.bias", (inner,)
    yield f"{block}.ssm_norm.weight", (shape.head_width,)
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield f"{block}.attn_output.weight", (shape.width, inner)
    yield from (each for each in deepseek2_layer(shape, layer) if ".attn_" not in each[0])


def nemotron_kind(layer: int) -> str:
    """Nemotron-H has one of three blocks in each layer, here in turn."""
    return ("attention", "recurrent", "experts")[layer % 3]


def nemotron_layer(shape: Shape, layer: int) -> Tensors:
    """Nemotron-H: attention without positions, Mamba 2 or experts; rolls back by `n_rs_seq`."""
    yield from _nemotron_layer(shape, layer, squared_experts)


def dense_nemotron_layer(shape: Shape, layer: int) -> Tensors:
    """The same without experts."""
    yield from _nemotron_layer(shape, layer, squared)


def _nemotron_layer(
    shape: Shape, layer: int, feed_forward: Callable[[Shape, str], Tensors]
) -> Tensors:
    block, blocks = f"blk.{layer}", {"attention": attention, "recurrent": mamba2}
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from blocks.get(nemotron_kind(layer), feed_forward)(shape, block)


def squared(shape: Shape, block: str) -> Tensors:
    """A feed-forward part without gates."""
    hidden = shape.feed_forward // 2
    yield f"{block}.ffn_up.weight", (hidden, shape.width)
    yield f"{block}.ffn_down.weight", (shape.width, hidden)


def squared_experts(shape: Shape, block: str) -> Tensors:
    """Experts without gates, one of them shared; the others read half the width."""
    count, hidden, latent = shape.num_experts, shape.feed_forward // 2, shape.width // 2
    yield f"{block}.ffn_gate_inp.weight", (count, shape.width)
    yield f"{block}.exp_probs_b.bias", (count,)
    yield f"{block}.ffn_latent_down.weight", (latent, shape.width)
    yield f"{block}.ffn_latent_up.weight", (shape.width, latent)
    yield f"{block}.ffn_up_exps.weight", (count, hidden, latent)
    yield f"{block}.ffn_down_exps.weight", (count, latent, hidden)
    yield f"{block}.ffn_up_shexp.weight", (hidden, shape.width)
    yield f"{block}.ffn_down_shexp.weight", (shape.width, hidden)


def nemotron_head(shape: Shape, block: str) -> Tensors:
    """The layer of Nemotron-H's head: attention, then experts."""
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from attention(shape, block)
    yield f"{block}.post_attention_norm.weight", (shape.width,)
    yield from squared_experts(shape, block)
    yield f"{block}.nextn.shared_head_norm.weight", (shape.width,)


def muse_layer(shape: Shape, layer: int) -> Tensors:
    """Muse Glimmer: Gemma's norms, and a gate of the attention."""
    inner = shape.num_heads * shape.head_width
    yield f"blk.{layer}.attn_gate.weight", (inner, shape.width)
    yield from gemma3_layer(shape, layer)


def minimax_01_layer(shape: Shape, layer: int) -> Tensors:
    """MiniMax-01: attention with positions, or with a state, in turn; then experts."""
    block, inner = f"blk.{layer}", shape.num_heads * shape.head_width
    yield f"{block}.attn_norm.weight", (shape.width,)
    if layer % 2:
        yield from attention(shape, block)
    else:
        yield f"{block}.attn_norm_2.weight", (inner,)
        yield f"{block}.attn_qkv.weight", (3 * inner, shape.width)
        yield f"{block}.attn_gate.weight", (inner, shape.width)
        yield f"{block}.attn_output.weight", (shape.width, inner)
    yield from experts(shape, block)


def gemma4_layer(shape: Shape, layer: int) -> Tensors:
    """Gemma 4: as Gemma 3, with factors of the positions where attention sees all."""
    yield from gemma3_layer(shape, layer)
    if layer == 1:
        yield "rope_freqs.weight", (shape.head_width // 2,)


def assistant(shape: Shape) -> Tensors:
    """The whole assistant of a gemma4 model: a head that reads the target's last two layers."""
    both = 2 * shape.width
    yield "token_embd.weight", (shape.vocabulary, shape.assistant_width)
    yield "output_norm.weight", (shape.assistant_width,)
    yield "rope_freqs.weight", (shape.head_width // 2,)
    yield "nextn.pre_projection.weight", (shape.assistant_width, both)
    yield "nextn.post_projection.weight", (shape.width, shape.assistant_width)
    own = replace(shape, width=shape.assistant_width)
    for layer in range(ASSISTANT_LAYERS):
        for name, size in gemma3_layer(own, layer):
            kind = name.split(".")[2]
            queries = shape.num_heads * shape.head_width
            if kind == "attn_q":
                yield name, (queries, size[1])
            elif kind == "attn_output":
                yield name, (size[0], queries)
            elif kind not in {"attn_k", "attn_v", "attn_k_norm"}:
                yield name, size
        yield f"blk.{layer}.layer_output_scale.weight", (1,)


def block_draft(shape: Shape) -> Tensors:
    """A DFlash draft of a layer, without embeddings and output, which are the target's."""
    yield "fc.weight", (shape.width, len(BLOCK_LAYERS) * shape.width)
    yield "enc.output_norm.weight", (shape.width,)
    yield "output_norm.weight", (shape.width,)
    if shape.block_kind == "DSpark":
        yield "markov_w1.weight", (shape.vocabulary, MARKOV_RANK)
        yield "markov_w2.weight", (shape.vocabulary, MARKOV_RANK)
        yield "conf_proj.weight", (1, shape.width + MARKOV_RANK)
    if shape.block_kind == "DFlash 2":
        for name in ("predecessor", "successor"):
            yield f"selector_{name}.weight", (shape.vocabulary, MARKOV_RANK)
        yield "selector_hidden.weight", (MARKOV_RANK, shape.width)
        for part in ("attn", "ffn"):
            yield f"blk.0.{part}_conv_base", (2, CONV_KERNEL, shape.width)
            groups = shape.width // CONV_GROUP
            yield f"blk.0.{part}_conv_proj.weight", (2 * CONV_KERNEL * groups, shape.width)
    yield from qwen3_layer(shape, 0)


def eagle_draft(shape: Shape) -> Tensors:
    """An EAGLE-3 draft: a layer that reads twice the width, and what joins the target's rows."""
    queries, keys = (count * shape.head_width for count in shape.eagle_heads)
    both, block = 2 * shape.width, "blk.0"
    yield "fc.weight", (shape.width, len(shape.eagle_layers) * shape.width)
    yield "output_norm.weight", (shape.width,)
    if shape.has_own_output:
        yield "output.weight", (shape.num_drafted, shape.width)
    if shape.num_drafted < shape.vocabulary:
        yield "d2t", (shape.num_drafted,)
    if shape.has_own_embedding:
        yield "token_embd.weight", (shape.vocabulary, shape.width)
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield f"{block}.attn_norm_2.weight", (shape.width,)
    yield f"{block}.attn_q.weight", (queries, both)
    yield f"{block}.attn_k.weight", (keys, both)
    yield f"{block}.attn_v.weight", (keys, both)
    yield f"{block}.attn_output.weight", (shape.width, queries)
    yield from feed_forward(shape, block)


def prediction_heads(architecture: str, shape: Shape) -> Tensors:
    """The prediction heads (MTP) behind a model's last layer."""
    for index in range(shape.num_in_turn):
        block = f"blk.{shape.num_layers + index}"
        yield from prediction_head(architecture, shape, block)
        if architecture in IN_TURN:
            yield f"{block}.nextn.shared_head_norm.weight", (shape.width,)
        elif shape.num_in_turn > 1:  # its state is that behind the norm, from which it drafts
            yield f"{block}.nextn.shared_head_head.weight", (shape.vocabulary, shape.width)


def prediction_head(architecture: str, shape: Shape, block: str) -> Tensors:
    """A prediction head (MTP): a layer of attention."""
    number = shape.num_layers + (shape.num_layers + 1) % 2  # Qwen3.5 has attention at odd places
    if architecture in NEMOTRON:
        yield from nemotron_head(shape, block)
    else:
        for name, size in WITH_HEADS[architecture](shape, number):
            yield name.replace(f"blk.{number}.", f"{block}."), size
    if architecture == LING:
        yield f"{block}.layer_output_norm.weight", (shape.width,)
    yield f"{block}.nextn.eh_proj.weight", (shape.width, 2 * shape.width)
    yield f"{block}.nextn.enorm.weight", (shape.width,)
    yield f"{block}.nextn.hnorm.weight", (shape.width,)


def mimo2_layer(shape: Shape, layer: int) -> Tensors:
    """MiMo V2: as Llama; its heads have one matrix for queries, keys and values."""
    block, queries = f"blk.{layer}", shape.num_heads * shape.head_width
    if layer < shape.num_layers:
        yield from llama_layer(shape, layer)
        return
    joined = queries + 2 * shape.num_kv_heads * shape.head_width
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield f"{block}.attn_qkv.weight", (joined, shape.width)
    yield f"{block}.attn_output.weight", (shape.width, queries)
    yield from feed_forward(shape, block)


def step35_layer(shape: Shape, layer: int) -> Tensors:
    """Step 3.5: as Qwen3 with experts, one of them shared; the first layer and heads are dense."""
    block = f"blk.{layer}"
    if layer == 0 or layer >= shape.num_layers:
        yield from qwen3_layer(shape, layer)
        return
    yield from qwen3moe_layer(shape, layer)
    yield from shared_expert(block, shape.width, shape.feed_forward // 2)


def deepseek4_layer(shape: Shape, layer: int) -> Tensors:
    """DeepSeek V4: one key, which is the value, too; the state has four streams (see `heads`)."""
    block, width, head = f"blk.{layer}", shape.width, 4 * shape.head_width
    latent, heads = width // 2, shape.num_heads
    yield f"{block}.attn_norm.weight", (width,)
    yield f"{block}.attn_sinks.weight", (heads,)
    yield f"{block}.attn_q_a.weight", (latent, width)
    yield f"{block}.attn_q_a_norm.weight", (latent,)
    yield f"{block}.attn_q_b.weight", (heads * head, latent)
    yield f"{block}.attn_kv.weight", (head, width)
    yield f"{block}.attn_kv_a_norm.weight", (head,)
    yield f"{block}.attn_output_a.weight", (OUTPUT_GROUPS * latent, heads * head // OUTPUT_GROUPS)
    yield f"{block}.attn_output_b.weight", (width, OUTPUT_GROUPS * latent)
    for part in ("attn", "ffn"):
        yield f"{block}.hc_{part}_fn.weight", (NUM_STREAMS * (2 + NUM_STREAMS), NUM_STREAMS * width)
        yield f"{block}.hc_{part}_base.weight", (NUM_STREAMS * (2 + NUM_STREAMS),)
        yield f"{block}.hc_{part}_scale.weight", (3,)
    yield from compressor(shape, layer)
    yield from experts(shape, block)
    yield f"{block}.exp_probs_b.bias", (shape.num_experts,)
    yield from shared_expert(block, width, shape.feed_forward // 2)


def compression(shape: Shape, layer: int) -> int:
    """How many tokens of DeepSeek V4 share a compressed key: none in odd layers and heads."""
    return (4, 0, 128, 0)[layer % 4] if layer < shape.num_layers else 0


def compressor(shape: Shape, layer: int) -> Tensors:
    """What compresses the keys of a layer of DeepSeek V4, and chooses the ones to attend to."""
    block, width, head = f"blk.{layer}", shape.width, 4 * shape.head_width
    ratio = compression(shape, layer)
    if not ratio:
        return
    parts = [("attn_compressor", (1 + (ratio == 4)) * head, head)]
    if ratio == 4:
        yield f"{block}.indexer.proj.weight", (INDEXER_HEADS, width)
        yield f"{block}.indexer.attn_q_b.weight", (INDEXER_HEADS * WIDER_INDEXER, width // 2)
        parts.append(("indexer_compressor", 2 * WIDER_INDEXER, WIDER_INDEXER))
    for name, inner, own in parts:
        yield f"{block}.{name}_kv.weight", (inner, width)
        yield f"{block}.{name}_gate.weight", (inner, width)
        yield f"{block}.{name}_ape.weight", (ratio, inner)
        yield f"{block}.{name}_norm.weight", (own,)


def gptoss_layer(shape: Shape, layer: int) -> Tensors:
    """gpt-oss: attention with sinks, in turn over a window and over all; experts with biases."""
    block, count, hidden = f"blk.{layer}", shape.num_experts, shape.feed_forward // 2
    keys = shape.num_kv_heads * shape.head_width
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield f"{block}.post_attention_norm.weight", (shape.width,)
    yield from attention(shape, block)
    yield f"{block}.attn_q.bias", (shape.num_heads * shape.head_width,)
    yield f"{block}.attn_k.bias", (keys,)
    yield f"{block}.attn_v.bias", (keys,)
    yield f"{block}.attn_output.bias", (shape.width,)
    yield f"{block}.attn_sinks.weight", (shape.num_heads,)
    yield from (each for each in experts(shape, block) if not each[0].endswith("ffn_norm.weight"))
    yield f"{block}.ffn_gate_inp.bias", (count,)
    yield f"{block}.ffn_gate_exps.bias", (count, hidden)
    yield f"{block}.ffn_up_exps.bias", (count, hidden)
    yield f"{block}.ffn_down_exps.bias", (count, shape.width)


def minimax_layer(shape: Shape, layer: int) -> Tensors:
    """MiniMax M2: all queries of a token are normalised together, and so are its keys."""
    block, queries = f"blk.{layer}", shape.num_heads * shape.head_width
    yield f"{block}.attn_norm.weight", (shape.width,)
    yield from attention(shape, block)
    yield f"{block}.attn_q_norm.weight", (queries,)
    yield f"{block}.attn_k_norm.weight", (shape.num_kv_heads * shape.head_width,)
    yield from experts(shape, block)
    yield f"{block}.exp_probs_b.bias", (shape.num_experts,)


def lfm2moe_layer(shape: Shape, layer: int) -> Tensors:
    """LFM2 with a mixture of experts."""
    block, dense = f"blk.{layer}", {"ffn_norm", "ffn_gate", "ffn_up", "ffn_down"}
    yield from (each for each in lfm2_layer(shape, layer) if each[0].split(".")[2] not in dense)
    yield from experts(shape, block)
    yield f"{block}.exp_probs_b.bias", (shape.num_experts,)


def qwen3next_layer(shape: Shape, layer: int) -> Tensors:
    """Qwen3-Next: as Qwen3.5 with experts, with two tensors joined; needs checkpoints."""
    for name, size in qwen35moe_layer(shape, layer):
        if "ssm_alpha" not in name:
            is_both = "ssm_beta" in name
            both = (2 * size[0], shape.width) if is_both else size
            yield name.replace("ssm_beta", "ssm_ba"), both


def gpt2_layer(shape: Shape, layer: int) -> Tensors:
    """GPT-2: one matrix for queries, keys and values, no gate, and biases everywhere."""
    block, width = f"blk.{layer}", shape.width
    joined = (shape.num_heads + 2 * shape.num_kv_heads) * shape.head_width
    for name, size in (
        ("attn_norm", (width,)),
        ("attn_qkv", (joined, width)),
        ("attn_output", (width, width)),
        ("ffn_norm", (width,)),
        ("ffn_up", (shape.feed_forward, width)),
        ("ffn_down", (width, shape.feed_forward)),
    ):
        yield f"{block}.{name}.weight", size
        yield f"{block}.{name}.bias", size[:1]


def qwen2vl_layer(shape: Shape, layer: int) -> Tensors:
    """Qwen2-VL: llama with biases; positions in time, height and width."""
    for name, size in llama_layer(shape, layer):
        yield name, size
        if name.endswith(("attn_q.weight", "attn_k.weight", "attn_v.weight")):
            yield name.replace("weight", "bias"), size[:1]


ARCHITECTURES: dict[str, Callable[[Shape, int], Tensors]] = {
    "llama": llama_layer,
    "qwen3": qwen3_layer,
    "qwen3moe": qwen3moe_layer,
    "gemma3": gemma3_layer,
    "mamba": mamba_layer,
    "lfm2": lfm2_layer,
    "qwen35": qwen35_layer,
    "granitehybrid": granitehybrid_layer,
}
WITH_HEADS: dict[str, Callable[[Shape, int], Tensors]] = {
    "qwen35": qwen35_layer,
    "qwen35moe": qwen35moe_layer,
    "glm4moe": glm4moe_layer,
    "hy_v3": hy_v3_layer,
    "qwen3next": qwen3next_layer,
    "deepseek2": deepseek2_layer,
    "deepseek32": deepseek32_layer,
    "bailingmoe3": bailingmoe3_layer,
    "glm-dsa": deepseek32_layer,
    "cohere2moe": cohere2moe_layer,
    "nemotron_h_moe": nemotron_layer,
    "gemma4": gemma4_layer,
    "mimo2": mimo2_layer,
    "step35": step35_layer,
    "deepseek4": deepseek4_layer,
}
"""Architectures with prediction heads; see `heads`."""
HOLLOW_ALONE: dict[str, Callable[[Shape, int], Tensors]] = {"gpt-oss": gptoss_layer}
"""Architectures of which memory alone is tested, with models that have no weights."""
WITH_DRAFTS: dict[str, Callable[[Shape, int], Tensors]] = {
    "nanbeige": llama_layer,
    "hunyuan-dense": qwen3_layer,
    "hunyuan_vl": qwen3_layer,
    "minimax-m2": minimax_layer,
    "lfm2moe": lfm2moe_layer,
    "nemotron_h": dense_nemotron_layer,
    "muse-glimmer": muse_layer,
    "minimax-01": minimax_01_layer,
}
"""More architectures for which EAGLE-3 and DFlash drafts are written."""
WITH_POSITIONS: dict[str, Callable[[Shape, int], Tensors]] = {
    "gpt2": gpt2_layer,
    "starcoder": gpt2_layer,
}
"""Architectures with a table of absolute positions."""
WITH_IMAGES: dict[str, Callable[[Shape, int], Tensors]] = {
    "qwen2vl": qwen2vl_layer,
    "qwen3vl": qwen3_layer,
    "gemma4": gemma4_layer,
}
"""Architectures made for images; others read them, too."""
ASSISTANT, BLOCKS, EAGLE = "gemma4-assistant", "dflash", "eagle3"
BLOCK_SIZE, MARKOV_RANK = 16, 32
CONV_KERNEL, CONV_GROUP, NUM_CANDIDATES = 3, 16, 4
BLOCK_LAYERS = (1, 3)
"""Layers of the target whose inputs a DFlash draft reads."""
STREAMS = "deepseek4"
NUM_STREAMS, OUTPUT_GROUPS = 4, 2
IN_TURN = frozenset({"mimo2", "step35"})
"""Architectures of which heads slide a window, and may be several in turn, as Hunyuan 3's may."""
MUSE, MINIMAX_01 = "muse-glimmer", "minimax-01"
SLIDING = IN_TURN | {"gemma3", "gemma4", ASSISTANT, STREAMS, MUSE}
NEMOTRON_MOE = "nemotron_h_moe"
NEMOTRON = frozenset({"nemotron_h", NEMOTRON_MOE})
QWEN35 = frozenset({"qwen35", "qwen35moe", "qwen3next"})
STATE_SPACE = QWEN35 | {"mamba", "granitehybrid"} | NEMOTRON
LFM2 = frozenset({"lfm2", "lfm2moe"})
WITH_INDEXER = frozenset({"deepseek32", "glm-dsa"})
LING = "bailingmoe3"
LATENT = WITH_INDEXER | {"deepseek2", LING}
"""Architectures whose attention is to a latent vector."""
WITH_EXPERTS = LATENT | {
    *("qwen3moe", "gpt-oss", "qwen35moe", "glm4moe", "hy_v3", "cohere2moe", NEMOTRON_MOE),
    *("minimax-m2", MINIMAX_01, "lfm2moe", "qwen3next", "step35", STREAMS),
}


EVERY_LAYER = {
    **ARCHITECTURES,
    **HOLLOW_ALONE,
    **WITH_HEADS,
    **WITH_DRAFTS,
    **WITH_POSITIONS,
    **WITH_IMAGES,
}


def tensors(architecture: str, shape: Shape) -> Tensors:
    """Every tensor of a model: (name, NumPy shape)."""
    if architecture == ASSISTANT:
        yield from assistant(shape)
        return
    if architecture == BLOCKS:
        yield from block_draft(shape)
        return
    if architecture == EAGLE:
        yield from eagle_draft(shape)
        return
    output_norm = "token_embd_norm" if architecture in LFM2 else "output_norm"
    yield "token_embd.weight", (shape.vocabulary, shape.width)
    yield f"{output_norm}.weight", (shape.width,)
    yield "output.weight", (shape.vocabulary, shape.width)
    if architecture == STREAMS:
        yield "output_hc_fn.weight", (NUM_STREAMS, NUM_STREAMS * shape.width)
        yield "output_hc_base.weight", (NUM_STREAMS,)
        yield "output_hc_scale.weight", (1,)
    if architecture in WITH_POSITIONS:
        yield "position_embd.weight", (shape.num_positions, shape.width)
        yield "output_norm.bias", (shape.width,)
    if not shape.is_head_only:
        for layer in range(shape.num_layers):
            yield from EVERY_LAYER[architecture](shape, layer)
    if shape.has_head or shape.is_head_only:
        yield from prediction_heads(architecture, shape)


def add_hyperparameters(writer: gguf.GGUFWriter, architecture: str, shape: Shape) -> None:
    """Write the keys that describe `shape`, those of every architecture and its own."""
    writer.add_embedding_length(shape.assistant_width if architecture == ASSISTANT else shape.width)
    has_head = (shape.has_head or shape.is_head_only) and architecture not in {
        *(ASSISTANT, BLOCKS, EAGLE)
    }
    others = {ASSISTANT: ASSISTANT_LAYERS, BLOCKS: 1, EAGLE: 1}
    num_layers = others.get(architecture, shape.num_layers)
    num_in_turn = shape.num_in_turn if has_head else 0
    writer.add_block_count(num_layers + num_in_turn)
    if architecture == ASSISTANT:
        writer.add_uint32(f"{architecture}.nextn_predict_layers", ASSISTANT_LAYERS)
        writer.add_uint32(f"{architecture}.embedding_length_out", shape.width)
    if architecture == BLOCKS:
        writer.add_uint32(f"{architecture}.block_size", BLOCK_SIZE)
        writer.add_array(f"{architecture}.target_layers", list(BLOCK_LAYERS))
        writer.add_mask_token_id(0)
        if shape.block_kind == "DFlash 2":
            for name, size in (
                *(("conv_kernel_size", CONV_KERNEL), ("conv_group_size", CONV_GROUP)),
                *(("selector_rank", MARKOV_RANK), ("selector_top_k", NUM_CANDIDATES)),
            ):
                writer.add_uint32(f"{architecture}.{name}", size)
        if shape.block_kind == "DFlash window":
            writer.add_sliding_window(shape.sliding_window)
            writer.add_sliding_window_pattern([True])
            writer.add_rope_dimension_sections([shape.head_width // 2, 0, 0, 0])
    if architecture == EAGLE:
        writer.add_array(f"{architecture}.target_layers", list(shape.eagle_layers))
        writer.add_uint32(f"{architecture}.target_hidden_size", shape.width)
    if has_head:
        writer.add_uint32(f"{architecture}.nextn_predict_layers", num_in_turn)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture in WITH_POSITIONS:
        writer.add_layer_norm_eps(1e-5)
    if architecture in NEMOTRON:
        add_nemotron(writer, architecture, shape, has_head=has_head)
    else:
        is_half = architecture in {"minimax-m2", MINIMAX_01}
        hidden = shape.feed_forward // (1 + is_half)
        writer.add_feed_forward_length(0 if architecture == "mamba" else hidden)
    if architecture != "mamba":
        add_attention(writer, architecture, shape)
    if architecture in STATE_SPACE:
        delta_net = architecture in QWEN35
        writer.add_ssm_conv_kernel(shape.convolution)
        writer.add_ssm_inner_size(shape.num_heads * shape.state if delta_net else shape.inner)
        writer.add_ssm_state_size(shape.state)
        writer.add_ssm_time_step_rank(shape.num_heads)
        writer.add_ssm_group_count(shape.num_kv_heads if delta_net else 1)


def add_nemotron(
    writer: gguf.GGUFWriter, architecture: str, shape: Shape, *, has_head: bool
) -> None:
    """Write which layers are experts; the head has both attention and experts."""
    kinds = [nemotron_kind(layer) for layer in range(shape.num_layers)]
    hidden = shape.feed_forward // 2
    of_head = [hidden] * has_head
    writer.add_feed_forward_length([hidden * (kind == "experts") for kind in kinds] + of_head)
    writer.add_layer_norm_eps(1e-5)
    if architecture != NEMOTRON_MOE:
        return
    writer.add_expert_shared_count(1)
    writer.add_expert_weights_norm(True)
    writer.add_moe_latent_size(shape.width // 2)


def key_heads(architecture: str, shape: Shape) -> list[int]:
    """The heads of keys of each layer and of a head, where an architecture's files list them."""
    count = 1 if architecture == LING else shape.num_kv_heads
    layers = range(shape.num_layers)
    if architecture in NEMOTRON:
        kinds = [count * (nemotron_kind(layer) == "attention") for layer in layers]
    elif architecture in {*LFM2, "granitehybrid", LING}:
        kinds = [0 if shape.is_recurrent(layer) else count for layer in layers]
    else:
        return []
    return kinds + [count] * (shape.has_head or shape.is_head_only)


def add_attention(writer: gguf.GGUFWriter, architecture: str, shape: Shape) -> None:
    """Write the keys of attention, and what only this architecture asks for."""
    usual = shape.num_heads, shape.num_kv_heads
    num_heads, num_kv_heads = shape.eagle_heads if architecture == EAGLE else usual
    writer.add_head_count(num_heads)
    is_latent = architecture in LATENT
    has_streams = architecture == STREAMS
    key = 4 * shape.head_width if has_streams else shape.head_width + shape.width // 2 * is_latent
    writer.add_key_length(key)
    writer.add_value_length(shape.width // 2 if is_latent else key)
    writer.add_rope_dimension_count(shape.head_width)
    kinds = key_heads(architecture, shape)
    writer.add_head_count_kv(kinds or (1 if is_latent or has_streams else num_kv_heads))
    if architecture in LFM2:
        writer.add_shortconv_l_cache(shape.convolution)
    elif architecture in SLIDING:
        add_window(writer, architecture, shape)
    elif architecture in {*QWEN35, *WITH_IMAGES}:
        if architecture in QWEN35:
            writer.add_full_attention_interval(2)
        if architecture == "qwen3vl":
            writer.add_uint32(f"{architecture}.n_deepstack_layers", 1)
        quarter = shape.head_width // 4
        writer.add_rope_dimension_sections([quarter, quarter // 2, quarter // 2, 0])
    elif architecture == "gpt-oss":
        writer.add_sliding_window(shape.sliding_window)
    elif architecture == MINIMAX_01:
        writer.add_full_attention_interval(2)
        writer.add_residual_scale(1.0)
    elif is_latent:
        if architecture == LING:
            writer.add_ssm_conv_kernel(shape.convolution)
            writer.add_kda_head_dim(shape.head_width)
            writer.add_float32(f"{architecture}.kda.gate_lower_bound", -5.0)
        writer.add_q_lora_rank(shape.width // 2)
        writer.add_kv_lora_rank(shape.width // 2)
        writer.add_key_length_mla(2 * shape.head_width)
        writer.add_value_length_mla(shape.head_width)
    if has_streams:
        add_streams(writer, shape)
    if architecture in WITH_INDEXER or has_streams:
        writer.add_indexer_head_count(INDEXER_HEADS)
        writer.add_indexer_key_length(WIDER_INDEXER if has_streams else INDEXER_WIDTH)
        writer.add_indexer_top_k(2048)
    add_experts(writer, architecture, shape)


def add_window(writer: gguf.GGUFWriter, architecture: str, shape: Shape) -> None:
    """Write which layers slide a window, and what those architectures ask for beside it."""
    count = ASSISTANT_LAYERS if architecture == ASSISTANT else shape.num_layers
    writer.add_sliding_window(shape.sliding_window)
    has_head = architecture in IN_TURN and (shape.has_head or shape.is_head_only)
    of_heads = [True] * (shape.num_in_turn if has_head else 0)
    is_odd = architecture == "step35"  # whose other layers rotate half of each head only
    pattern = [shape.is_sliding(number + is_odd) for number in range(count)]
    if architecture not in {MUSE, STREAMS}:  # which say nothing of their layers' windows
        writer.add_sliding_window_pattern([*pattern, *of_heads])
    if architecture in {"gemma4", ASSISTANT}:
        writer.add_uint32(f"{architecture}.embedding_length_per_layer_input", 0)
        for each in ("key", "value"):
            writer.add_uint32(f"{architecture}.attention.{each}_length_swa", shape.head_width)
        writer.add_uint32(f"{architecture}.rope.dimension_count_swa", shape.head_width)
    if architecture == MUSE:
        writer.add_logit_scale(1.0)


def add_streams(writer: gguf.GGUFWriter, shape: Shape) -> None:
    """Write what only DeepSeek V4 asks for."""
    layers = range(shape.num_layers + shape.num_in_turn)
    for name, size in (
        ("attention.output_group_count", OUTPUT_GROUPS),
        ("attention.output_lora_rank", shape.width // 2),
        ("hyper_connection.count", NUM_STREAMS),
        ("hyper_connection.sinkhorn_iterations", 2),
        ("hash_layer_count", 0),
        ("expert_gating_func", 4),
    ):
        writer.add_uint32(f"{STREAMS}.{name}", size)
    writer.add_float32(f"{STREAMS}.attention.compress_rope_freq_base", 160_000.0)
    writer.add_float32(f"{STREAMS}.hyper_connection.epsilon", 1e-6)
    writer.add_float32(f"{STREAMS}.swiglu_clamp_exp", 10.0)
    ratios = [compression(shape, layer) for layer in layers]
    writer.add_array(f"{STREAMS}.attention.compress_ratios", ratios)
    writer.add_q_lora_rank(shape.width // 2)
    writer.add_expert_weights_scale(1.0)
    writer.add_expert_weights_norm(True)


def add_experts(writer: gguf.GGUFWriter, architecture: str, shape: Shape) -> None:
    """Write the keys of a mixture of experts."""
    if architecture in WITH_EXPERTS:
        writer.add_expert_count(shape.num_experts)
        writer.add_expert_used_count(shape.num_experts_used)
        writer.add_expert_feed_forward_length(shape.feed_forward // 2)
    if architecture == "mimo2":
        writer.add_expert_feed_forward_length(shape.feed_forward // 2)
    if architecture in {"qwen35moe", "qwen3next", "step35", NEMOTRON_MOE}:
        writer.add_expert_shared_feed_forward_length(shape.feed_forward // 2)
    if architecture == "cohere2moe":
        writer.add_logit_scale(1.0)
        writer.add_sliding_window(shape.sliding_window)
        writer.add_leading_dense_block_count(NUM_DENSE)
        writer.add_expert_shared_count(1)
    if architecture in WITH_INDEXER | {LING, "minimax-m2", "lfm2moe"}:
        writer.add_expert_gating_func(gguf.ExpertGatingFuncType.SIGMOID)
    if architecture in LATENT | {"glm4moe", STREAMS}:
        writer.add_expert_shared_count(1)
        writer.add_leading_dense_block_count(1)
