"""Training a network on a target's answers (DistillSpec, Zhou et al. 2023).

Imports PyTorch, so it is imported only where training begins.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from pickle import UnpicklingError
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from specchat.derivation.answer_store import AnswerBatch, Example, collate
from specchat.derivation.draft_network import Shape
from specchat.derivation.head_network import HeadShape
from specchat.errors import SpecchatError

WARMUP_STEPS = 60
TEMPERATURE = 0.8
HARD_SHARE, OVERLAP_SHARE = 0.3, 2.0
"""At the end of training: the weight of the target's best token, and of the overlap above 0."""
SHARPENED_SHARE = 0.3
"""The last part of the training time, over which these weights rise from 0."""
CONSTANT_SHARE = 0.3
LEAST_RATE = 0.02

Numbers = NDArray[np.float64]
OF_TOKENS = ("token_embd.weight", "output.weight")
"""Names of the weights that have a row for each token."""


class Distillation(ABC):
    """A network in training, with its optimizers, which can be saved and restored."""

    rate: float
    rate_of_tokens: float
    """The learning rate of matrices, and that of weights with a row for each token."""

    def __init__(self, network: nn.Module, shape: Shape | HeadShape, *, threads: int) -> None:
        """Train an untrained network, on a CUDA device if there is one."""
        self.use_threads(threads)
        self._device = "cuda" if torch.cuda.is_available() else "cpu"
        self._module, self._sizes = network.to(self._device), asdict(shape)
        named = list(network.named_parameters())
        matrices = [tensor for name, tensor in named if tensor.dim() == 2 and name not in OF_TOKENS]
        others = [tensor for name, tensor in named if tensor.dim() < 2 or name in OF_TOKENS]
        self._optimizers: list[tuple[torch.optim.Optimizer, float]] = [
            (
                torch.optim.Muon(matrices, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"),
                self.rate,
            ),
            (torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0), self.rate_of_tokens),
        ]
        self.steps = 0
        self.seconds = 0.0
        self.agreement = self.merit = 0.0
        """The agreement and the merit of the best weights so far, on held-out answers."""
        self.best: dict[str, Tensor] = {}

    def use_threads(self, threads: int) -> None:
        """Set the number of threads for training."""
        torch.set_num_threads(threads)

    def step(self, batches: Sequence[AnswerBatch], share: float) -> float:
        """Train on some batches; `share` of the time has passed. Return the mean loss."""
        total = sum(len(batch.positions) for batch in batches)
        sharpness = max(0.0, (share - 1.0 + SHARPENED_SHARE) / SHARPENED_SHARE)
        losses = []
        for batch in batches:
            loss = self._loss(batch, share, sharpness)
            (loss * (len(batch.positions) / total)).backward()
            losses.append(loss.item())
        nn.utils.clip_grad_norm_(self._module.parameters(), 1.0)
        warmth = min((self.steps + 1) / WARMUP_STEPS, _schedule(share))
        for optimizer, rate in self._optimizers:
            for group in optimizer.param_groups:
                group["lr"] = rate * warmth
            optimizer.step()
            optimizer.zero_grad()
        self.steps += 1
        return sum(losses) / len(losses)

    def agreements(self, examples: Sequence[Example]) -> tuple[Numbers, Numbers]:
        """Return whether the best token is the target's, (tokens,), and the overlaps at 0.8.

        The overlap, the sum of min(p, q), is the chance that a drafted token is accepted:
        (runs, tokens), the first for the first token of a draft, the last for all later ones.
        """
        results = []
        for example in examples:
            with torch.no_grad():
                results.append(self._agreement(collate([example])))
        if not results:
            return np.zeros(0), np.zeros((1, 0))
        is_best, overlaps = zip(*results, strict=True)
        return torch.cat(is_best).cpu().double().numpy(), torch.cat(
            overlaps, 1
        ).cpu().double().numpy()

    def keep_if_better(self, merit: float, agreement: float) -> None:
        """Keep the current weights if they have more merit than all earlier ones."""
        if merit >= self.merit or not self.best:
            self.merit, self.agreement = merit, agreement
            state = self._module.state_dict()
            self.best = {name: weights.detach().clone() for name, weights in state.items()}

    def weights(self) -> dict[str, NDArray[Any]]:
        """Return the best weights by their names in GGUF."""
        state = self.best or self._module.state_dict()
        return {name: weights.detach().cpu().numpy() for name, weights in state.items()}

    def save(self, path: Path) -> None:
        """Save everything needed to resume, atomically."""
        state = {
            "shape": self._sizes,
            "network": self._module.state_dict(),
            "optimizers": [optimizer.state_dict() for optimizer, _ in self._optimizers],
            "progress": [self.steps, self.seconds, self.agreement, self.merit],
            "best": self.best,
        }
        part = path.with_suffix(".part")
        try:
            part.touch(mode=0o600)
            torch.save(state, part)
            part.replace(path)
        except BaseException as error:
            part.unlink(missing_ok=True)
            if isinstance(error, RuntimeError):  # PyTorch's for a full disk, too
                raise SpecchatError(f"{path} cannot be written: is the disk full?") from None
            raise

    def restore(self, path: Path) -> bool:
        """Resume from a saved state; return False and change nothing if none matches."""
        try:
            state: Any = torch.load(path, map_location=self._device, weights_only=True)
        except (OSError, RuntimeError, EOFError, ValueError, UnpicklingError):
            return False
        try:
            if not self._fits(state):
                return False
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):  # parts are missing
            return False
        self._module.load_state_dict(state["network"])
        for (optimizer, _), kept in zip(self._optimizers, state["optimizers"], strict=True):
            optimizer.load_state_dict(kept)
        self.steps, self.seconds, self.agreement, *more = state["progress"]
        self.merit = more[0] if more else self.agreement
        self.best = state["best"]
        return True

    def _fits(self, state: Any) -> bool:
        """Return True if a saved state has this shape; may raise if parts are missing."""
        shapes = _shapes(self._module.state_dict())
        has_weights = _shapes(state["network"]) == shapes
        has_best = _shapes(state["best"]) in ({}, shapes)
        optimizers = zip(self._optimizers, state["optimizers"], strict=True)
        has_optimizers = all(_suits(optimizer, kept) for (optimizer, _), kept in optimizers)
        has_progress = len([float(number) for number in state["progress"]]) in {3, 4}
        is_whole = has_weights and has_best and has_optimizers and has_progress
        return is_whole and state["shape"] == self._sizes

    @abstractmethod
    def _loss(self, batch: AnswerBatch, share: float, sharpness: float) -> Tensor:
        """Return the mean loss; sharpness, from 0 to 1, adds what acceptance counts."""

    @abstractmethod
    def _agreement(self, batch: AnswerBatch) -> tuple[Tensor, Tensor]:
        """Return what `agreements` does for a batch."""


def _shapes(weights: Mapping[str, Tensor]) -> dict[str, torch.Size]:
    return {name: tensor.shape for name, tensor in weights.items()}


def _suits(optimizer: torch.optim.Optimizer, kept: Mapping[str, Any]) -> bool:
    """Return whether a saved state fits such an optimizer: as many weights, of the same sizes."""
    parameters = []
    for own, saved in zip(optimizer.param_groups, kept["param_groups"], strict=True):
        if not saved.keys() <= own.keys() or len(saved["params"]) != len(own["params"]):
            return False
        parameters += own["params"]
    return all(
        value.shape in ((), parameters[number].shape)
        for number, values in kept["state"].items()
        for value in values.values()
    )


def _schedule(share: float) -> float:
    """Return the learning-rate factor at a share of the time: constant, then a cosine."""
    fallen = max(0.0, share - CONSTANT_SHARE) / (1.0 - CONSTANT_SHARE)
    return LEAST_RATE + (1.0 - LEAST_RATE) * 0.5 * (1.0 + math.cos(math.pi * min(1.0, fallen)))
