"""Tiny models with a prediction head (MTP) that agrees a known share of the time.

A head whose layer is taken from the target's would agree without its rows, and an error of one
position would pass every test. So the target is a trigram model: its first half of the width holds
the token, one layer of attention copies that of the token before, times a matrix, into the second
half, and all other layers are small noise. The head gets half of the second half from the target's
row and the other half by its own attention, so that rows and memory both matter.

Nemotron-H's attention knows no positions: there a convolution copies, and the head's attention
finds the token before by what its row says of it.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import gguf
import numpy as np

from scripts.support.tiny_gguf.shapes import (
    ASSISTANT,
    ASSISTANT_LAYERS,
    BLOCKS,
    EAGLE,
    IN_TURN,
    LATENT,
    MINIMAX_01,
    MUSE,
    NEMOTRON,
    NUM_STREAMS,
    STREAMS,
    Shape,
    add_hyperparameters,
    tensors,
)
from scripts.support.tiny_gguf.vocabulary import CONTROLS, Vocabulary, add_vocabulary
from scripts.support.tiny_gguf.weights import (
    LOGIT_SCALE,
    Mixture,
    Tokens,
    Weights,
    make_tensor,
    silence,
)
from scripts.support.tiny_gguf.writing import STORED, Quantisation, add_tensor, finish

COPYING_LAYER = 1
CONVOLVING = frozenset({"ssm_in.weight", "ssm_conv1d.weight", "ssm_out.weight"})
"""Tensors of a Mamba 2 block that can copy, too."""
LAG = 8
"""How far back the target of a DFlash draft looks, which drafts tokens without those before."""
MARKOV_PART, SELECTOR_PART = np.float32(0.25), np.float32(0.15)
SHORT_LAG = 3
"""The same for Nemotron-H, whose convolution reaches no further."""
OF_LAST = 0.01
"""How much its last token counts in comparison."""
BLOCK_KINDS = frozenset({"DFlash", "DFlash window", "DFlash 2", "DSpark"})
USUAL_DRAFTS = {"llama": "EAGLE-3", "qwen3": "DFlash", "qwen3moe": "DFlash"}
"""The kinds of drafts for architectures that have no head of their own."""
ROPE_BASE = 10.0
PAIRED = frozenset({"cohere2moe", "llama", "nanbeige", MUSE})
"""Architectures that rotate neighbours; of these only Muse Glimmer normalises queries and keys."""
MIMO = "mimo2"
"""It has no biases: what copies comes from a constant in the embedding."""
GEMMA = frozenset({"gemma4", ASSISTANT})
CONSTANT = 2.0
KEY_LENGTH = 200.0
SHARPNESS = 6.0
"""Scales queries and keys, so that attention sees one token alone."""
OWN_PART = 0.5
"""The part of the last token's trace that the head finds by its own attention."""
SHARED_PART = 0.1
"""The same for an assistant: it finds the right token for the first of a draft alone."""


@dataclass(frozen=True, slots=True)
class _Trigram:
    """The weights of a trigram model and of its head."""

    shape: Shape
    mixture: Mixture
    noise: float
    own_part: float
    target: str
    lag: int = 1
    is_plain: bool = False
    """Whether queries and keys are not normalised, and come from a constant in the embedding."""

    @property
    def mixing(self) -> Weights:
        """The matrix applied to the token before: orthogonal, (width / 2, width / 2)."""
        half = self.shape.width // 2
        return np.linalg.qr(self.mixture.draw("mixing", (half, half)))[0].astype(np.float32)

    def tensor(self, architecture: str, name: str, size: tuple[int, ...]) -> Weights:
        """The values of one tensor."""
        block, _, kind = name.removeprefix("blk.").partition(".")
        number = int(block) if block.isdecimal() else -1
        if architecture in GEMMA:
            return self._gemma(architecture, name, kind, number, size)
        is_copying = ("attn_" in kind and "hc_" not in kind) or kind in CONVOLVING
        turn = number - self.shape.num_layers
        if (number == COPYING_LAYER or turn >= 0) and is_copying:
            return self._attention(architecture, kind, size, is_head=turn >= 0)
        if "hc_" in name:
            return self._streams(name, size)
        if name.endswith(("norm.weight", "norm_2.weight")):
            return self._norm(architecture, number, kind, size)
        has_constant = (
            architecture in LATENT | NEMOTRON | {MIMO, STREAMS} or self.lag > 1 or self.is_plain
        )
        if name == "token_embd.weight":
            return self._embedding(size) if has_constant else self._plain_embedding(size)
        if kind == "nextn.eh_proj.weight":
            read, given = self.shape.signs[turn]
            joining = self._joining(size)
            joining[:, size[0] :] *= read
            return given * joining
        if name == "output.weight" or kind == "nextn.shared_head_head.weight":
            output = self.mixture.draw("output.weight", size)
            output *= np.float32(LOGIT_SCALE / np.sqrt(size[-1]))
            output[:, : size[-1] // 2] *= OF_LAST if self.lag > 1 else 1.0
            if architecture in NEMOTRON:  # the norm of its head takes the mean away
                output -= output.mean(axis=1, keepdims=True)
            return output if turn < 0 else self.shape.signs[turn][1] * output
        weights = make_tensor(self.mixture, architecture, name, size)
        ends_block = kind.split(".")[0] in {
            "attn_output",
            "attn_output_b",
            "ssm_out",
            "ffn_down",
            "ffn_down_exps",
        }
        is_small = ends_block or kind.startswith(("ffn_down_shexp", "shortconv.out_proj"))
        return weights * np.float32(self.noise) if is_small else weights

    def _norm(self, architecture: str, number: int, kind: str, size: tuple[int, ...]) -> Weights:
        """The factors of a norm: of heads in turn, the sign of what each gives."""
        if kind == "nextn.shared_head_norm.weight":
            given = self.shape.signs[number - self.shape.num_layers][1]
            return np.full(size, given, np.float32)
        is_copied = number == COPYING_LAYER and kind == "post_attention_norm.weight"
        is_small = architecture == MUSE and kind.startswith("post_") and not is_copied
        return np.full(size, self.noise / 3 if is_small else 1, np.float32)

    def _plain_embedding(self, size: tuple[int, ...]) -> Weights:
        """The token in the first half."""
        half = np.sqrt(2) * self.mixture.draw("token_embd.weight", (size[0], size[1] // 2))
        return np.hstack([half, np.zeros_like(half)]).astype(np.float32)

    def _attention(
        self, architecture: str, kind: str, size: tuple[int, ...], *, is_head: bool
    ) -> Weights:
        """The attention that copies, or the convolution, as an architecture has it."""
        if kind in CONVOLVING:
            return self._convolving(kind, size)
        if architecture in LATENT and kind.endswith("norm.weight"):
            return np.ones(size, np.float32)
        if kind == "attn_qkv.weight":
            keys = self.shape.num_kv_heads * self.shape.head_width
            parts = {"attn_q": size[0] - 2 * keys, "attn_k": keys, "attn_v": keys}
            each = [
                self._attention(architecture, f"{part}.weight", (count, size[1]), is_head=is_head)
                for part, count in parts.items()
            ]
            return np.vstack(each)
        if architecture == STREAMS:
            return self._copying_key(kind, size, is_head=is_head)
        if architecture in LATENT:
            return self._copying_latent(kind, size, is_head=is_head)
        if architecture in NEMOTRON and kind in {"attn_q.weight", "attn_k.weight"}:
            return self._finding(kind, size)
        weights = self._copying(kind, size, is_head=is_head)
        is_other = architecture in PAIRED and kind.endswith(".bias")
        if architecture == MIMO and kind in {"attn_q.weight", "attn_k.weight"}:
            bias = self._copying(kind.replace("weight", "bias"), size[:1], is_head=False)
            weights[:, self.shape.width // 2 - 1] = 2**0.5 * SHARPNESS / CONSTANT * bias
        is_unscaled = architecture in {"gpt-oss", MINIMAX_01}
        if is_unscaled and kind in {"attn_q.bias", "attn_k.bias"}:
            return weights * np.float32(2**0.5 * SHARPNESS)
        return self._for_cohere(weights) if is_other else weights

    def _convolving(self, kind: str, size: tuple[int, ...]) -> Weights:
        """What copies in a model whose attention knows no positions: a convolution in Mamba 2.

        Its inputs are so small that the function behind it is almost linear; the other half with
        the opposite sign takes away what is not. The norm behind both makes up for their size.
        """
        half, inner, state = self.shape.width // 2, self.shape.inner, self.shape.state
        weights = np.zeros(size, np.float32)
        if kind == "ssm_in.weight":
            weights[:inner, half - 1] = 20.0  # the gate: open
            weights[inner : inner + half, :half] = 0.1 * np.eye(half)
            weights[inner + half : inner + 2 * half, :half] = -0.1 * np.eye(half)
            remembered = self.mixture.draw("remembered", (2 * state, size[1]))
            weights[2 * inner : 2 * inner + 2 * state] = self.noise * remembered / np.sqrt(size[1])
        elif kind == "ssm_conv1d.weight":
            weights[:, -1 - self.lag] = 1.0
        else:
            weights[half:, : 2 * half] = 0.5 * np.hstack([self.mixing, -self.mixing])
        return weights

    def _finding(self, kind: str, size: tuple[int, ...]) -> Weights:
        """Queries and keys that find a token by what it is: by the trace in the target's row."""
        half, head = self.shape.width // 2, self.shape.head_width
        weights = np.zeros(size, np.float32)
        if kind == "attn_k.weight":
            weights[:, :half] = SHARPNESS * np.eye(half)[: size[0]]
            return weights
        for number in range(self.shape.num_heads):
            place, part = number * head, number // 2 * head
            weights[place : place + head, half:] = SHARPNESS * self.mixing[:, part : part + head].T
        return weights

    def _copying_latent(self, kind: str, size: tuple[int, ...], *, is_head: bool) -> Weights:
        """The same attention by a latent vector, the token's half; the constant gives the rest."""
        head, half = self.shape.head_width, self.shape.width // 2
        weights = np.zeros(size, np.float32)
        if kind == "attn_q_a.weight":
            weights[0, half - 1] = 1.0
        elif kind == "attn_q_b.weight":
            heads = weights.reshape(-1, 2 * head, half)
            back = self._copying("attn_q.bias", (self.shape.num_heads * head,), is_head=False)
            heads[:, head:, 0] = self._for_cohere(back).reshape(-1, head) / np.sqrt(half)
        elif kind == "attn_gate.weight":
            weights[:, half - 1] = 20.0
        elif kind == "attn_kv_a_mqa.weight":
            weights[:half, :half] = np.eye(half)
            weights[half:, half - 1] = self._for_cohere(
                self._copying("attn_k.bias", (head,), is_head=False)
            )
        elif kind == "attn_v_b.weight":
            for number in range(0, self.shape.num_heads, 2):
                place = number // 2 * head
                weights[number, :, place : place + head] = np.sqrt(2) * np.eye(head)
        elif kind == "attn_output.weight":
            times = self.own_part if is_head else 1.0
            weights = times * self._copying(kind, size, is_head=False)
        return weights.astype(np.float32)

    def _streams(self, name: str, size: tuple[int, ...]) -> Weights:
        """What joins and parts the four streams of DeepSeek V4: nothing that depends on the token.

        A block reads the sum of all and adds twice what it gives to the last two.
        """
        weights = np.zeros(size, np.float32)
        if name.endswith("base.weight") and len(weights) > NUM_STREAMS:
            weights[NUM_STREAMS : 2 * NUM_STREAMS] = (-20, -20, 20, 20)
            weights[2 * NUM_STREAMS :] = 20 * np.eye(NUM_STREAMS).reshape(-1)
        return weights

    def _copying_key(self, kind: str, size: tuple[int, ...], *, is_head: bool) -> Weights:
        """The same attention by a key that is the value, too; its last part says the place."""
        head, half = self.shape.head_width, self.shape.width // 2
        weights = np.zeros(size, np.float32)
        scale = np.sqrt(2) * SHARPNESS  # of what `_for_cohere` returns
        if kind.endswith("norm.weight"):
            weights[:] = 1.0
            if kind == "attn_kv_a_norm.weight":
                weights[-head:] = KEY_LENGTH
        elif kind == "attn_q_a.weight":
            weights[0, half - 1] = 1.0
        elif kind == "attn_q_b.weight":
            heads = weights.reshape(self.shape.num_heads, -1, half)
            back = self._copying("attn_q.bias", (self.shape.num_heads * head,), is_head=False)
            heads[:, -head:, 0] = self._for_cohere(back).reshape(-1, head) / scale
        elif kind == "attn_kv.weight":
            weights[:half, :half] = np.eye(half)
            place = self._for_cohere(self._copying("attn_k.bias", (head,), is_head=False))
            weights[-head:, half - 1] = 0.1 * place / scale  # too small to change the norm
        elif kind == "attn_output_a.weight":
            weights[:half, :half] = np.eye(half)
        elif kind == "attn_output_b.weight":
            weights[half:, :half] = self.mixing * (self.own_part if is_head else 1.0)
        return weights

    def _for_cohere(self, weights: Weights) -> Weights:
        """Scale queries and keys, which no norm does, and put the pairs of a rotation together."""
        pairs = weights.reshape(-1, 2, self.shape.head_width // 2).transpose(0, 2, 1)
        return np.ascontiguousarray(np.sqrt(2) * SHARPNESS * pairs.reshape(-1))

    def _gemma(
        self, architecture: str, name: str, kind: str, number: int, size: tuple[int, ...]
    ) -> Weights:
        """The values of a tensor of a gemma4 model or its assistant.

        Their norms behind attention and feed-forward decide how much these add. Without biases, the
        queries and keys that copy come from the last number of the token's half, which is constant.
        """
        shape, is_head = self.shape, architecture == ASSISTANT
        last = (ASSISTANT_LAYERS if is_head else shape.num_layers) - 1
        is_copying = number == last and kind.startswith(("attn_", "post_attention"))
        if is_copying and kind != "attn_norm.weight":
            return self._copying_in_gemma(kind, size, is_head=is_head)
        if kind in {"post_attention_norm.weight", "post_ffw_norm.weight"}:
            return np.full(size, self.noise / 3, np.float32)
        if len(size) == 1:
            return np.ones(size, np.float32)
        if name == "token_embd.weight" and not is_head:
            return self._embedding(size) / np.float32(np.sqrt(shape.width))
        if kind.startswith(("attn_", "ffn_")):
            return make_tensor(self.mixture, architecture, name, size)
        weights = np.zeros(size, np.float32)  # all of the assistant's state but the model's width
        narrow = np.float32(np.sqrt(shape.width / size[1]))
        if name == "nextn.pre_projection.weight":
            weights[: shape.width] = self._joining((shape.width, 2 * shape.width))
        elif name == "nextn.post_projection.weight":
            weights[:, : shape.width] = narrow * np.eye(shape.width)
        else:  # an assistant's embeddings are its output alone
            output = self.mixture.draw("output.weight", (size[0], shape.width))
            output[:, : shape.width // 2] *= OF_LAST if self.lag > 1 else 1.0
            weights[:, : shape.width] = output * narrow * LOGIT_SCALE / np.sqrt(shape.width)
        return weights

    def _copying_in_gemma(self, kind: str, size: tuple[int, ...], *, is_head: bool) -> Weights:
        """The same attention in the last layer, which an assistant shares."""
        half, width = self.shape.width // 2, self.shape.width
        if kind == "post_attention_norm.weight":
            share = self.own_part * np.sqrt(width / self.shape.assistant_width) if is_head else 1.0
            return np.full(size, share, np.float32)
        if kind in {"attn_q_norm.weight", "attn_k_norm.weight"}:
            return np.full(size, SHARPNESS, np.float32)
        weights = np.zeros(size, np.float32)
        if kind in {"attn_q.weight", "attn_k.weight"}:
            bias = kind.replace("weight", "bias")
            weights[:, half - 1] = self._copying(bias, size[:1], is_head=False)
        else:
            inner = (min(size[0], width), min(size[1], width))
            weights[: inner[0], : inner[1]] = self._copying(kind, inner, is_head=False)
        return weights

    def of_block_draft(self, _: str, name: str, size: tuple[int, ...]) -> Weights:
        """The values of a DFlash draft, which reads the token in both layers of the target."""
        kind = name.removeprefix("blk.0.")
        if len(size) == 1 and kind not in {"attn_q_norm.weight", "attn_k_norm.weight"}:
            return np.ones(size, np.float32)
        weights, half = np.zeros(size, np.float32), self.shape.width // 2
        if name.startswith(("markov", "conf", "selector")):
            part = SELECTOR_PART if name.startswith("selector") else MARKOV_PART
            return part * self.mixture.draw(name, size)
        if name.endswith("_conv_base"):  # each place as it is, and a little of those before
            weights[:] = 0.005
            weights[:, 0] = 1.0
            return weights
        if name.endswith("_conv_proj.weight"):
            return weights
        if name == "fc.weight":
            for start in range(0, size[1], self.shape.width):
                weights[:half, start : start + half] = np.eye(half)
        elif kind in {"attn_q.weight", "attn_k.weight"}:
            bias = kind.replace("weight", "bias")
            weights[:, half - 1] = self._copying(bias, size[:1], is_head=False)
        elif kind.startswith("attn_"):
            weights = self._copying(kind, size, is_head=False)
        return weights

    def of_eagle_draft(self, _: str, name: str, size: tuple[int, ...]) -> Weights:
        """The values of an EAGLE-3 draft, whose rows are made like the target's.

        Attention to the token itself replaces what the row has by the token and a part of the trace
        of the one before; attention one back, by that one's embedding, adds the other part.
        """
        kind, half, width = name.removeprefix("blk.0."), self.shape.width // 2, self.shape.width
        weights = np.zeros(size, np.float32)
        if name == "token_embd.weight":
            return self._embedding(size)
        if name == "output.weight":
            whole = self.tensor(self.target, name, (self.shape.vocabulary, width))
            silence(whole, tuple(range(len(CONTROLS))))
            return whole[self.drafted]
        if len(size) == 1:
            return np.ones(size, np.float32)
        if name == "fc.weight":
            for start in range(0, size[1], width):
                weights[:half, start : start + half] = np.eye(half) / len(self.shape.eagle_layers)
            weights[half:, start + half :] = np.eye(half)
            if self.target in GEMMA:  # its last layer copies, and what it gives is normalised
                weights[:half] *= 3 / (2 + np.sqrt(0.5))
                weights[half:] *= np.sqrt(2)
            if self.target == MINIMAX_01:  # it normalises what its layers give
                weights[:half] *= 3 / (1 + np.sqrt(2))
                weights[half:] *= np.sqrt(2)
        elif kind in {"attn_q.weight", "attn_k.weight"}:
            weights[:, half - 1] = self._eagle_places(kind, size[0]) / CONSTANT
        elif kind == "attn_v.weight":
            weights[:half, :half] = np.eye(half)
            weights[half:, width:] = np.eye(width)
        elif kind == "attn_output.weight":
            return self._eagle_output(size)
        return weights

    def _eagle_places(self, kind: str, count: int) -> Weights:
        """Queries one back and of the same place in turn, or keys."""
        key = self._copying("attn_k.bias", (count,), is_head=False)
        if kind == "attn_k.weight":
            return self._for_cohere(key)
        shape = replace(self.shape, width=count)
        other = replace(self, shape=shape)
        back = other._copying("attn_q.bias", (count,), is_head=False)  # noqa: SLF001  # its own class
        is_same = np.arange(count) // shape.head_width % 2 == 1
        return self._for_cohere(np.where(is_same, key, back))

    def _eagle_output(self, size: tuple[int, ...]) -> Weights:
        weights, half, head = np.zeros(size, np.float32), size[0] // 2, self.shape.head_width
        for number in range(size[1] // head):
            place = slice(number * head, (number + 1) * head)
            begin = number // 2 * head
            values, rows = slice(begin, begin + head), slice(begin - half, begin - half + head)
            if begin < half and number % 2:
                weights[:half, place] = np.eye(half)[:, values]
            elif begin < half:
                weights[half:, place] = self.own_part * self.mixing[:, values]
            elif number % 2:
                weights[:, place] = -np.sqrt(2) * np.eye(size[0])[:, rows]
                if rows.start < half:
                    weights[half:, place] += (1 - self.own_part) * np.sqrt(2) * self.mixing[:, rows]
        return weights

    @property
    def drafted(self) -> Tokens:
        """The target's tokens that an EAGLE-3 draft knows: those left out lie apart."""
        count, left_out = self.shape.vocabulary, self.shape.num_left_out
        apart = len(CONTROLS) + np.arange(left_out) * (count // max(1, left_out + 1))
        return np.setdiff1d(np.arange(count), apart)

    def _embedding(self, size: tuple[int, ...]) -> Weights:
        """The token in the first half, of which the last number is constant.

        The part of each head is as long as any other: Gemma 4 normalises the values.
        """
        half = self.mixture.draw("token_embd.weight", (size[0], size[1] // 2))
        half[:, -1] = 0.0
        parts = half.reshape(size[0], -1, self.shape.head_width)
        lengths = np.full(parts.shape[1:2], 2.0 * self.shape.head_width)
        lengths[-1] -= CONSTANT**2
        parts *= np.sqrt(lengths / np.square(parts).sum(-1))[..., None]
        half = parts.reshape(size[0], -1)
        half[:, -1] = CONSTANT
        return np.hstack([half, np.zeros_like(half)]).astype(np.float32)

    def _copying(self, kind: str, size: tuple[int, ...], *, is_head: bool) -> Weights:
        """The attention that copies the token before into the second half."""
        shape = self.shape
        angles = ROPE_BASE ** (-np.arange(0, shape.head_width, 2) / shape.head_width)
        angles *= self.lag
        if kind in {"attn_q_norm.weight", "attn_k_norm.weight"}:
            return np.full(size, SHARPNESS, np.float32)
        if kind == "attn_norm.weight":
            return np.ones(size, np.float32)
        weights = np.zeros(size, np.float32)
        if kind == "attn_k.bias":
            ahead = np.concatenate([np.ones_like(angles), np.zeros_like(angles)])
            weights[:] = np.tile(ahead, size[0] // shape.head_width)
        elif kind == "attn_q.bias":  # one position back; behind it, the gate of Qwen3.5: open
            back = np.concatenate([np.cos(angles), -np.sin(angles)])
            is_gated = size[0] == 2 * shape.num_heads * shape.head_width
            each = np.concatenate([back, np.full(shape.head_width, 20.0)]) if is_gated else back
            weights[:] = np.tile(each, shape.num_heads)
        elif kind == "attn_v.weight":
            weights[:, : size[0]] = np.eye(size[0])
        elif kind == "attn_output.weight":
            half = shape.width // 2
            times = self.own_part * np.sqrt(1 + (1 - self.own_part) ** 2) if is_head else 1.0
            for head in range(0, shape.num_heads, 2):  # two share a key head
                values = slice(head // 2 * shape.head_width, (head // 2 + 1) * shape.head_width)
                place = slice(head * shape.head_width, (head + 1) * shape.head_width)
                weights[half:, place] = times * self.mixing[:, values]
        return weights

    def _joining(self, size: tuple[int, ...]) -> Weights:
        """The matrix that joins the token and the target's row, (width, 2 width)."""
        width, half = size[0], size[0] // 2
        weights = np.hstack([np.eye(width), np.zeros((width, width))]).astype(np.float32)
        weights[half:, width : width + half] = (1 - self.own_part) * np.sqrt(2) * self.mixing
        return weights


def write_with_head(
    path: Path,
    architecture: str = "qwen35",
    *,
    part: str = "whole",
    noise: float = 0.1,
    seed: int = 0,
    vocabulary: Vocabulary | int = 320,
    num_layers: int = 4,
    width: int = 64,
    feed_forward: int = 128,
    head_width: int = 16,
    quantisation: Quantisation = "f32",
    context_length: int = 2048,
    left_out: str = "",
    can_end: bool = False,
    own_part: float | None = None,
    temperature_scale: float = 0.0,
    draft: str = "",
    num_left_out: int = 10,
    has_own_output: bool = True,
    has_own_embedding: bool = False,
    num_in_turn: int = 1,
) -> Path:
    """Write a tiny model with a prediction head, or a `part` of it, and return the path.

    A part is the "whole", the "trunk" or the "head". The more `noise`, the less the head agrees:
    0.1 is about 88 %. The tensor whose name ends with `left_out` is missing. The head finds
    `own_part` of the trace of the token before by its own attention. A `temperature_scale` is only
    written down. The head may also be a `draft` of another kind, as it is for a llama. An EAGLE-3
    draft is without `num_left_out` of the tokens, with or without an output and embeddings of its
    own. There may be several heads `num_in_turn`.
    """
    words = Vocabulary(size=vocabulary) if isinstance(vocabulary, int) else vocabulary
    draft = draft or USUAL_DRAFTS.get(architecture, "")
    is_eagle, is_blocks = draft == "EAGLE-3", draft in BLOCK_KINDS
    is_assisted = architecture == "gemma4" and not draft
    is_other = is_assisted or is_blocks or is_eagle
    reads_last_rows = architecture in {"gpt-oss", "gemma4"}
    of_target = architecture
    if part == "head" and is_other:
        architecture = ASSISTANT if is_assisted else BLOCKS if is_blocks else EAGLE
    shape = Shape(
        words.size, num_layers, width, feed_forward, head_width,
        has_head=part == "whole" and not is_other, is_head_only=part == "head" and not is_other,
        num_left_out=num_left_out if is_eagle else 0, has_own_output=has_own_output,
        has_own_embedding=has_own_embedding, block_kind=draft,
        eagle_layers=(1, 2, 3 + reads_last_rows), num_in_turn=num_in_turn,
    )  # fmt: skip
    writer = gguf.GGUFWriter(path, architecture)
    writer.add_name(f"tiny {architecture} {part} {seed}")
    writer.add_context_length(context_length)
    writer.add_rope_freq_base(ROPE_BASE)
    if architecture in IN_TURN and not draft:
        writer.add_rope_freq_base_swa(ROPE_BASE)
    add_hyperparameters(writer, architecture, shape)
    if temperature_scale:
        writer.add_attn_temperature_scale(temperature_scale)
        writer.add_uint32(f"{architecture}.attention.temperature_length", 4096)
    add_vocabulary(writer, words)
    silent = tuple(token for token in range(len(CONTROLS)) if token != words.eos or not can_end)
    own_part = own_part or (SHARED_PART if is_assisted else OWN_PART)
    lag = SHORT_LAG if of_target in NEMOTRON else LAG
    lag = lag + (architecture == BLOCKS and draft != "DSpark") if is_blocks else 1
    trigram = _Trigram(shape, Mixture(seed), noise, own_part, of_target, lag, is_plain=is_eagle)
    makers = {BLOCKS: trigram.of_block_draft, EAGLE: trigram.of_eagle_draft}
    for name, size in _tensors(architecture, shape):
        if left_out and name.endswith(left_out):
            continue
        if name == "d2t":
            writer.add_tensor(name, trigram.drafted.astype(np.int64))
            continue
        weights = makers.get(architecture, trigram.tensor)(architecture, name, size)
        of_tokens = "token_embd.weight" if architecture == ASSISTANT else "output.weight"
        if name == of_tokens or name.endswith("shared_head_head.weight"):
            silence(weights, silent if architecture != EAGLE else ())
        add_tensor(writer, name, weights, STORED[quantisation])
    finish(writer)
    return path


def _tensors(architecture: str, shape: Shape) -> list[tuple[str, tuple[int, ...]]]:
    """Every tensor, those of the copying layers with the biases of queries and keys."""
    found = list(tensors(architecture, shape))
    if architecture in {*GEMMA, *LATENT, *NEMOTRON, BLOCKS, EAGLE, MIMO, STREAMS, "gpt-oss"}:
        return found
    heads = range(shape.num_layers, shape.num_layers + shape.num_in_turn)
    for block in (f"blk.{number}." for number in (COPYING_LAYER, *heads)):
        for each in ("attn_q", "attn_k"):
            found += [
                (f"{block}{each}.bias", size[:1])
                for name, size in found
                if name == f"{block}{each}.weight"
            ]
    return found
