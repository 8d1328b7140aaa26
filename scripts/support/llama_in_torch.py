"""A llama target in PyTorch, which answers hundreds of prompts at a time.

On processors with matrix units (AMX) PyTorch uses them for bfloat16, where llama.cpp cannot.
"""

import re
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gguf import GGUFReader, quants
from torch import Tensor
from torch.nn import functional

from specchat.gguf.header import Header
from specchat.llama.batch_sampling import LIKELIEST, Answer, is_looping

NUMBERS = torch.bfloat16
MASKED = -1e4
PROMPTS_AT_ONCE, ROWS_AT_ONCE, LOGITS_AT_ONCE = 16, 256, 8
FEWEST = 1 / 32
"""A wave ends when this share of its answers is unfinished."""
CROWDED = 0.8
"""The memory of a wave is made smaller when this share of its texts is unfinished."""
LOOK_EVERY = 10

PLAIN = re.compile(
    r"(token_embd|output|output_norm|blk\.\d+\.(attn_(norm|q|k|v|output)|ffn_(norm|gate|up|down)))"
    r"\.weight"
)
"""The tensors of the models that are evaluated here."""

Memory = list[tuple[Tensor, Tensor]]


def is_plain(header: Header) -> bool:
    """Return True for a llama model without biases, experts or stretched positions."""
    metadata, width = header.metadata, header.own("embedding_length")
    is_scaled = any(".rope.scaling." in key for key in metadata)
    is_square = header.own("attention.key_length", 0) in {
        0,
        width // header.own("attention.head_count"),
    }
    is_llama = header.architecture == "llama" and len(header.parts) == 1
    has_plain = all(map(PLAIN.fullmatch, header.tensors))
    return is_llama and is_square and has_plain and not is_scaled


class Target:
    """The weights of a llama model as bfloat16."""

    def __init__(self, path: Path, layers: Sequence[int]) -> None:
        """Read the weights; answers keep what `layers` read."""
        reader = GGUFReader(path)

        def size(key: str) -> Any:
            return reader.fields[f"llama.{key}"].contents()

        self.num_layers, self.width = size("block_count"), size("embedding_length")
        self.heads, self.groups = size("attention.head_count"), size("attention.head_count_kv")
        self.base, self.epsilon = size("rope.freq_base"), size("attention.layer_norm_rms_epsilon")
        self.size, self.layers = self.width // self.heads, layers
        self.weights = {
            each.name: torch.tensor(quants.dequantize(each.data, each.tensor_type)).to(NUMBERS)
            for each in reader.tensors
        }
        embedding = self.weights["token_embd.weight"]
        self.output = self.weights.get("output.weight", embedding)

    def memory(self, texts: int, length: int) -> Memory:
        """Return room for the keys and values of some texts."""
        shape = (texts, self.groups, length, self.size)
        return [
            (torch.zeros(shape, dtype=NUMBERS), torch.zeros(shape, dtype=NUMBERS))
            for _ in range(self.num_layers)
        ]

    def evaluate(
        self, tokens: Tensor, positions: Tensor, memory: Memory, length: int
    ) -> tuple[Tensor, Tensor]:
        """Return the last rows and what layers read, both (texts, positions, width).

        The memory's first `length` places are looked at, by each text those up to its own.
        """
        texts, count = tokens.shape
        hidden, read = self.weights["token_embd.weight"][tokens], []
        tables = self._tables(positions)
        is_later = torch.arange(length)[None, None] > positions[:, :, None]
        bias = torch.zeros(texts, 1, count, length, dtype=NUMBERS)
        bias = bias.masked_fill(is_later[:, None], MASKED)
        text, group = torch.arange(texts)[:, None, None], torch.arange(self.groups)[None, :, None]
        for layer, (keys, values) in enumerate(memory):
            if layer in self.layers:
                read.append(hidden)
            inner = self._norm(hidden, f"blk.{layer}.attn_norm")
            query, key, value = (
                self._linear(inner, f"blk.{layer}.attn_{name}")
                .view(texts, count, -1, self.size)
                .transpose(1, 2)
                for name in "qkv"
            )
            keys[text, group, positions[:, None]] = _rotated(key, *tables)
            values[text, group, positions[:, None]] = value
            mixed = self._attend(
                _rotated(query, *tables), keys[:, :, :length], values[:, :, :length], bias
            )
            hidden = hidden + self._linear(mixed, f"blk.{layer}.attn_output")
            inner = self._norm(hidden, f"blk.{layer}.ffn_norm")
            gate = functional.silu(self._linear(inner, f"blk.{layer}.ffn_gate"))
            up = self._linear(inner, f"blk.{layer}.ffn_up")
            hidden = hidden + self._linear(gate * up, f"blk.{layer}.ffn_down")
        return self._norm(hidden, "output_norm"), torch.cat(read, -1)

    def likeliest(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        """Return each row's likeliest tokens and the logarithms of their probabilities.

        The best of more candidates are computed again: logits in bfloat16 are too coarse.
        """
        logits = functional.linear(rows, self.output)
        parts = logits.split(LOGITS_AT_ONCE)  # that fit in the processor's caches
        total = torch.cat([part.float().logsumexp(-1) for part in parts])
        tokens = logits.topk(LIKELIEST + 8, -1).indices
        exact = torch.cat(
            [
                torch.einsum("rtw,rw->rt", self.output[some].float(), row.float())
                for some, row in zip(
                    tokens.split(ROWS_AT_ONCE), rows.split(ROWS_AT_ONCE), strict=True
                )
            ]
        )
        best, order = exact.topk(LIKELIEST, -1)
        return tokens.gather(1, order), best - total[:, None]

    def _tables(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        exponents = torch.arange(0, self.size, 2, dtype=torch.float32) / self.size
        angles = positions.float()[..., None] * self.base**-exponents
        return angles.cos().to(NUMBERS)[:, None], angles.sin().to(NUMBERS)[:, None]

    def _attend(self, query: Tensor, keys: Tensor, values: Tensor, bias: Tensor) -> Tensor:
        texts, _, count, _ = query.shape
        together = self.heads // self.groups
        if count == 1:  # heads that share keys are like positions that do
            query = query.reshape(texts, self.groups, together, self.size)
            bias = bias.expand(texts, 1, together, -1)
        else:
            keys, values = (each.repeat_interleave(together, 1) for each in (keys, values))
        mixed = functional.scaled_dot_product_attention(query, keys, values, attn_mask=bias)
        if count == 1:
            return mixed.reshape(texts, 1, self.width)
        return mixed.transpose(1, 2).reshape(texts, count, self.width)

    def _linear(self, rows: Tensor, name: str) -> Tensor:
        return functional.linear(rows, self.weights[f"{name}.weight"])

    def _norm(self, rows: Tensor, name: str) -> Tensor:
        weight = self.weights[f"{name}.weight"]
        return functional.rms_norm(rows, weight.shape, weight, self.epsilon)


def _rotated(heads: Tensor, cosines: Tensor, sines: Tensor) -> Tensor:
    """Apply rotary positions to neighbouring components, as llama.cpp does for llama."""
    even, odd = heads[..., 0::2], heads[..., 1::2]
    turned = (even * cosines - odd * sines, even * sines + odd * cosines)
    return torch.stack(turned, -1).flatten(-2)


class Wave:
    """Prompts of similar lengths that are answered side by side."""

    def __init__(self, target: Target, answers: Sequence[Answer], longest: int) -> None:
        """Evaluate the prompts; answers have at most `longest` tokens."""
        self._target, self._longest = target, longest
        self._answers = sorted(answers, key=lambda each: len(each.prompt))
        self._has_ended = [False] * len(answers)
        self._memory = target.memory(len(answers), len(self._answers[-1].prompt) + longest)
        rows = []
        for first in range(0, len(answers), PROMPTS_AT_ONCE):
            rows += self._begin(first, self._answers[first : first + PROMPTS_AT_ONCE])
        self._rows = torch.stack(rows)

    def sample(self, ends: Collection[int], random: torch.Generator) -> None:
        """Sample until all but a few answers have ended, at a token of `ends` or at `longest`."""
        fewest = FEWEST * len(self._answers)
        for count in range(1, self._longest + 1):
            chosen = self._choose(count, ends, random)
            going = [place for place, has_ended in enumerate(self._has_ended) if not has_ended]
            if count == self._longest or len(going) <= fewest:
                return
            if len(going) < CROWDED * len(self._answers):
                kept = torch.tensor(going)
                self._memory = [(keys[kept], values[kept]) for keys, values in self._memory]
                self._answers = [self._answers[place] for place in going]
                self._has_ended, chosen = [False] * len(going), chosen[kept]
            self._step(chosen, count)

    def _begin(self, first: int, answers: Sequence[Answer]) -> list[Tensor]:
        """Evaluate some of the prompts; return the rows of their last tokens."""
        length = max(len(each.prompt) for each in answers)
        tokens = torch.zeros(len(answers), length, dtype=torch.long)
        for number, each in enumerate(answers):
            tokens[number, : len(each.prompt)] = torch.tensor(each.prompt)
        last = first + len(answers)
        memory = [(keys[first:last], values[first:last]) for keys, values in self._memory]
        positions = torch.arange(length)[None].repeat(len(answers), 1)
        rows, read = self._target.evaluate(tokens, positions, memory, length)
        for number, each in enumerate(answers):
            each.inputs.append(_halved(read[number, : len(each.prompt)]))
        return [rows[number, len(each.prompt) - 1] for number, each in enumerate(answers)]

    def _choose(self, count: int, ends: Collection[int], random: torch.Generator) -> Tensor:
        """Add a token to each unfinished text; return a token for all, (texts, 1)."""
        tokens, logs = self._target.likeliest(self._rows)
        temperatures = torch.tensor([each.temperature for each in self._answers])
        weights = (logs / temperatures.clamp_min(1e-3)[:, None]).softmax(-1)
        drawn = torch.multinomial(weights, 1, generator=random)
        drawn = torch.where(temperatures[:, None] > 0, drawn, torch.zeros_like(drawn))
        chosen = tokens.gather(1, drawn)
        kept_tokens, kept_logs = tokens.to(torch.int32).numpy(), logs.half().numpy()
        for place, answer in enumerate(self._answers):
            if not self._has_ended[place]:
                answer.tokens.append(int(chosen[place]))
                answer.likeliest.append(kept_tokens[place])
                answer.logs.append(kept_logs[place])
                self._has_ended[place] = _is_done(answer, count, ends)
        return chosen

    def _step(self, chosen: Tensor, count: int) -> None:
        """Evaluate the texts' new tokens."""
        lengths = torch.tensor([len(each.prompt) for each in self._answers])
        positions = (lengths + count - 1)[:, None]
        length = int(positions.max()) + 1
        rows, read = self._target.evaluate(chosen, positions, self._memory, length)
        self._rows = rows[:, 0]
        for place, answer in enumerate(self._answers):
            if not self._has_ended[place]:
                answer.inputs.append(_halved(read[place]))


def _is_done(answer: Answer, count: int, ends: Collection[int]) -> bool:
    is_over = answer.tokens[-1] in ends
    return is_over or (count % LOOK_EVERY == 0 and is_looping(answer.tokens))


def _halved(read: Tensor) -> Any:
    return read.float().clamp(-65504, 65504).numpy().astype(np.float16)
