"""Simulated pairs for tests: cost tables, and texts with random distributions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from specchat.decoding.distribution import Distribution
from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import DraftToken
from specchat.derivation.simulated_pair import (
    RIGHT,
    WRONG,
    SimulatedMachine,
    knowledge_of,
    unsure,
    verify_greedily,
    verify_sampled,
)

__all__ = [
    "CPU",
    "FLAT",
    "LINE",
    "RIGHT",
    "STAIRS",
    "WRONG",
    "Drawing",
    "SimulatedMachine",
    "always",
    "best_fixed",
    "knowledge_of",
    "unsure",
    "verify_greedily",
]

LONGEST_TEXT = 1_200
LINE = [0.0, *(1 + 0.3 * more for more in range(40))]
FLAT = [0.0, *(1 + 0.02 * more for more in range(40))]
STAIRS = [
    0.0,
    *([1.0, 1.5, 2.0, 1.4, 1.9, 2.4, 2.6, 2.1] + [2.2 + 0.1 * more for more in range(32)]),
]

CPU = [0.0, *np.interp(
    range(1, 41),
    (1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 16, 17, 24, 33, 40),
    (1, 1.65, 2.3, 2.5, 3.15, 3.8, 4.4, 4.3, 5.3, 6.2, 6.2, 6.6, 9.9, 12.6, 15),
)]  # fmt: skip
"""As measured on two quiet cores: only long drafts that are nearly always right pay."""


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


def best_fixed(machine: SimulatedMachine, longest: int = 16) -> float:
    """Return the tokens per second of the best fixed draft length at the present acceptance.

    After a draft that was kept whole the next one begins with a pass over two tokens.
    """
    chance, costs = machine.chance(machine.emitted), machine.costs
    another = costs[2] - costs[1]
    rates = (
        sum(chance**kept for kept in range(length + 1))
        / (machine.draft_cost * (length + chance**length * another) + costs[length + 1])
        for length in range(1, longest + 1)
    )
    return max(1 / costs[1], *rates)


def always(chance: float) -> Callable[[int], float]:
    """Return a chance that never changes."""
    return lambda _: chance
