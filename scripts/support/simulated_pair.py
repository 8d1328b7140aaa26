"""Simulated pairs for tests: cost tables, and texts with random distributions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import exp

import numpy as np

from scripts.support.simulated_machine import (
    ORIGIN,
    RIGHT,
    WRONG,
    SimulatedMachine,
    measured,
    unsure,
    verify_greedily,
    verify_sampled,
)
from specchat.decoding.distribution import Distribution
from specchat.decoding.fixed_pacer import FixedPacer
from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import DraftToken
from specchat.pacing.knowledge import LONGEST_KNOWN
from specchat.passes.pass_costs import ON_GPU, REPACKED, UNQUANTISED

__all__ = [
    "ORIGIN",
    "RIGHT",
    "WRONG",
    "Drawing",
    "SimulatedMachine",
    "always",
    "measured",
    "unsure",
    "verify_greedily",
]

LONGEST_TEXT, LONGEST_TOLD, NUM_FOR_BEST = 1_200, 50_000, 3_000
DISTURBED, STALL = 0.05, 3.0
"""The share of passes that something else holds up, and how many times longer they take."""


def stair(known: Mapping[int, float]) -> list[float]:
    """Return the costs of passes by their number of tokens, on lines between known ones.

    Longer ones grow in proportion.
    """
    counts = np.arange(1, LONGEST_KNOWN + 2)
    costs = np.interp(counts, list(known), list(known.values()))
    return [0.0, *(costs * np.maximum(1.0, counts / max(known))).tolist()]


MACHINES = {
    "AVX-512": stair({1: 1.0, 2: 1.61, 3: 2.21, 4: 1.68, 5: 2.31, 8: 2.92, 16: 4.21, 33: 8.2}),
    "AVX2": stair({1: 1.0, 2: 1.69, 3: 2.36, 4: 2.39, 5: 3.09, 8: 5.62, 16: 10.0, 33: 20.0}),
    "F16": stair({1: 1.0, 2: 1.06, 3: 1.18, 4: 1.48, 5: 1.65, 8: 2.12, 16: 2.9, 33: 5.0}),
    "H200": stair({1: 1.0, 2: 1.093, 4: 1.416, 8: 2.059, 16: 2.478, 33: 3.168}),
}
"""Costs as measured: a 1.1B Q4_0 file on two cores with AVX-512 or AVX2, a 0.5B F16 file with AVX2,
and an 8B file on an H200, where a pass after one of another length takes CHANGE_ON_H200 more."""
CHANGE_ON_H200 = 0.3
USUAL = {"AVX-512": REPACKED, "AVX2": REPACKED, "F16": UNQUANTISED, "H200": ON_GPU}
"""What is taken for granted of these before anything is measured."""


@dataclass
class NoisyMachine(SimulatedMachine):
    """A pair with what real machines add: noise, stalls, and passes that prepare for their length.

    `noise` is the deviation of the logarithm of measured times. Passes after one of another length
    take `change` more, and plain ones `settling` right after drafting, half of it the next time.
    Measured time is not the time that passed: a stall is not what a decision cost.
    """

    noise: float = 0.05
    change: float = 0.0
    settling: float = 0.1
    measured: float = 0.0
    slowdown: float = 1.0
    last_length: int = 1
    num_plain: int = 0

    def __post_init__(self) -> None:
        """Prepare the randomness."""
        super().__post_init__()
        self.disturbance = np.random.default_rng(self.random_seed + 1000)

    def clock(self) -> float:
        """Return the time as it is measured."""
        return self.measured

    def take(self, nominal: float) -> float:
        """Let a pass take its time; return what is measured."""
        self.seconds += nominal
        stall = STALL if self.disturbance.random() < DISTURBED else 1.0
        taken = nominal * self.slowdown * stall * exp(self.noise * self.disturbance.normal())
        self.measured += taken
        return taken

    def pass_seconds(self, length: int) -> float:
        """Return the time of a target pass."""
        changed = self.change if length != self.last_length else 0.0
        settling = self.settling * 0.5**self.num_plain if length == 1 else 0.0
        self.last_length = length
        self.num_plain = self.num_plain + 1 if length == 1 else 0
        return self.costs[length] + (changed + settling) * self.costs[1]


@dataclass
class SampledMachine(SimulatedMachine):
    """The same above temperature 0, where a place in the text has distributions.

    `wanted` are the target's and `offered` the draft model's; behind the last place the text begins
    again.
    """

    wanted: Sequence[Distribution] = ()
    offered: Sequence[Distribution] = ()

    def proposed(self, place: int) -> tuple[float, Distribution]:
        """Return what the drafter of the draft model would."""
        distribution = self.offered[place % len(self.offered)]
        return 0.5 + 0.5 * distribution.largest_share, distribution

    def drawn(self, distribution: Distribution) -> int:
        """Draw a drafted token."""
        return distribution.sample(self.random.random)

    def verify(self, pacer: Pacer, draft: Sequence[DraftToken]) -> int:
        """Verify as is done above temperature 0."""
        first = self.emitted

        def target(place: int) -> Distribution:
            return self.wanted[(first + place) % len(self.wanted)]

        return verify_sampled(pacer, draft, target, self.random.random)


@dataclass
class Drawing(SampledMachine):
    """A pair above temperature 0; `noise` is the deviation of the draft model's logits."""

    noise: float = 0.25
    temperature: float = 0.5

    def __post_init__(self) -> None:
        """Prepare the text."""
        super().__post_init__()
        wanted = self.random.normal(size=(LONGEST_TEXT, 12)) / self.temperature
        drafted = wanted + self.random.normal(size=wanted.shape) * self.noise
        self.wanted, self.offered = (
            [Distribution(np.arange(12), row) for row in np.exp(logits)]
            for logits in (wanted, drafted)
        )


class ConstantPacer(FixedPacer):
    """Drafts a number of tokens in every step: what a user could have typed."""

    def __init__(self, length: int) -> None:
        """Draft up to `length` tokens."""
        super().__init__()
        self._length = length

    def begin_step(self, depth: int, limit: int, num_forced: int = 0, num_sharing: int = 1) -> None:
        """Begin a step."""
        super().begin_step(depth, min(limit, self._length), num_forced, num_sharing)


def best_constant(make: Callable[[int], SimulatedMachine], lengths: Iterable[int]) -> float:
    """Return the tokens per second of the best of some draft lengths, 0 for plain decoding."""
    return max(make(1).decode(ConstantPacer(length), NUM_FOR_BEST) for length in lengths)


def always(chance: float) -> Callable[[int], float]:
    """Return a chance that never changes."""
    return lambda _: chance


def told(seed: int, share: float) -> tuple[Callable[[int], float], Callable[[int], float]]:
    """Return chances and confidences of a text, a share of which is nearly always accepted.

    The confidence tells these from the others, as a draft model's does.
    """
    random = np.random.default_rng(seed + 77)
    is_sure = random.random(LONGEST_TOLD) < share
    spread = 0.05 * random.normal(size=LONGEST_TOLD)
    chances = np.where(is_sure, 0.95, 0.25)
    confidences = np.clip(np.where(is_sure, 0.9, 0.45) + spread, 0.0, 1.0)
    return chances.__getitem__, confidences.__getitem__
