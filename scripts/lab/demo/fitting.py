"""The training loop: workers share each step, so a busy core slows only one of them."""

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from scripts.lab.demo.batches import Batch, Batches
from scripts.lab.demo.network import Network

BATCHES_PER_STEP = 2
SAVE_EVERY_S = 180.0


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how fast to learn."""

    steps: int
    rate: float
    first_batch: int
    warmup: int = 50
    cooldown_share: float = 0.35


Loss = Callable[[Tensor, Batch], Tensor]


def next_token_loss(logits: Tensor, batch: Batch) -> Tensor:
    """Return the cross entropy with the actual next token."""
    losses = functional.cross_entropy(
        logits.float().flatten(0, 1), batch.targets.flatten(), reduction="none"
    )
    return weighted_mean(losses, batch)


def distillation_loss(teacher: Network) -> Loss:
    """Cross entropy with what the teacher would say."""

    def loss(logits: Tensor, batch: Batch) -> Tensor:
        with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):
            wanted = teacher(batch.tokens, batch.positions).float().flatten(0, 1).softmax(-1)
        predicted = logits.float().flatten(0, 1).log_softmax(-1)
        return weighted_mean(-(wanted * predicted).sum(-1), batch)

    return loss


def weighted_mean(losses: Tensor, batch: Batch) -> Tensor:
    """The mean over tokens, each by its weight."""
    weights = batch.weights.flatten()
    return (losses * weights).sum() / weights.sum()


class Fitting:
    """One network on its way through a plan, able to go on from a checkpoint."""

    def __init__(
        self, network: Network, plan: Plan, batches: Batches, loss: Loss, save: Path
    ) -> None:
        self.network = network
        self._plan, self._batches, self._loss, self._save = plan, batches, loss, save
        self._parameters = list(network.parameters())
        matrices = [p for n, p in network.named_parameters() if p.dim() == 2 and "embd" not in n]
        others = [p for n, p in network.named_parameters() if p.dim() < 2 or "embd" in n]
        self._optimisers: list[torch.optim.Optimizer] = [
            torch.optim.Muon(
                matrices, lr=plan.rate, weight_decay=0.1, adjust_lr_fn="match_rms_adamw"
            ),
            torch.optim.AdamW(others, lr=plan.rate, betas=(0.9, 0.95), weight_decay=0.0),
        ]
        self._step = 0

    def run(self) -> None:
        """Train from the last checkpoint, if any, to the end of the plan."""
        self._restore()
        started = saved = time.monotonic()
        first = self._step
        with ThreadPoolExecutor(
            BATCHES_PER_STEP, initializer=torch.set_num_threads, initargs=(1,)
        ) as pool:
            while self._step < self._plan.steps:
                loss = self._advance(pool)
                now = time.monotonic()
                if self._step % 10 == 0:
                    pace = (now - started) / (self._step - first)
                    print(
                        f"{self._save.stem} step {self._step} loss {loss:.4f} {pace:.2f} s",
                        flush=True,
                    )
                if now - saved > SAVE_EVERY_S or self._step == self._plan.steps:
                    self._store()
                    saved = now

    def _advance(self, pool: ThreadPoolExecutor) -> float:
        rate = self._plan.rate * self._schedule()
        numbers = [
            self._plan.first_batch + self._step * BATCHES_PER_STEP + i
            for i in range(BATCHES_PER_STEP)
        ]
        results = list(pool.map(self._gradients, numbers))
        for index, parameter in enumerate(self._parameters):
            total = torch.stack([gradients[index] for _, gradients in results])
            parameter.grad = total.mean(0)
        torch.nn.utils.clip_grad_norm_(self._parameters, 1.0)
        for optimiser in self._optimisers:
            for group in optimiser.param_groups:
                group["lr"] = rate
            optimiser.step()
        self._step += 1
        return sum(loss for loss, _ in results) / len(results)

    def _gradients(self, number: int) -> tuple[float, tuple[Tensor, ...]]:
        batch = self._batches.make(number)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            logits = self.network(batch.tokens, batch.positions)
        loss = self._loss(logits, batch)
        return loss.item(), torch.autograd.grad(loss, self._parameters)

    def _schedule(self) -> float:
        """Rise, stay, then fall in a straight line to a tenth of a percent."""
        plan = self._plan
        left = (plan.steps - self._step) / (plan.steps * plan.cooldown_share)
        return min(1.0, (self._step + 1) / plan.warmup, max(left, 0.001))

    def _store(self) -> None:
        state = {
            "step": self._step,
            "network": self.network.state_dict(),
            "optimisers": [optimiser.state_dict() for optimiser in self._optimisers],
        }
        part = self._save.with_suffix(".part")
        torch.save(state, part)
        part.replace(self._save)

    def _restore(self) -> None:
        if not self._save.exists():
            return
        state = torch.load(self._save, weights_only=True)
        self._step = state["step"]
        self.network.load_state_dict(state["network"])
        for optimiser, kept in zip(self._optimisers, state["optimisers"], strict=True):
            optimiser.load_state_dict(kept)


def stacked(shallow: Network, deep: Network) -> Network:
    """Start a deep network from a shallow one by laying its layers on top of each other."""
    deep.token_embd.load_state_dict(shallow.token_embd.state_dict())
    deep.output_norm.load_state_dict(shallow.output_norm.state_dict())
    for index, block in enumerate(deep.blk):
        block.load_state_dict(shallow.blk[index % len(shallow.blk)].state_dict())
    return deep
