"""How likely the next drafted token is to be accepted, learned while decoding.

A dynamic logistic regression: extended Kalman filters whose intercept follows a random walk (Penny
and Roberts 1999, "Dynamic logistic regression"; West, Harrison and Migon 1985). A slow filter is
accurate while the text stays the same, a fast one follows a change from prose to code. Each counts
by how well it predicted recent tokens. All inputs are known before the token is drawn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from math import copysign, exp, log, sqrt
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # NumPy, which `specchat show` does without
    from specchat.decoding.proposal import Hint

VARIANCES = (2.0**2, 0.5**2, 0.3**2)
"""Initial and maximum variance of the intercept, and of the weights of confidence and position."""
DRIFTS = (0.0005, 0.015)
"""Variance the intercept gains per token, in the slow and in the fast filter."""
WEIGHT_DRIFT = 0.0001
OPTIMISM_PER_TOKEN = 0.012
"""Optimism gained, in logits, by each step without a draft: the text may have changed."""
MAX_GAINED_OPTIMISM = 8.0
MIN_SLOPE = 0.06
"""Lower bound of the logistic slope, so that an outcome teaches even a filter that is certain."""
INTERCEPT_RANGE = (-4.0, 6.0)
SCORE_MEMORY = 0.93
"""Weight of the past in a filter's score: about fifteen tokens."""
MAX_CONFIDENCE = 0.999
MIN_CHANCE = 0.02
"""Tokens that are less likely than this to be reached and accepted hardly raise a rate."""
USUAL_CONFIDENCE = 0.75
NUM_RECENT = 18
NUM_EQUAL_POSITIONS = 3
"""From this position in a draft on, positions are alike.

Above temperature 0 the first token of a draft is accepted with its own chance. Later ones are
accepted more often: block verification forgives a token that the target finds too unlikely if those
before it were likelier there than in the draft, and the other way round.
"""
POSITIONS = tuple(place / NUM_EQUAL_POSITIONS for place in range(NUM_EQUAL_POSITIONS + 1))
"""The feature of tokens that cost a draft pass, by their position in the draft."""
LEAST_LIKELY = 1e-6
"""The least likelihood that counts for a filter's score."""
DISPERSION_MEMORY = 0.95
"""Weight of the past in how much chances vary, compared with outcomes."""
INITIAL_DISPERSION = 0.01
MAX_CHANCE_WEIGHT = 6.0
"""A chance teaches at most as much as the outcomes of this many tokens."""


def position_feature(num_before: int) -> float:
    """Return the feature of a token that follows this many drafted ones."""
    return POSITIONS[min(num_before, NUM_EQUAL_POSITIONS)]


class _Filter:
    """A Kalman filter over the three weights of a logistic regression.

    Written out for the intercept, the weights of confidence and position, and the upper half of
    their covariance, as it is updated with every token.
    """

    def __init__(self, drift: float, position_weight: float) -> None:
        self.weights = (0.0, 1.0, position_weight)
        self.score = 0.0
        self._drift = drift
        self.reset_covariance(1.0)

    def reset_covariance(self, share: float) -> None:
        """Set all standard deviations to a share of the initial ones."""
        first, second, third = (share**2 * variance for variance in VARIANCES)
        self._covariance = (first, 0.0, 0.0, second, 0.0, third)

    def deviation(self, logit: float) -> float:
        """Return the standard deviation of the predicted logit of a first token."""
        aa, ab, _, bb, _, _ = self._covariance
        return sqrt(max(0.0, aa + 2.0 * ab * logit + bb * logit**2))

    def learn(self, logit: float, position: float, accepted: float, weight: float) -> None:
        """Update with the outcome of a token, or with its chance of being accepted."""
        aa, ab, ac, bb, bc, cc = self._covariance
        aa, bb = min(aa + self._drift, VARIANCES[0]), min(bb + WEIGHT_DRIFT, VARIANCES[1])
        cc = min(cc + WEIGHT_DRIFT, VARIANCES[2])
        a = aa + ab * logit + ac * position  # covariances with the predicted logit
        b = ab + bb * logit + bc * position
        c = ac + bc * logit + cc * position
        first, second, third = self.weights
        probability = _logistic(first + second * logit + third * position)
        likelihood = 0.0  # of what happened, or expected of a chance
        if accepted > 0.0:
            likelihood += accepted * log(max(probability, LEAST_LIKELY))
        if accepted < 1.0:
            likelihood += (1.0 - accepted) * log(max(1.0 - probability, LEAST_LIKELY))
        self.score = SCORE_MEMORY * self.score + weight * likelihood
        slope = max(MIN_SLOPE, probability * (1.0 - probability))
        gain = weight / (1.0 + weight * slope * (a + logit * b + position * c))
        step, certainty = gain * (accepted - probability), gain * slope
        self.weights = (_within_range(first + step * a), second + step * b, third + step * c)
        self._covariance = (
            aa - certainty * a * a,
            ab - certainty * a * b,
            ac - certainty * a * c,
            bb - certainty * b * b,
            bc - certainty * b * c,
            cc - certainty * c * c,
        )


class AcceptanceModel:
    """Learns one drafter's acceptance from its confidence, 0 to 1, and from what was accepted.

    A position is a value of `position_feature`, 0 for tokens that cost no draft pass. Tokens behind
    a rejected one are not counted.
    """

    def __init__(self, position_weight: float = 0.0) -> None:
        """Believe the drafter's confidence at first, and this weight of the position, in logits."""
        self._filters = [_Filter(drift, position_weight) for drift in DRIFTS]
        self._shares = [1.0 / len(DRIFTS)] * len(DRIFTS)
        self._recent: deque[float] = deque(maxlen=NUM_RECENT)
        self._thirds: list[float] | None = None
        self._dispersion = [INITIAL_DISPERSION, INITIAL_DISPERSION]
        self._gained_optimism = 0.0
        self.num_observed = 0

    def probability(self, confidence: float, position: float = 0.0) -> float:
        """Return how likely a token of this confidence and position is to be accepted."""
        return self._probability(_logit(_within_limits(confidence)), position)

    def likely(
        self, hints: Iterable[Hint], least: Sequence[float]
    ) -> tuple[list[Hint], list[float]]:
        """Return the tokens of a passage looked at, and the chances of those that may be of use.

        They end before the first n of them are all accepted with a chance below `least[n]`, or
        below MIN_CHANCE.
        """
        seen: list[Hint] = []
        survival, chances = 1.0, list[float]()
        for hint, floor in zip(hints, least[1:], strict=False):
            seen.append(hint)
            chance = self.probability(hint.confidence)
            survival *= chance
            if survival < max(floor, MIN_CHANCE):
                break
            chances.append(chance)
        return seen, chances

    def predict(self, confidence: float, position: float = 0.0) -> float:
        """Return the same, and count the token among the recent ones."""
        self._recent.append(_logit(_within_limits(confidence)))
        self._thirds = None
        return self._probability(self._recent[-1], position)

    @property
    def optimism(self) -> float:
        """How much higher the logit may well be: uncertainty, and possible change of the text."""
        usual = _logit(USUAL_CONFIDENCE)
        deviation = sum(share * each.deviation(usual) for share, each in self._weighted())
        return deviation + self._gained_optimism

    def expected(self, optimism: float = 0.0) -> list[list[float]]:
        """Return three equally likely probabilities of a token not seen yet, for each position.

        They come from the confidences of recent tokens. `optimism` is added to the logits.
        """
        if self._thirds is None:
            self._thirds = self._typical_logits()
        slope = sum([share * each.weights[2] for share, each in self._weighted()])
        more = [slope * position + optimism for position in POSITIONS]
        return [[1.0 / (1.0 + exp(-third - each)) for third in self._thirds] for each in more]

    def observe(
        self, confidence: float, accepted: float, reached: float = 1.0, position: float = 0.0
    ) -> None:
        """Update with the outcome of a token: 1 accepted, 0 rejected, or the chance between.

        It is weighted by the chance that it was `reached`: that those before it were accepted.
        """
        self.num_observed += 1
        if accepted < 0.5:
            self._gained_optimism *= 0.5
        logit, weight = _logit(_within_limits(confidence)), reached
        if 0.0 < accepted < 1.0:
            weight *= self._weight_of_chance(logit, position, accepted)
        else:
            accepted = min(max(accepted, 0.0), 1.0)
        for each in self._filters:
            each.learn(logit, position, accepted, weight)
        best = max([each.score for each in self._filters])
        scores = [exp(each.score - best) for each in self._filters]
        total = sum(scores)
        self._shares = [score / total for score in scores]
        self._thirds = None

    def decay(self, num_steps: int = 1) -> None:
        """Trust what was learned a little less, after steps that taught nothing."""
        gained = self._gained_optimism + OPTIMISM_PER_TOKEN * num_steps
        self._gained_optimism = min(gained, MAX_GAINED_OPTIMISM)

    def as_record(self) -> list[float]:
        """Return what was learned, as numbers: three weights, then recent logits."""
        weights = [
            sum(share * each.weights[number] for share, each in self._weighted())
            for number in range(3)
        ]
        return [*weights, *self._recent]

    def learn_record(self, record: Sequence[float]) -> None:
        """Start from what was learned before, less certain of it; ignore a malformed record."""
        if len(record) < 3 or not all(abs(number) < 20 for number in record):
            return
        for each in self._filters:
            each.weights = (float(record[0]), float(record[1]), float(record[2]))
            each.reset_covariance(0.5)
        self._recent.extend(float(logit) for logit in record[3:])
        self.num_observed += max(1, len(self._recent))
        self._thirds = None

    def _weight_of_chance(self, logit: float, position: float, accepted: float) -> float:
        """Return how many outcomes teach as much as a chance.

        Outcomes vary as p (1 - p), chances mostly less: the dispersion of a quasi-likelihood
        (McCullagh and Nelder 1989, section 4.5), of recent tokens.
        """
        expected = self._probability(logit, position)
        new = ((accepted - expected) ** 2, expected * (1.0 - expected))
        self._dispersion = [
            DISPERSION_MEMORY * known + (1.0 - DISPERSION_MEMORY) * more
            for known, more in zip(self._dispersion, new, strict=True)
        ]
        of_chances, of_outcomes = self._dispersion
        return min(max(of_outcomes / of_chances, 1.0), MAX_CHANCE_WEIGHT)

    def _typical_logits(self) -> list[float]:
        """Return the logits of three equally likely probabilities of a first token."""
        recent = self._recent or [_logit(USUAL_CONFIDENCE)]
        known = [0.0] * len(recent)
        for share, each in self._weighted():
            first, second, _ = each.weights
            known = [
                chance + share / (1.0 + exp(-first - second * logit))
                for chance, logit in zip(known, recent, strict=True)
            ]
        known.sort()
        thirds = [
            known[third * len(known) // 3 : (third + 1) * len(known) // 3] for third in range(3)
        ]
        middle = known[len(known) // 2]
        means = [sum(part) / len(part) if part else middle for part in thirds]
        return [_logit(min(max(mean, LEAST_LIKELY), 1.0 - LEAST_LIKELY)) for mean in means]

    def _probability(self, logit: float, position: float) -> float:
        total = 0.0
        for share, each in zip(self._shares, self._filters, strict=True):
            intercept, of_confidence, of_position = each.weights
            score = intercept + of_confidence * logit + of_position * position
            total += share * _logistic(score)
        return total

    def _weighted(self) -> Iterator[tuple[float, _Filter]]:
        return zip(self._shares, self._filters, strict=True)


def _within_limits(confidence: float) -> float:
    return min(max(confidence, 1.0 - MAX_CONFIDENCE), MAX_CONFIDENCE)


def _within_range(intercept: float) -> float:
    return min(max(intercept, INTERCEPT_RANGE[0]), INTERCEPT_RANGE[1])


def _logit(share: float) -> float:
    return log(share / (1.0 - share))


def _logistic(score: float) -> float:
    bounded = score if -20.0 < score < 20.0 else copysign(20.0, score)
    return 1.0 / (1.0 + exp(-bounded))
