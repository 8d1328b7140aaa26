"""The network of a trained prediction head (EAGLE-3, Li et al. 2025) in PyTorch, named as in GGUF.

Each row of the head is made of a token and the inputs of three of the target's layers at the token
before it; its logits, over the tokens that the target uses most, predict the token after it. Where
the target has not evaluated anything yet, the head's own row takes the place of those inputs.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from specchat.derivation.draft_network import MASKED, Norm, rope_tables, rotate


@dataclass(frozen=True, slots=True)
class HeadShape:
    """The sizes of one head; `vocabulary` is the number of tokens that it can draft."""

    width: int
    heads: int
    kv_heads: int
    head_width: int
    feed_forward: int
    vocabulary: int


class _Encoder(nn.Module):
    """The norm applied before the layers' inputs are combined, under its name in GGUF."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.output_norm = Norm(width)


class _Layer(nn.Module):
    """One transformer layer over pairs of an embedding and a row."""

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        width, pair = shape.width, 2 * shape.width
        all_heads, shared = shape.heads * shape.head_width, shape.kv_heads * shape.head_width
        self.attn_norm = Norm(width)
        self.attn_norm_2 = Norm(width)
        self.attn_q = nn.Linear(pair, all_heads, bias=False)
        self.attn_k = nn.Linear(pair, shared, bias=False)
        self.attn_v = nn.Linear(pair, shared, bias=False)
        self.attn_output = nn.Linear(all_heads, width, bias=False)
        self.ffn_norm = Norm(width)
        self.ffn_gate = nn.Linear(width, shape.feed_forward, bias=False)
        self.ffn_up = nn.Linear(width, shape.feed_forward, bias=False)
        self.ffn_down = nn.Linear(shape.feed_forward, width, bias=False)

    def forward(
        self, embedded: Tensor, rows: Tensor, tables: tuple[Tensor, Tensor], memory: list[Tensor]
    ) -> Tensor:
        """Return the head's own rows, and add their keys and values to the memory.

        The memory holds those of every earlier run over the same text. In the first run each row
        was made of the target's inputs; in later ones, of the row before it in the run before.
        """
        inner = torch.cat([self.attn_norm(embedded), self.attn_norm_2(rows)], -1)
        hidden = rows + self.attn_output(self._attend(inner, tables, memory))
        inner = self.ffn_norm(hidden)
        gated = functional.silu(self.ffn_gate(inner)) * self.ffn_up(inner)
        return hidden + self.ffn_down(gated)

    def _attend(self, inner: Tensor, tables: tuple[Tensor, Tensor], memory: list[Tensor]) -> Tensor:
        """Attend to the rows of the target up to where this run's began, then to its own."""
        batch, length, _ = inner.shape
        size, groups = self.shape.head_width, self.shape.kv_heads
        queries, keys, values = (
            layer(inner).view(batch, length, -1, size).transpose(1, 2)
            for layer in (self.attn_q, self.attn_k, self.attn_v)
        )
        queries, keys = rotate(queries, *tables) * size**-0.5, rotate(keys, *tables)
        memory += [keys, values]
        run = len(memory) // 2 - 1
        # the queries of heads that share keys lie one after another
        folded = queries.reshape(batch, groups, -1, size)
        scores = (folded @ memory[0].transpose(-1, -2)).view(batch, groups, -1, length, length)
        later = torch.full((length, length), MASKED, dtype=scores.dtype, device=scores.device)
        scores = scores + later.triu(1 - run)
        queries = queries.reshape(batch, groups, -1, length, size)
        own = [
            (queries * memory[2 * number].roll(run - number, 2)[:, :, None]).sum(-1, keepdim=True)
            for number in range(1, run + 1)
        ]
        shares = torch.cat([scores, *own], -1).softmax(-1).to(values.dtype)
        of_target = shares[..., :length].reshape(batch, groups, -1, length)
        mixed = (of_target @ memory[1]).view(batch, groups, -1, length, size)
        for number in range(1, run + 1):
            share = shares[..., length + number - 1 : length + number]
            mixed = mixed + share * memory[2 * number + 1].roll(run - number, 2)[:, :, None]
        return mixed.reshape(batch, -1, length, size).transpose(1, 2).reshape(batch, length, -1)


class HeadNetwork(nn.Module):
    """A prediction head, without the embedding that it takes from the target.

    `d2t` are the tokens that it can draft, in the order of its logits.
    """

    def __init__(self, shape: HeadShape) -> None:
        super().__init__()
        self.shape = shape
        self.enc = _Encoder(3 * shape.width)
        self.fc = nn.Linear(3 * shape.width, shape.width, bias=False)
        self.blk = nn.ModuleList([_Layer(shape)])
        self.output_norm = Norm(shape.width)
        self.output = nn.Linear(shape.width, shape.vocabulary, bias=False)
        self.d2t: Tensor
        self.register_buffer("d2t", torch.arange(shape.vocabulary))
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                deep = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(parameter, std=0.02 * (0.5 if deep else 1.0))

    def runs(self, embedded: Tensor, read: Tensor, count: int) -> Iterator[Tensor]:
        """Yield each run's rows, for logits: first from the target's inputs, then from own rows.

        `embedded` holds the tokens' embeddings, shape (batch, positions, width), and `read` the
        inputs of the target's layers, shape (batch, positions, 3 * width). Row p is made of token p
        + 1 and predicts token p + 2; in run n, counted from 0, it is the head's row n passes after
        the target's.
        """
        positions = torch.arange(read.shape[1], device=read.device)[None]
        tables = rope_tables(positions, self.shape.head_width)
        next_tokens = functional.pad(embedded[:, 1:], (0, 0, 0, 1))
        rows, memory = self.fc(self.enc.output_norm(read)), list[Tensor]()
        for _ in range(count):
            rows = self.blk[0](next_tokens, rows, tables, memory)
            yield self.output_norm(rows)
            rows = rows.roll(1, 1)
