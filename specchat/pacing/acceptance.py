"""How likely the next drafted token is to be accepted, learned while decoding.

A dynamic logistic regression: extended Kalman filters whose intercept follows a random walk (Penny
and Roberts 1999, "Dynamic logistic regression"; West, Harrison and Migon 1985). A slow filter is
accurate while the text stays the same, a fast one follows a change from prose to code. Each counts
by how well it predicted recent tokens. All inputs are known before the token is drawn.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence

__all__ = ["AcceptanceModel"]

VARIANCES = (2.0**2, 0.5**2)
"""Initial and maximum variance of the intercept and of the weight of the confidence."""
DRIFTS = (0.0005, 0.015)
"""Variance the intercept gains per token, in the slow and in the fast filter."""
WEIGHT_DRIFT = 0.0001
OPTIMISM_PER_TOKEN = 0.012
"""Optimism gained, in logits, by each step without a draft: the text may have changed."""
MAX_OPTIMISM = 8.0
MIN_SLOPE = 0.06
"""Lower bound of the logistic slope, so that an outcome teaches even a filter that is certain."""
INTERCEPT_RANGE = (-4.0, 6.0)
SCORE_MEMORY = 0.93
"""Weight of the past in a filter's score: about fifteen tokens."""
MAX_CONFIDENCE = 0.999
USUAL_CONFIDENCE = 0.75
NUM_RECENT = 18


class _Filter:
    """A Kalman filter over the two weights of a logistic regression.

    Written out for the intercept, the weight of the confidence and their covariance.
    """

    def __init__(self, drift: float) -> None:
        self.weights = (0.0, 1.0)
        self.score = 0.0
        self._drift = drift
        self.reset_covariance(1.0)

    def reset_covariance(self, share: float) -> None:
        """Set both standard deviations to a share of the initial ones."""
        first, second = (share**2 * variance for variance in VARIANCES)
        self._covariance = (first, 0.0, second)

    def probability(self, logit: float) -> float:
        """Return how likely a token with this confidence is to be accepted."""
        intercept, weight = self.weights
        return _logistic(intercept + weight * logit)

    def deviation(self, logit: float) -> float:
        """Return the standard deviation of the predicted logit."""
        aa, ab, bb = self._covariance
        return math.sqrt(max(0.0, aa + 2.0 * ab * logit + bb * logit**2))

    def learn(self, logit: float, accepted: float, weight: float) -> None:
        """Update with the outcome of a token, or with its chance of being accepted."""
        aa, ab, bb = self._covariance
        aa, bb = min(aa + self._drift, VARIANCES[0]), min(bb + WEIGHT_DRIFT, VARIANCES[1])
        a, b = aa + ab * logit, ab + bb * logit  # covariances with the predicted logit
        probability = self.probability(logit)
        likelihood = accepted * _log(probability) + (1.0 - accepted) * _log(1.0 - probability)
        self.score = SCORE_MEMORY * self.score + weight * likelihood
        slope = max(MIN_SLOPE, probability * (1.0 - probability))
        gain = weight / (1.0 + weight * slope * (a + logit * b))
        step, certainty = gain * (accepted - probability), gain * slope
        intercept, confidence_weight = self.weights
        self.weights = (_within_range(intercept + step * a), confidence_weight + step * b)
        self._covariance = (aa - certainty * a * a, ab - certainty * a * b, bb - certainty * b * b)


class AcceptanceModel:
    """Learns one drafter's acceptance from its confidence, 0 to 1, and from what was accepted.

    Tokens behind a rejected one are not counted.
    """

    def __init__(self) -> None:
        """Believe the drafter's confidence at first."""
        self._filters = [_Filter(drift) for drift in DRIFTS]
        self._shares = [1.0 / len(DRIFTS)] * len(DRIFTS)
        self._recent: deque[float] = deque(maxlen=NUM_RECENT)
        self._thirds: list[float] | None = None
        self._gained_optimism = 0.0
        self.num_observed = 0

    def begin_with(self, acceptance_rate: float) -> None:
        """Expect this acceptance rate, as tentatively as the drafter's confidence was believed."""
        intercept = _logit(_within_limits(acceptance_rate)) - _logit(USUAL_CONFIDENCE)
        for each in self._filters:
            each.weights = (_within_range(intercept), each.weights[1])
        self._thirds = None

    def probability(self, confidence: float) -> float:
        """Return how likely a token with this confidence is to be accepted."""
        return self._probability(_logit(_within_limits(confidence)))

    def predict(self, confidence: float) -> float:
        """Return the same, and count the token among the recent ones."""
        self._recent.append(_logit(_within_limits(confidence)))
        self._thirds = None
        return self._probability(self._recent[-1])

    @property
    def optimism(self) -> float:
        """How much higher the logit may well be: uncertainty, and possible change of the text."""
        usual = _logit(USUAL_CONFIDENCE)
        deviation = sum(share * each.deviation(usual) for share, each in self._weighted())
        return deviation + self._gained_optimism

    def expected(self, optimism: float = 0.0) -> list[float]:
        """Return three equally likely probabilities of a token not seen yet.

        They come from the confidences of recent tokens. `optimism` is added to the logits.
        """
        if self._thirds is None:
            self._thirds = self._typical_logits()
        return [_logistic(third + optimism) for third in self._thirds]

    def observe(self, confidence: float, accepted: float, reached: float = 1.0) -> None:
        """Update with the outcome of a token: 1 accepted, 0 rejected, or the chance between.

        It is weighted by the chance that it was `reached`: that those before it were accepted.
        """
        self.num_observed += 1
        if accepted < 0.5:
            self._gained_optimism *= 0.5
        logit, accepted = _logit(_within_limits(confidence)), min(max(accepted, 0.0), 1.0)
        for each in self._filters:
            each.learn(logit, accepted, reached)
        best = max([each.score for each in self._filters])
        scores = [math.exp(each.score - best) for each in self._filters]
        total = sum(scores)
        self._shares = [score / total for score in scores]
        self._thirds = None

    def decay(self) -> None:
        """Trust what was learned a little less, after a step that taught nothing."""
        self._gained_optimism = min(self._gained_optimism + OPTIMISM_PER_TOKEN, MAX_OPTIMISM)

    def as_record(self) -> list[float]:
        """Return what was learned, as numbers: two weights, then recent logits."""
        weights = [
            sum(share * each.weights[number] for share, each in self._weighted())
            for number in range(2)
        ]
        return [*weights, *self._recent]

    def learn_record(self, record: Sequence[float]) -> None:
        """Start from what was learned before, less certain of it; ignore a malformed record."""
        if len(record) < 2 or not all(abs(number) < 20 for number in record):
            return
        for each in self._filters:
            each.weights = (float(record[0]), float(record[1]))
            each.reset_covariance(0.5)
        self._recent.extend(float(logit) for logit in record[2:])
        self.num_observed += max(1, len(self._recent))
        self._thirds = None

    def _typical_logits(self) -> list[float]:
        """Return the logits of three equally likely probabilities."""
        recent = self._recent or [_logit(USUAL_CONFIDENCE)]
        known = sorted([self._probability(logit) for logit in recent])
        thirds = [
            known[third * len(known) // 3 : (third + 1) * len(known) // 3] for third in range(3)
        ]
        middle = known[len(known) // 2]
        return [_logit(sum(part) / len(part) if part else middle) for part in thirds]

    def _probability(self, logit: float) -> float:
        return sum([share * each.probability(logit) for share, each in self._weighted()])

    def _weighted(self) -> zip[tuple[float, _Filter]]:
        return zip(self._shares, self._filters, strict=True)


def _within_limits(confidence: float) -> float:
    return min(max(confidence, 1.0 - MAX_CONFIDENCE), MAX_CONFIDENCE)


def _within_range(intercept: float) -> float:
    return min(max(intercept, INTERCEPT_RANGE[0]), INTERCEPT_RANGE[1])


def _log(chance: float) -> float:
    return math.log(max(chance, 1e-6))


def _logit(share: float) -> float:
    return math.log(share / (1.0 - share))


def _logistic(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(score, -20.0), 20.0)))
