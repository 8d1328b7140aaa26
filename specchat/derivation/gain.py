"""Predicts a draft's gain from its guesses and the target's, and from what passes cost.

The target and the draft each evaluate the target's answers once, which gives, at each index, the
token that the target wants and the one that the draft would have proposed.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import sqrt

import numpy as np
from numpy.typing import NDArray

from specchat.decoding.distribution import Distribution, Logits
from specchat.decoding.sampling import Sampler
from specchat.gguf.origin import MIN_SPEEDUP
from specchat.options.declarations import Sampling
from specchat.pacing.knowledge import draft_costs
from specchat.pacing.recent_drafts import LONGEST

Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Guess:
    """A model's prediction for a token: the best one, and the distribution."""

    best: int
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
        best = greedy.distribution(row, ()).best()
        guesses.append(Guess(best, sampled.distribution(row, ())))
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
    """Return the tokens per second of the best draft length, 0 where drafting does not pay."""
    first, later = draft_costs(costs.draft.__getitem__, reads_accepted=costs.reads_accepted)
    rates, tokens, survival = [1.0 / costs.target[1]], 1.0, 1.0
    for length, chance in enumerate(chances_by_position(accepted), 1):
        survival *= chance
        tokens += survival
        rates.append(tokens / (first + (length - 1) * later + costs.target[length + 1]))
    return max(rates)


def predict(
    costs: Costs, wanted: Sequence[Guess], offered: Sequence[Sequence[Guess]]
) -> PredictedGain:
    """Return the predicted effect of a draft at these costs, with the best draft length.

    `offered` holds the guesses for the first token of a draft, for the second, and so on; the last
    ones count for all later tokens. A draft model has the same guesses for all.
    """
    rights, chances = (
        np.array([judge(wanted, guesses) for guesses in offered]) for judge in (_rights, acceptance)
    )
    return PredictedGain(
        greedy=float(rights[0].mean()),
        sampled=float(chances[0].mean()),
        pass_share=costs.draft[1] / costs.target[1],
        plain_rate=1.0 / costs.target[1],
        greedy_rate=drafting_rate(costs, rights),
        sampled_rate=drafting_rate(costs, chances),
    )


def _rights(wanted: Sequence[Guess], offered: Sequence[Guess]) -> list[float]:
    """Return 1.0 where the best tokens are the same, and 0.0 elsewhere."""
    return [float(p.best == q.best) for p, q in zip(wanted, offered, strict=True)]
