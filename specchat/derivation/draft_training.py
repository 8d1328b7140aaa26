"""Training a small draft model on a target's answers."""

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from specchat.derivation.answer_store import AnswerBatch
from specchat.derivation.distillation import HARD_SHARE, OVERLAP_SHARE, TEMPERATURE, Distillation
from specchat.derivation.draft_network import Network, Shape

NUM_STRANGERS = 2048
"""The number of randomly drawn tokens that stand for all that are unlikely throughout a batch."""
EMBEDDING_DEVIATION = 0.04


class DraftDistillation(Distillation):
    """A small model of the target's vocabulary in training."""

    rate, rate_of_tokens = 4e-3, 1.4e-3

    def __init__(self, shape: Shape, *, threads: int, seed: int) -> None:
        """Make an untrained network."""
        torch.manual_seed(seed)
        self.network = Network(shape)
        super().__init__(self.network, shape, threads=threads)

    def begin_with(self, embedding: NDArray[np.float32]) -> None:
        """Start from the target's embedding, as far as the width allows."""
        weights = torch.from_numpy(embedding).to(self._device)
        weights = weights - weights.mean(0)
        width = min(self.network.shape.width, weights.shape[1])
        _, directions = torch.linalg.eigh(weights.T @ weights)
        turned = torch.linalg.qr(torch.randn(width, width, device=self._device))[0]
        kept = weights @ directions[:, -width:] @ turned  # even parts survive quantization best
        with torch.no_grad():
            initial = self.network.token_embd.weight[: len(kept), :width]
            initial.copy_(kept / kept.std() * EMBEDDING_DEVIATION)

    def _rows(self, batch: AnswerBatch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the hidden states of the answers, and the target's likeliest tokens there."""
        tokens = torch.from_numpy(batch.tokens).long().to(self._device)
        positions = torch.arange(tokens.shape[1], device=self._device)[None].expand_as(tokens)
        with torch.autocast(self._device, dtype=torch.bfloat16):
            hidden = self.network.hidden(tokens, positions).flatten(0, 1)
        rows = torch.from_numpy(batch.positions).long().to(self._device)
        likeliest = torch.from_numpy(batch.likeliest).long().to(self._device)
        logs = torch.from_numpy(batch.logs).to(self._device)
        return hidden[rows].bfloat16(), likeliest, logs

    def _agreement(self, batch: AnswerBatch) -> tuple[Tensor, Tensor]:
        hidden, likeliest, logs = self._rows(batch)
        embedding = self.network.token_embd.weight.to(hidden.dtype)
        logits = functional.linear(hidden, embedding).float()
        offered = (logits / TEMPERATURE).softmax(-1).gather(1, likeliest)
        overlap = torch.minimum((logs / TEMPERATURE).softmax(-1), offered).sum(-1)
        return logits.argmax(-1) == likeliest[:, 0], overlap[None]

    def _loss(self, batch: AnswerBatch, share: float, sharpness: float) -> Tensor:
        """Return the cross entropy with the target; sharpness adds the overlap."""
        del share
        hidden, likeliest, logs = self._rows(batch)
        tokens, indices = torch.unique(likeliest, return_inverse=True)
        strangers, weight = self._strangers(tokens)
        candidates = torch.cat([tokens, strangers])
        rows = self.network.token_embd.weight[candidates].to(hidden.dtype)
        logits = functional.linear(hidden, rows).float()
        gathered = logits.gather(1, indices)
        offset = torch.zeros(len(candidates), device=self._device)
        offset[len(tokens) :] = weight
        predicted = gathered - torch.logsumexp(logits + offset, -1)[:, None]
        loss = -(logs.exp() * predicted).sum(-1).mean()
        if sharpness:
            whole = torch.logsumexp(logits / TEMPERATURE + offset, -1)[:, None]
            offered = (gathered / TEMPERATURE - whole).exp()
            overlap = torch.minimum((logs / TEMPERATURE).softmax(-1), offered).sum(-1).mean()
            hard = -predicted[:, 0].mean()
            changed = HARD_SHARE * (hard - loss) + OVERLAP_SHARE * (1.0 - overlap)
            loss = loss + sharpness * changed
        return loss

    def _strangers(self, tokens: Tensor) -> tuple[Tensor, float]:
        """Return random other tokens, and the logarithm of the number that each stands for."""
        size = self.network.shape.vocabulary
        is_other = torch.ones(size, dtype=torch.bool, device=self._device)
        is_other[tokens] = False
        drawn = torch.randint(size, (min(NUM_STRANGERS, size),), device=self._device)
        drawn = drawn[is_other[drawn]]
        num_others = max(1, size - len(tokens))
        return drawn, math.log(num_others / max(1, len(drawn)))
