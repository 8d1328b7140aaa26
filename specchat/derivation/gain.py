"""Predicts a draft's gain by simulating pacing on its guesses and the target's.

The target and the draft each evaluate the target's answers once, which gives, at each index, the
token that the target wants and the one that the draft would have proposed. Real pacing then decodes
that text with measured costs, in a simulation: at temperature 0 that repeats what a real answer
would accept.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt
from typing import Any

import numpy as np
from numpy.typing import NDArray

from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.ports import Pacer
from specchat.decoding.proposal import DraftToken
from specchat.decoding.sampling import Sampler
from specchat.derivation.simulated_pair import (
    ORIGIN,
    RIGHT,
    SURE,
    WRONG,
    SimulatedMachine,
    measured,
    verify_greedily,
    verify_sampled,
)
from specchat.drafting.draft_model import confidence_of
from specchat.gguf.origin import MIN_SPEEDUP
from specchat.options.declarations import Sampling
from specchat.pacing.knowledge import draft_costs
from specchat.pacing.pacer import LearningPacer
from specchat.pacing.recent_drafts import LONGEST

Numbers = NDArray[np.float64]
NUM_SIMULATED = 1000
"""Tokens decoded in a simulation."""


@dataclass(frozen=True, slots=True)
class Guess:
    """A model's prediction for a token: the best one with a confidence, and the distribution."""

    best: int
    confidence: float
    distribution: Distribution


@dataclass(frozen=True, slots=True)
class Costs:
    """Seconds of target passes and of draft passes by their number of tokens, entry 0 unused.

    `reads_accepted` is that of `Knowledge`.
    """

    target: Sequence[float]
    draft: Sequence[float]
    reads_accepted: bool = False


@dataclass(frozen=True, slots=True)
class PredictedGain:
    """The predicted effect of a draft.

    `greedy` is the share of first drafted tokens accepted at temperature 0, `sampled` above it;
    `pass_share` is the cost of a draft pass in target passes. Rates are in tokens per second, at
    temperature 0 and above it.
    """

    greedy: float
    sampled: float
    pass_share: float
    plain_rate: float
    greedy_rate: float
    sampled_rate: float

    @property
    def speedup(self) -> float:
        """The speedup over plain decoding, as the geometric mean of both temperatures."""
        return sqrt(self.greedy_rate * self.sampled_rate) / self.plain_rate

    @property
    def is_worth_keeping(self) -> bool:
        """Whether the draft is predicted to make decoding faster here."""
        return self.speedup >= MIN_SPEEDUP


def cheapest(measured: Sequence[Costs]) -> Costs:
    """Return the least cost measured of each pass."""
    target, draft = zip(*((costs.target, costs.draft) for costs in measured), strict=True)
    return Costs([*map(min, *target)], [*map(min, *draft)], measured[0].reads_accepted)


def guesses_of(rows: Iterable[Logits], sampling: Sampling) -> list[Guess]:
    """Return a model's guesses from its rows of logits, shape (vocabulary,) each."""
    sampled, greedy = Sampler(sampling), Sampler(replace(sampling, temperature=0.0))
    guesses = []
    for row in rows:
        best = greedy.distribution(row, ())
        guess = Guess(best.best(), confidence_of(row, best), sampled.distribution(row, ()))
        guesses.append(guess)
    return guesses


def acceptance(wanted: Sequence[Guess], offered: Sequence[Guess]) -> list[float]:
    """Return the chance of acceptance of a token drafted at each index, above temperature 0.

    That is the sum of min(p, q) (Leviathan et al. 2023).
    """
    return [
        1.0 - p.distribution.excess_mass(q.distribution)
        for p, q in zip(wanted, offered, strict=True)
    ]


def chances_by_position(accepted: Numbers) -> list[float]:
    """Return the chance of the first, second, ... token of a draft if those before are accepted.

    `accepted` has the chance at each index of the text, (positions, indices): the first row for the
    first token of a draft, and so on, the last row for all later ones. Easy tokens come in runs.
    """
    num_positions, num_indices = accepted.shape
    survivals, survival = [1.0], np.ones(num_indices)
    for number in range(min(LONGEST, num_indices)):
        chances = accepted[min(number, num_positions - 1)]
        survival = survival[: num_indices - number] * chances[number:]
        survivals.append(float(survival.mean()))
    return [after / before if before else 0.0 for before, after in pairwise(survivals)]


def drafting_rate(costs: Costs, accepted: Numbers) -> float:
    """Return the tokens per second of the best draft length of at least 1."""
    first, later = draft_costs(costs.draft.__getitem__, reads_accepted=costs.reads_accepted)
    rates, tokens, survival = list[float](), 1.0, 1.0
    for length, chance in enumerate(chances_by_position(accepted), 1):
        survival *= chance
        tokens += survival
        rates.append(tokens / (first + (length - 1) * later + costs.target[length + 1]))
    return max(rates)


def predict(
    costs: Costs, wanted: Sequence[Guess], offered: Sequence[Sequence[Guess]]
) -> PredictedGain:
    """Return the predicted effect of a draft at these costs, by simulating pacing on a text.

    `offered` holds the guesses for the first token of a draft, for the second, and so on; the last
    ones count for all later tokens. A draft model has the same guesses for all.
    """
    shared: dict[str, Any] = {
        "costs": costs.target,
        "draft_cost": 1.0,
        "draft_costs": costs.draft,
        "reads_accepted": costs.reads_accepted,
        "chance": lambda _: 0.0,
        "wanted": wanted,
        "offered": offered,
    }
    is_right = [p.best == q.best for p, q in zip(wanted, offered[0], strict=True)]
    return PredictedGain(
        greedy=sum(is_right) / len(wanted),
        sampled=sum(acceptance(wanted, offered[0])) / len(wanted),
        pass_share=costs.draft[1] / costs.target[1],
        plain_rate=1.0 / costs.target[1],
        greedy_rate=_simulated_rate(_GreedyText(**shared), is_greedy=True),
        sampled_rate=_simulated_rate(_SampledText(**shared), is_greedy=False),
    )


@dataclass
class _Text(SimulatedMachine):
    """A simulated pair on a text, which starts over at its end."""

    wanted: Sequence[Guess] = ()
    offered: Sequence[Sequence[Guess]] = ()

    def offer(self, index: int) -> Guess:
        """Return the drafter's guess at a position, for a draft that begins here."""
        guesses = self.offered[min(index - self.emitted, len(self.offered) - 1)]
        return guesses[index % len(guesses)]

    def target(self, index: int) -> Guess:
        """Return the target's prediction at an index."""
        return self.wanted[index % len(self.wanted)]


class _GreedyText(_Text):
    """A text at temperature 0, with one right token at each index."""

    def proposed(self, index: int) -> tuple[float, Distribution]:
        """Return the confidence at an index."""
        return self.offer(index).confidence, SURE[RIGHT]

    def verify(self, pacer: Pacer, draft: Sequence[DraftToken]) -> int:
        """Verify as at temperature 0."""
        indices = range(self.emitted, self.emitted + len(draft) + 1)
        is_right = [self.offer(index).best == self.target(index).best for index in indices]
        return verify_greedily(pacer, len(draft), [RIGHT if same else WRONG for same in is_right])


class _SampledText(_Text):
    """A text above temperature 0, with distributions at each index."""

    def proposed(self, index: int) -> tuple[float, Distribution]:
        """Return a draft model's confidence and distribution."""
        distribution = self.offer(index).distribution
        return 0.5 + 0.5 * distribution.largest_share, distribution

    def drawn(self, distribution: Distribution) -> int:
        """Draw a drafted token."""
        return distribution.sample(self.random.random)

    def verify(self, pacer: Pacer, draft: Sequence[DraftToken]) -> int:
        """Verify as above temperature 0."""
        first = self.emitted

        def target(index: int) -> Distribution:
            return self.target(first + index).distribution

        return verify_sampled(pacer, draft, target, self.random.random)


class _SimulatedPacer(LearningPacer):
    """Real pacing on a simulated machine's clock."""

    def __init__(self, machine: SimulatedMachine, *, is_greedy: bool) -> None:
        self._machine = machine
        super().__init__(measured(machine), is_greedy=is_greedy, pass_origin=ORIGIN)

    def clock(self) -> float:
        """Return the machine's time."""
        return self._machine.clock()


def _simulated_rate(machine: SimulatedMachine, *, is_greedy: bool) -> float:
    """Return the tokens per second of a simulated answer."""
    pacer = _SimulatedPacer(machine, is_greedy=is_greedy)
    return machine.decode(pacer, NUM_SIMULATED, LONGEST)
