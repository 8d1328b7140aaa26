"""Trains a prediction head on the inputs of the target's layers along its answers (EAGLE-3).

Li et al. 2025: the head also learns to continue from its own rows ("training-time test"). Here it
does so for NUM_RUNS - 1 tokens, and only once it predicts the first one well.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from specchat.derivation.answer_store import AnswerBatch, Example
from specchat.derivation.distillation import TEMPERATURE, Distillation
from specchat.derivation.head_network import HeadNetwork, HeadShape

NUM_RUNS, FIRST_RUN_SHARE = 3, 0.4
"""How many tokens ahead it learns to draft, and the share of the time for the first alone."""
LATER_SHARE, LATER_WEIGHT = 0.4, 0.7
"""The share of rows that learn later tokens, and the weight of each such token against the last."""
OVERLAP_SHARE = 40.0
"""The weight of the overlap at the end of training, so that it is nearly all that counts.

On SmolLM2's head 80 steps with 40 brought 0.17 percentage points more overlap than before, 60 with
8 brought 0.02, and 60 with 2 lost 0.06; the best token was the target's as often.
"""
ROWS_AT_ONCE = 128
"""The logits of more rows do not fit in a processor's caches."""


class HeadDistillation(Distillation):
    """A prediction head in training."""

    rate, rate_of_tokens = 2e-3, 5e-4

    def __init__(
        self, shape: HeadShape, embedding: NDArray[np.float32], *, threads: int, seed: int
    ) -> None:
        """Make an untrained head; `embedding` is the target's."""
        torch.manual_seed(seed)
        self.network = HeadNetwork(shape)
        super().__init__(self.network, shape, threads=threads)
        self._embedding = torch.tensor(embedding).to(self._device, torch.bfloat16)
        self._indices, self._begins_with_all = torch.empty(0), False
        self._find_indices()

    def begin_with(
        self, output: NDArray[np.float32], norm: NDArray[np.float32], tokens: NDArray[np.int64]
    ) -> None:
        """Start from the target's output matrix and norm; `tokens` are those it can draft."""
        network, width = self.network, self.network.shape.width
        with torch.no_grad():
            network.d2t.copy_(torch.tensor(tokens))
            network.output.weight.copy_(torch.tensor(output[tokens]))
            network.output_norm.weight.copy_(torch.tensor(norm))
            network.fc.weight[:, -width:] += torch.eye(width, device=self._device)
        self._find_indices()

    def restore(self, path: Path) -> bool:
        """Resume from a saved state, with all runs; return False if none has this shape."""
        self._begins_with_all = super().restore(path)
        self._find_indices()
        return self._begins_with_all

    def _find_indices(self) -> None:
        """Record the index of each token among those that can be drafted, -1 for others."""
        tokens = self.network.d2t
        self._indices = torch.full((len(self._embedding),), -1, device=self._device)
        self._indices[tokens] = torch.arange(len(tokens), device=self._device)

    def _runs(self, batch: AnswerBatch, count: int) -> list[Tensor]:
        """Return the flattened rows of each run, in the order of `HeadNetwork.runs`."""
        tokens = torch.from_numpy(batch.tokens).long().to(self._device)
        read = torch.tensor(batch.inputs).to(self._device, torch.bfloat16)
        with torch.autocast(self._device, dtype=torch.bfloat16):
            runs = list(self.network.runs(self._embedding[tokens], read, count))
        return [rows.flatten(0, 1).bfloat16() for rows in runs]

    def _wanted(
        self, batch: AnswerBatch, run: int, share: float = 1.0
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the rows that predict an answer's tokens, and the target's likeliest tokens there.

        A row is made of the token after its position and predicts the one after that, so it comes
        one position before the batch's.
        """
        length = batch.tokens.shape[1]
        chosen = np.flatnonzero(batch.positions % length > run)
        if share < 1.0:
            chosen = chosen[torch.rand(len(chosen)).numpy() < share]
        rows = torch.from_numpy(batch.positions[chosen] - 1).long()
        likeliest = torch.from_numpy(batch.likeliest[chosen]).long()
        logs = torch.from_numpy(batch.logs[chosen])
        return rows.to(self._device), likeliest.to(self._device), logs.to(self._device)

    def _agreement(self, batch: AnswerBatch) -> tuple[Tensor, Tensor]:
        count, best, overlaps = len(batch.positions), list[Tensor](), list[Tensor]()
        for run, hidden in enumerate(self._runs(batch, NUM_RUNS)):
            rows, likeliest, logs = self._wanted(batch, run)
            weight = self.network.output.weight.to(hidden.dtype)
            logits = functional.linear(hidden[rows], weight).float()
            indices = self._indices[likeliest]
            offered = (logits / TEMPERATURE).softmax(-1).gather(1, indices.clamp_min(0))
            both = torch.minimum((logs / TEMPERATURE).softmax(-1), offered * (indices >= 0)).sum(-1)
            best.append(functional.pad(logits.argmax(-1) == indices[:, 0], (count - len(rows), 0)))
            overlaps.append(functional.pad(both, (count - len(rows), 0)))
        return best[0], torch.stack(overlaps)

    def _loss(self, batch: AnswerBatch, share: float, sharpness: float) -> Tensor:
        is_early = share < FIRST_RUN_SHARE and not self._begins_with_all
        count = 1 if is_early else NUM_RUNS
        total: Any = 0.0
        for run, hidden in enumerate(self._runs(batch, count)):
            rows, likeliest, logs = self._wanted(batch, run, LATER_SHARE if run else 1.0)
            loss = _OutputLoss.apply(
                hidden[rows],
                self.network.output.weight,
                self._indices[likeliest],
                logs,
                sharpness,
            )
            total = total + loss * LATER_WEIGHT**run
        return total


class _OutputLoss(torch.autograd.Function):
    """The mean loss of rows, with its gradients, without keeping all rows' logits.

    Most of the time would otherwise go into moving logits of many indices through memory.
    """

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, indices: Tensor, logs: Tensor, sharpness: float
    ) -> Tensor:
        """Return the loss; `indices` are the likeliest tokens' (rows, LIKELIEST), -1 for none."""
        matrix = weight.to(hidden.dtype)
        of_hidden, of_weight = torch.empty_like(hidden), torch.zeros_like(weight)
        total = torch.zeros((), device=hidden.device)
        for first in range(0, len(hidden), ROWS_AT_ONCE):
            part = slice(first, first + ROWS_AT_ONCE)
            logits = functional.linear(hidden[part], matrix).float().requires_grad_()
            with torch.enable_grad():
                loss = _loss_of(logits, indices[part], logs[part], sharpness) / len(hidden)
            (gradient,) = torch.autograd.grad(loss, logits)
            gradient = gradient.to(hidden.dtype)
            of_hidden[part] = gradient @ matrix
            of_weight += gradient.T @ hidden[part]
            total += loss.detach()
        ctx.save_for_backward(of_hidden, of_weight)
        return total

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None, None]:
        """Return the gradients of the rows and of the matrix."""
        of_hidden, of_weight = ctx.saved_tensors
        return of_hidden * gradients[0], of_weight * gradients[0], None, None, None


def _loss_of(logits: Tensor, indices: Tensor, logs: Tensor, sharpness: float) -> Tensor:
    """Return the sum of the rows' cross entropies; sharpness adds the overlap with the target."""
    is_kept = indices >= 0
    gathered = logits.gather(1, indices.clamp_min(0))
    predicted = gathered - torch.logsumexp(logits, -1, keepdim=True)
    loss = -(logs.exp() * predicted * is_kept).sum()
    if sharpness:
        whole = torch.logsumexp(logits / TEMPERATURE, -1, keepdim=True)
        offered = (gathered / TEMPERATURE - whole).exp() * is_kept
        overlap = torch.minimum((logs / TEMPERATURE).softmax(-1), offered).sum()
        loss = loss + sharpness * OVERLAP_SHARE * (len(logits) - overlap)
    return loss


def drafted_tokens(examples: Sequence[Example], size: int, count: int) -> NDArray[np.int64]:
    """Return the `count` tokens that the target's answers give the highest probabilities.

    Among tokens that never occur, the lowest ids are taken: a tokenizer merges frequent ones first.
    """
    chances = np.zeros(size)
    for example in examples:
        np.add.at(chances, example.likeliest, np.exp(example.logs.astype(np.float32)))
    return np.sort(np.argsort(-chances, kind="stable")[:count]).astype(np.int64)
