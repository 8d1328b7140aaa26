"""How likely the next drafted token is to be kept, learned while decoding.

A dynamic logistic regression: extended Kalman filters whose intercept may wander (Penny and Roberts
1999, "Dynamic logistic regression"; West, Harrison and Migon 1985). A slow one is exact where the
text stays what it is, a quick one follows a text that changes from prose to code, and each counts
as much as it was right of late. What they see of a token is known before that token is drawn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from typing import TypeAlias

__all__ = ["AcceptanceModel"]

Features: TypeAlias = tuple[float, float, float]
"""1 for the intercept, the logit of the confidence, the aid."""

PRIOR_SPREAD = (2.0, 0.5, 0.3)
LARGEST_SPREAD = (2.0, 0.5, 0.3)
PACES = (0.0005, 0.015)
"""Variance that the intercept gains per token, for the slow and for the quick filter."""
SLOPE_WANDERING = 0.0001
HOPE_PER_TOKEN = 0.012
"""What silence adds to the logit that is hoped for: things may have changed since."""
MOST_HOPE = 8.0
LEAST_SLOPE = 0.06
"""Even where a filter is sure of an outcome, the outcome tells it something."""
INTERCEPTS = (-4.0, 6.0)
JUDGEMENT_MEMORY = 0.93
"""Weight of the past in judging which filter was right: about fifteen tokens."""
MOST_CERTAIN = 0.999
USUAL_CONFIDENCE = 0.75
NUM_RECENT = 18


class _Filter:
    """A Kalman filter over the weights of a logistic regression."""

    def __init__(self, pace: float) -> None:
        self.weights = [0.0, 1.0, 0.0]
        self.merit = 0.0
        self._pace = pace
        self._covariance = [[0.0] * 3 for _ in range(3)]
        self.doubt(1.0)

    def doubt(self, share: float) -> None:
        """Be as unsure as at first, or a share of that."""
        for place, spread in enumerate(PRIOR_SPREAD):
            self._covariance[place] = [0.0] * 3
            self._covariance[place][place] = (share * spread) ** 2

    def score(self, features: Features) -> float:
        """Return the logit of the probability."""
        first, second, third = self.weights
        return first + second * features[1] + third * features[2]

    def spread(self, features: Features) -> float:
        """Return the standard deviation of the logit."""
        variance = _dot(features, [_dot(row, features) for row in self._covariance])
        return math.sqrt(max(0.0, variance))

    def learn(self, features: Features, kept: float) -> None:
        """Hear what became of a token, or how likely it was to be kept."""
        self.wander(self._pace)
        probability = _logistic(self.score(features))
        judgement = kept * _log(probability) + (1.0 - kept) * _log(1.0 - probability)
        self.merit = JUDGEMENT_MEMORY * self.merit + judgement
        slope = max(LEAST_SLOPE, probability * (1.0 - probability))
        spread = [_dot(row, features) for row in self._covariance]
        gain = 1.0 / (1.0 + slope * _dot(features, spread))
        for row, own in enumerate(spread):
            self.weights[row] += gain * own * (kept - probability)
            for column, other in enumerate(spread):
                self._covariance[row][column] -= gain * slope * own * other
        self.weights[0] = _within_bounds(self.weights[0])

    def wander(self, pace: float) -> None:
        """Become less sure."""
        for place, variance in enumerate((pace, SLOPE_WANDERING, SLOPE_WANDERING)):
            grown = self._covariance[place][place] + variance
            self._covariance[place][place] = min(grown, LARGEST_SPREAD[place] ** 2)


class AcceptanceModel:
    """Learns one drafter's acceptance from (confidence, aid, was it kept).

    `confidence` is the drafter's own estimate, 0 to 1, and `aid` a second number of its choice (the
    position in the draft, the length of a match). Only tokens whose fate is known count: those that
    were kept and the first that was not. What came after a rejection says nothing, and a draft kept
    whole says "at least": both are so without further care, as every token counts for itself.
    """

    def __init__(self) -> None:
        """Believe the drafter until it is found out."""
        self._filters = [_Filter(pace) for pace in PACES]
        self._shares = [1.0 / len(PACES)] * len(PACES)
        self._recent: deque[Features] = deque(maxlen=NUM_RECENT)
        self._expected: Sequence[float] | None = None
        self._hope_of_change = 0.0
        self.num_observed = 0

    def begin_with(self, acceptance: float) -> None:
        """Expect such a share of tokens to be kept, as doubtfully as the drafter was believed.

        Counts as nothing learned: what is heard of tokens overrules it as soon.
        """
        usual, wanted = (_features(share, 0.0)[1] for share in (USUAL_CONFIDENCE, acceptance))
        for each in self._filters:
            each.weights[0] = _within_bounds(wanted - usual)
        self._expected = None

    def probability(self, confidence: float, aid: float = 0.0) -> float:
        """Return how likely such a token is to be kept."""
        return self._predict(_features(confidence, aid), 0.0)

    def meet(self, confidence: float, aid: float) -> float:
        """Like `probability`, remembering that a token like this came up."""
        features = _features(confidence, aid)
        self._recent.append(features)
        self._expected = None
        return self._predict(features, 0.0)

    @property
    def hope(self) -> float:
        """How much higher the logit may well be: doubt, and what may have changed."""
        usual = _features(USUAL_CONFIDENCE, 0.0)
        spread = sum(share * each.spread(usual) for share, each in self._sharers())
        return spread + self._hope_of_change

    def expected(self, bonus: float = 0.0) -> Sequence[float]:
        """Return three equally likely probabilities of a token not seen yet, from recent ones.

        `bonus` is added to their logits.
        """
        if bonus:
            return self._thirds(bonus)
        if self._expected is None:
            self._expected = self._thirds(0.0)
        return self._expected

    def observe(self, confidence: float, aid: float, kept: float) -> None:
        """Hear what became of a token: 1 kept, 0 rejected, or the chance of being kept."""
        self.num_observed += 1
        features = _features(confidence, aid)
        if kept < 0.5:
            self._hope_of_change *= 0.5
        for each in self._filters:
            each.learn(features, kept)
        best = max(each.merit for each in self._filters)
        merits = [math.exp(each.merit - best) for each in self._filters]
        self._shares = [merit / sum(merits) for merit in merits]
        self._expected = None

    def pass_by(self) -> None:
        """Hope for a change, as the text goes on and nothing is heard."""
        self._hope_of_change = min(self._hope_of_change + HOPE_PER_TOKEN, MOST_HOPE)

    def as_record(self) -> list[float]:
        """Return what was learned, as numbers: the weights, then what came up of late."""
        weights = [
            sum(share * each.weights[place] for share, each in self._sharers())
            for place in range(3)
        ]
        return [*weights, *(number for _, *pair in self._recent for number in pair)]

    def learn_record(self, record: Sequence[float]) -> None:
        """Start from what was learned before, open to something new."""
        if len(record) < 3 or not all(abs(number) < 20 for number in record):
            return
        for each in self._filters:
            each.weights = [float(number) for number in record[:3]]
            each.doubt(0.5)
        met = [float(number) for number in record[3:]]
        self._recent.extend((1.0, *pair) for pair in zip(met[::2], met[1::2], strict=False))
        self.num_observed += max(1, len(self._recent))
        self._expected = None

    def _thirds(self, bonus: float) -> list[float]:
        recent = self._recent or [_features(USUAL_CONFIDENCE, 0.0)]
        known = sorted([self._predict(features, bonus) for features in recent])
        thirds = [
            known[third * len(known) // 3 : (third + 1) * len(known) // 3] for third in range(3)
        ]
        middle = known[len(known) // 2]
        return [sum(part) / len(part) if part else middle for part in thirds]

    def _predict(self, features: Features, bonus: float) -> float:
        return sum(
            share * _logistic(each.score(features) + bonus) for share, each in self._sharers()
        )

    def _sharers(self) -> zip[tuple[float, _Filter]]:
        return zip(self._shares, self._filters, strict=True)


def _features(confidence: float, aid: float) -> Features:
    share = min(max(confidence, 1.0 - MOST_CERTAIN), MOST_CERTAIN)
    return (1.0, math.log(share / (1.0 - share)), aid)


def _within_bounds(intercept: float) -> float:
    return min(max(intercept, INTERCEPTS[0]), INTERCEPTS[1])


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return first[0] * second[0] + first[1] * second[1] + first[2] * second[2]


def _log(chance: float) -> float:
    return math.log(max(chance, 1e-6))


def _logistic(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(score, -20.0), 20.0)))
