"""The llama network of a trained draft, in PyTorch, its weights laid out as in GGUF.

Rotary positions turn neighbouring components (2i, 2i+1), which is llama.cpp's layout for the llama
architecture, so no permutation is needed on export.
"""

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

ROPE_BASE = 10000.0
NORM_EPSILON = 1e-5
MASKED = -1e4


@dataclass(frozen=True, slots=True)
class Shape:
    """The sizes of one network."""

    vocabulary: int
    width: int
    layers: int
    heads: int
    kv_heads: int
    feed_forward: int
    context: int = 2048

    @property
    def head_width(self) -> int:
        """Components of one attention head."""
        return self.width // self.heads


def rope_tables(positions: Tensor, head_width: int) -> tuple[Tensor, Tensor]:
    """Return cosines and sines, each of shape (batch, 1, positions, head_width / 2)."""
    exponents = torch.arange(0, head_width, 2, dtype=torch.float32, device=positions.device)
    angles = positions.float()[:, None, :, None] * ROPE_BASE ** -(exponents / head_width)
    return angles.cos(), angles.sin()


def rotate(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Apply rotary positions to (batch, heads, positions, head_width)."""
    even, odd = heads[..., 0::2], heads[..., 1::2]
    cosines, sines = cosines.to(heads.dtype), sines.to(heads.dtype)
    turned = (even * cosines - odd * sines, even * sines + odd * cosines)
    return torch.stack(turned, dim=-1).flatten(-2)


class Norm(nn.Module):
    """Root-mean-square norm."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(width))

    def forward(self, hidden: Tensor) -> Tensor:
        """Return the normalised hidden states."""
        weight = self.weight.to(hidden.dtype)  # of one type it is one operation
        return functional.rms_norm(hidden, self.weight.shape, weight, NORM_EPSILON)


class Block(nn.Module):
    """One transformer layer: attention, then a gated feed-forward network."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        kv_width = shape.kv_heads * shape.head_width
        self.attn_norm = Norm(shape.width)
        self.attn_q = nn.Linear(shape.width, shape.width, bias=False)
        self.attn_k = nn.Linear(shape.width, kv_width, bias=False)
        self.attn_v = nn.Linear(shape.width, kv_width, bias=False)
        self.attn_output = nn.Linear(shape.width, shape.width, bias=False)
        self.ffn_norm = Norm(shape.width)
        self.ffn_gate = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.ffn_up = nn.Linear(shape.width, shape.feed_forward, bias=False)
        self.ffn_down = nn.Linear(shape.feed_forward, shape.width, bias=False)

    def forward(self, hidden: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Return the hidden states after this layer."""
        hidden = hidden + self._attend(self.attn_norm(hidden), tables)
        inner = self.ffn_norm(hidden)
        gated = functional.silu(self.ffn_gate(inner)) * self.ffn_up(inner)
        return hidden + self.ffn_down(gated)

    def _attend(self, inner: Tensor, tables: tuple[Tensor, Tensor]) -> Tensor:
        """Attend to earlier positions; on short texts faster on a CPU than PyTorch's attention."""
        batch, length, width = inner.shape
        size, kv_heads = self.shape.head_width, self.shape.kv_heads
        queries, keys, values = (
            layer(inner).view(batch, length, -1, size).transpose(1, 2)
            for layer in (self.attn_q, self.attn_k, self.attn_v)
        )
        # the queries of heads that share keys lie one after another
        queries = rotate(queries, *tables).reshape(batch, kv_heads, -1, size)
        scores = queries @ rotate(keys, *tables).transpose(-1, -2)
        shape = scores.shape
        later = torch.full((length, length), MASKED, dtype=scores.dtype, device=scores.device)
        scores = later.triu(1).add(scores.view(batch, -1, length, length), alpha=size**-0.5)
        mixed = scores.softmax(-1).to(values.dtype).view(shape) @ values
        mixed = mixed.view(batch, -1, length, size).transpose(1, 2)
        return self.attn_output(mixed.reshape(batch, length, width))


class Network(nn.Module):
    """A llama language model whose output matrix is its embedding."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.token_embd = nn.Embedding(shape.vocabulary, shape.width)
        self.blk = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.output_norm = Norm(shape.width)
        self._initialise()

    def _initialise(self) -> None:
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("attn_output.weight", "ffn_down.weight"))
                scale = (2 * self.shape.layers) ** -0.5 if deep else 1.0
                nn.init.normal_(parameter, std=0.02 * scale)

    def hidden(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return the hidden states that the output matrix is applied to, at every position."""
        hidden = self.token_embd(tokens)
        tables = rope_tables(positions, self.shape.head_width)
        for block in self.blk:
            hidden = block(hidden, tables)
        return self.output_norm(hidden)

    def forward(self, tokens: Tensor, positions: Tensor) -> Tensor:
        """Return logits for every position of (batch, positions) tokens."""
        return functional.linear(self.hidden(tokens, positions), self.token_embd.weight)
