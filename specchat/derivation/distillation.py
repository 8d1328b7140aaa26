"""Training a draft's network on a target's answers (DistillSpec, Zhou et al. 2023).

Imports PyTorch, so it is imported only where training begins.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from specchat.derivation.answer_store import Batch, Example, collate
from specchat.derivation.draft_network import Network, Shape

RATE, EMBEDDING_SHARE = 4e-3, 0.35
"""The learning rate of matrices, and that of the embedding as a share of it."""
WARMUP_STEPS = 60
NUM_STRANGERS = 2048
"""Tokens drawn at random that stand for all that no place of a batch has among its likeliest."""
EMBEDDING_DEVIATION = 0.04
TEMPERATURE = 0.8
HARD_SHARE, OVERLAP_SHARE = 0.3, 2.0
"""At the end of training: the weight of the target's best token, and of the overlap above 0."""
SHARPENED_SHARE = 0.3
"""The last part of the time, in which these weights rise from 0."""
CONSTANT_SHARE = 0.3
LEAST_RATE = 0.02


class Distillation:
    """A network in training, with its optimizers, which can be saved and restored."""

    def __init__(self, shape: Shape, *, threads: int, seed: int) -> None:
        """Make an untrained network, on a CUDA device if there is one."""
        torch.manual_seed(seed)
        self.use_threads(threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self.network = Network(shape).to(self._device)
        named = list(self.network.named_parameters())
        matrices = [each for name, each in named if each.dim() == 2 and "embd" not in name]
        others = [each for name, each in named if each.dim() < 2 or "embd" in name]
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"), 1.0),
            (torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0), EMBEDDING_SHARE),
        ]
        self.steps = 0
        self.seconds = 0.0
        self.agreement = 0.0
        """The best agreement on held-out answers so far."""
        self.best: dict[str, Tensor] = {}

    def begin_with(self, embedding: NDArray[np.float32]) -> None:
        """Take over what the target's embedding says of tokens, as far as the width allows."""
        weights = torch.from_numpy(embedding).to(self._device)
        weights = weights - weights.mean(0)
        width = min(self.network.shape.width, weights.shape[1])
        _, directions = torch.linalg.eigh(weights.T @ weights)
        turned = torch.linalg.qr(torch.randn(width, width, device=self._device))[0]
        kept = weights @ directions[:, -width:] @ turned  # even parts survive quantization best
        with torch.no_grad():
            place = self.network.token_embd.weight[: len(kept), :width]
            place.copy_(kept / kept.std() * EMBEDDING_DEVIATION)

    def use_threads(self, threads: int) -> None:
        """Train with this number of threads from now on."""
        torch.set_num_threads(threads)

    def step(self, batches: Sequence[Batch], share: float) -> float:
        """Train on some batches; `share` of the time has passed. Return the mean loss."""
        total = sum(len(batch.places) for batch in batches)
        sharpness = max(0.0, (share - 1.0 + SHARPENED_SHARE) / SHARPENED_SHARE)
        losses = []
        for batch in batches:
            loss = self._loss(batch, sharpness)
            (loss * (len(batch.places) / total)).backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(self.network.parameters(), 1.0)
        rate = RATE * min((self.steps + 1) / WARMUP_STEPS, _schedule(share))
        for optimizer, factor in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * factor
            optimizer.step()
            optimizer.zero_grad()
        self.steps += 1
        return sum(losses) / len(losses)

    def agreements(self, examples: Sequence[Example]) -> Iterator[tuple[float, float]]:
        """Yield for each place whether the best token is the target's, and the overlap at 0.8.

        The overlap, the sum of min(p, q), is the chance that a drafted token is accepted.
        """
        for example in examples:
            with torch.no_grad():
                is_best, overlap = self._agreement(collate([example]))
            yield from zip(is_best.float().tolist(), overlap.tolist(), strict=True)

    def keep_if_better(self, agreement: float) -> None:
        """Keep the present weights if they agree better than any before."""
        if agreement >= self.agreement or not self.best:
            self.agreement = agreement
            state = self.network.state_dict()
            self.best = {name: weights.detach().clone() for name, weights in state.items()}

    def weights(self) -> dict[str, NDArray[np.float32]]:
        """Return the best weights by their names in GGUF."""
        found = self.best or self.network.state_dict()
        return {name: weights.detach().float().cpu().numpy() for name, weights in found.items()}

    def save(self, path: Path) -> None:
        """Write everything needed to go on, whole or not at all."""
        part = path.with_suffix(".part")
        torch.save(
            {
                "shape": asdict(self.network.shape),
                "network": self.network.state_dict(),
                "optimizers": [each.state_dict() for each, _ in self._optimizers],
                "progress": [self.steps, self.seconds, self.agreement],
                "best": self.best,
            },
            part,
        )
        part.chmod(0o600)
        part.replace(path)

    def restore(self, path: Path) -> bool:
        """Go on from a saved state; return False if there is none of this shape."""
        try:
            state: Any = torch.load(path, map_location=self._device, weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, UnpicklingError):
            return False
        if not isinstance(state, dict) or state.get("shape") != asdict(self.network.shape):
            return False
        self.network.load_state_dict(state["network"])
        for (optimizer, _), kept in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.steps, self.seconds, self.agreement = state["progress"]
        self.best = state["best"]
        return True

    def _rows(self, batch: Batch) -> tuple[Tensor, Tensor, Tensor]:
        """Return the hidden rows of the answers, and what the target finds likeliest there."""
        tokens = torch.from_numpy(batch.tokens).long().to(self._device)
        positions = torch.arange(tokens.shape[1], device=self._device)[None].expand_as(tokens)
        with torch.autocast(self._device, dtype=torch.bfloat16):
            hidden = self.network.hidden(tokens, positions).flatten(0, 1)
        places = torch.from_numpy(batch.places).long().to(self._device)
        likeliest = torch.from_numpy(batch.likeliest).long().to(self._device)
        logs = torch.from_numpy(batch.logs).to(self._device)
        return hidden[places].bfloat16(), likeliest, logs

    def _agreement(self, batch: Batch) -> tuple[Tensor, Tensor]:
        hidden, likeliest, logs = self._rows(batch)
        embedding = self.network.token_embd.weight.to(hidden.dtype)
        logits = functional.linear(hidden, embedding).float()
        offered = (logits / TEMPERATURE).softmax(-1).gather(1, likeliest)
        overlap = torch.minimum((logs / TEMPERATURE).softmax(-1), offered).sum(-1)
        return logits.argmax(-1) == likeliest[:, 0], overlap

    def _loss(self, batch: Batch, sharpness: float) -> Tensor:
        """Return the cross entropy with the target; with sharpness also what acceptance counts."""
        hidden, likeliest, logs = self._rows(batch)
        tokens, places = torch.unique(likeliest, return_inverse=True)
        strangers, weight = self._strangers(tokens)
        candidates = torch.cat([tokens, strangers])
        rows = self.network.token_embd.weight[candidates].to(hidden.dtype)
        logits = functional.linear(hidden, rows).float()
        known = logits.gather(1, places)
        offset = torch.zeros(len(candidates), device=self._device)
        offset[len(tokens) :] = weight
        predicted = known - torch.logsumexp(logits + offset, -1)[:, None]
        loss = -(logs.exp() * predicted).sum(-1).mean()
        if sharpness:
            whole = torch.logsumexp(logits / TEMPERATURE + offset, -1)[:, None]
            offered = (known / TEMPERATURE - whole).exp()
            overlap = torch.minimum((logs / TEMPERATURE).softmax(-1), offered).sum(-1).mean()
            hard = -predicted[:, 0].mean()
            changed = HARD_SHARE * (hard - loss) + OVERLAP_SHARE * (1.0 - overlap)
            loss = loss + sharpness * changed
        return loss

    def _strangers(self, tokens: Tensor) -> tuple[Tensor, float]:
        """Return random other tokens, and the logarithm of how many tokens each stands for."""
        size = self.network.shape.vocabulary
        is_other = torch.ones(size, dtype=torch.bool, device=self._device)
        is_other[tokens] = False
        drawn = torch.randint(size, (min(NUM_STRANGERS, size),), device=self._device)
        drawn = drawn[is_other[drawn]]
        num_others = max(1, size - len(tokens))
        return drawn, math.log(num_others / max(1, len(drawn)))


def _schedule(share: float) -> float:
    """Return the share of the learning rate after a share of the time: constant, then a cosine."""
    fallen = max(0.0, share - CONSTANT_SHARE) / (1.0 - CONSTANT_SHARE)
    return LEAST_RATE + (1.0 - LEAST_RATE) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, fallen)))
