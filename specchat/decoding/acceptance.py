"""How likely the next drafted token is to be kept, learned while decoding.

A dynamic logistic regression: an extended Kalman filter whose intercept may wander, so that it
follows a text that changes from prose to code (Penny and Roberts 1999, "Dynamic logistic
regression"; West, Harrison and Migon 1985). What it sees of a token is known before that token is
drawn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

__all__ = ["AcceptanceModel"]

NUM_FEATURES = 3
PRIOR_SPREAD = (1.2, 0.5, 0.3)
WANDERING = (0.006, 0.0002, 0.0001)
"""Variance that the intercept and the slopes gain per token: a memory of about thirty tokens."""
IDLE_FACTOR = 8.0
"""How much faster the intercept wanders while nothing is drafted and so nothing heard."""
LARGEST_SPREAD = (4.0, 0.5, 0.3)
USUAL_CONFIDENCE = 0.8
MOST_CERTAIN = 0.999
NUM_RECENT = 24


class AcceptanceModel:
    """Learns one drafter's acceptance from (confidence, aid, was it kept).

    `confidence` is the drafter's own estimate, 0 to 1, and `aid` a second number of its choice (the
    position in the draft, the length of a match). Only tokens whose fate is known count: those that
    were kept and the first that was not. What came after a rejection says nothing, and a draft kept
    whole says "at least": both are so without further care, as every token counts for itself.
    """

    def __init__(self) -> None:
        """Believe the drafter until it is found out."""
        self._weights = [0.0, 1.0, 0.0]
        self._covariance = [
            [PRIOR_SPREAD[row] ** 2 if row == column else 0.0 for column in range(NUM_FEATURES)]
            for row in range(NUM_FEATURES)
        ]
        self._recent: deque[tuple[float, float, float]] = deque(maxlen=NUM_RECENT)
        self.num_observed = 0

    def probability(self, confidence: float, aid: float = 0.0) -> float:
        """Return how likely such a token is to be kept."""
        return self._predict(_features(confidence, aid))

    def meet(self, confidence: float, aid: float, *, hopefully: bool = False) -> float:
        """Like `probability`, remembering that a token like this came up."""
        features = _features(confidence, aid)
        self._recent.append(features)
        return self._hope(features) if hopefully else self._predict(features)

    def expected(self, *, hopefully: bool = False) -> list[float]:
        """Return three equally likely probabilities of a token not seen yet, from recent ones.

        With `hopefully` they are as high as what was learned so far leaves room for.
        """
        predict = self._hope if hopefully else self._predict
        known = sorted(map(predict, self._recent or [_features(USUAL_CONFIDENCE, 0.0)]))
        thirds = [
            known[third * len(known) // 3 : (third + 1) * len(known) // 3] for third in range(3)
        ]
        middle = known[len(known) // 2]
        return [sum(part) / len(part) if part else middle for part in thirds]

    def observe(self, confidence: float, aid: float, was_kept: bool) -> None:
        """Hear what became of a token."""
        self.num_observed += 1
        self._wander(1.0)
        features = _features(confidence, aid)
        probability = self._predict(features)
        slope = probability * (1.0 - probability)
        spread = [_dot(row, features) for row in self._covariance]
        gain = 1.0 / (1.0 + slope * _dot(features, spread))
        surprise = float(was_kept) - probability
        for row in range(NUM_FEATURES):
            self._weights[row] += gain * spread[row] * surprise
            for column in range(NUM_FEATURES):
                self._covariance[row][column] -= gain * slope * spread[row] * spread[column]

    def pass_by(self) -> None:
        """Become less sure, as the text goes on and nothing is heard."""
        self._wander(IDLE_FACTOR)

    def _wander(self, factor: float) -> None:
        for place in range(NUM_FEATURES):
            variance = self._covariance[place][place] + factor * WANDERING[place]
            self._covariance[place][place] = min(variance, LARGEST_SPREAD[place] ** 2)

    def as_record(self) -> list[float]:
        """Return what was learned, as numbers: the weights, then what came up of late."""
        return [*self._weights, *(number for _, *pair in self._recent for number in pair)]

    def learn_record(self, record: Sequence[float]) -> None:
        """Start from what was learned before, open to something new."""
        if len(record) < NUM_FEATURES or not all(abs(number) < 20 for number in record):
            return
        self._weights = [float(number) for number in record[:NUM_FEATURES]]
        met = [float(number) for number in record[NUM_FEATURES:]]
        self._recent.extend((1.0, *pair) for pair in zip(met[::2], met[1::2], strict=False))
        for place in range(NUM_FEATURES):
            self._covariance[place][place] = (0.5 * PRIOR_SPREAD[place]) ** 2

    def _hope(self, features: tuple[float, float, float]) -> float:
        """Return a probability one standard deviation above what is expected."""
        variance = _dot(features, [_dot(row, features) for row in self._covariance])
        return _logistic(_dot(self._weights, features) + math.sqrt(max(0.0, variance)))

    def _predict(self, features: tuple[float, float, float]) -> float:
        weights = self._weights
        score = weights[0] * features[0] + weights[1] * features[1] + weights[2] * features[2]
        return _logistic(score)


def _features(confidence: float, aid: float) -> tuple[float, float, float]:
    return (1.0, _logit(confidence), aid)


def _logit(share: float) -> float:
    share = min(max(share, 1.0 - MOST_CERTAIN), MOST_CERTAIN)
    return math.log(share / (1.0 - share))


def _dot(first: Sequence[float], second: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(first, second, strict=True))


def _logistic(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(score, -20.0), 20.0)))
