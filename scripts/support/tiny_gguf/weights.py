"""Random weights, scaled so that a tiny model's text varies and its choices are clear."""

import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Weights = NDArray[np.float32]
Tokens = NDArray[np.integer[Any]]

# Logits of this standard deviation give a most probable token of about 0.2 to 0.9.
LOGIT_SCALE = 5.0
# Scores of attention far from uniform, so that the context matters and greedy text does not loop.
SCORE_GAIN = 1.2
# With less gain these two loop on a token; with more, all of them amplify rounding.
BLOCK_GAIN = {"mamba": 1.2, "qwen3moe": 1.4}

# The perturbation that makes a draft agree with its target's argmax about half the time.
HALF_RIGHT = {
    "llama": 0.14,
    "qwen3": 0.14,
    "qwen3moe": 0.13,
    "gemma3": 0.1,
    "mamba": 0.04,
    "lfm2": 0.09,
    "qwen35": 0.09,
    "qwen2vl": 0.1,
    "qwen3vl": 0.1,
    "gemma4": 0.1,
    "granitehybrid": 0.11,
}


@dataclass(frozen=True, slots=True)
class Mixture:
    """Which random numbers: those of `seed`, mixed with others at the relative size `perturb`."""

    seed: int
    perturb: float = 0.0

    def draw(self, name: str, size: tuple[int, ...]) -> Weights:
        """Standard normal numbers, shape `size`, the same for the same tensor name and seed."""
        own = self._stream(name, 0).standard_normal(size)
        if self.perturb:
            others = self._stream(name, 1).standard_normal(size)
            own = (own + self.perturb * others) / np.hypot(1.0, self.perturb)
        return own.astype(np.float32)

    def _stream(self, name: str, part: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, part, zlib.crc32(name.encode())])


def make_tensor(mixture: Mixture, architecture: str, name: str, size: tuple[int, ...]) -> Weights:
    """The values of one tensor, float32 of shape `size`."""
    kind = name.split(".", 2)[2] if name.startswith("blk.") else name
    if kind.endswith("norm.weight"):
        return 1.0 + 0.1 * mixture.draw(name, size)
    if kind in _STATE_SPACE:
        return _STATE_SPACE[kind](size)
    noise = mixture.draw(name, size)
    if kind == "token_embd.weight":
        # Gemma multiplies its embeddings by the square root of the width.
        return noise / np.float32(np.sqrt(size[-1])) if architecture == "gemma3" else noise
    return noise * np.float32(_gain(architecture, kind) / np.sqrt(size[-1]))


def silence(output: Weights, tokens: tuple[int, ...]) -> None:
    """Keep `tokens` from being chosen: their rows of `output`, (vocabulary, width), become zero."""
    output[list(tokens)] = 0.0


def _gain(architecture: str, kind: str) -> float:
    if kind == "output.weight":
        return LOGIT_SCALE
    if kind in {"attn_q.weight", "attn_k.weight"}:
        return SCORE_GAIN
    return BLOCK_GAIN.get(architecture, 1.0)


def _time_step_bias(size: tuple[int, ...]) -> Weights:
    """Softplus of this runs from 0.02 to 0.5: some channels remember long, others forget."""
    steps = np.geomspace(0.02, 0.5, int(np.prod(size)), dtype=np.float32)
    return np.log(np.expm1(steps)).astype(np.float32).reshape(size)


def _decay(size: tuple[int, ...]) -> Weights:
    """The negative rates of decay, -1 to -n along the last axis longer than one."""
    if size[-1] == 1:
        return _decay(size[:-1]).reshape(size)
    rates = -np.arange(1, size[-1] + 1, dtype=np.float32)
    return np.ascontiguousarray(np.broadcast_to(rates, size))


_STATE_SPACE: dict[str, Callable[[tuple[int, ...]], Weights]] = {
    "ssm_a": _decay,
    "ssm_d": lambda size: np.ones(size, np.float32),
    "ssm_dt.bias": _time_step_bias,
    "ssm_conv1d.bias": lambda size: np.zeros(size, np.float32),
}
