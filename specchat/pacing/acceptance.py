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

Features: TypeAlias = tuple[float, float]
"""The logit of the confidence, the aid."""

VARIANCES = (2.0**2, 0.5**2, 0.3**2)
"""How unsure the intercept and the weights of both features are at first, and at most."""
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
SCATTER_MEMORY = 0.95
"""Weight of the past in how much chances scatter, as against outcomes."""
FIRST_SCATTER = 0.01
LARGEST_WORTH = 6.0
"""A chance tells at most as much as what becomes of so many tokens."""


class _Filter:
    """A Kalman filter over the weights of a logistic regression.

    Written out for three weights and the upper half of their covariance: it hears of every token.
    """

    def __init__(self, pace: float, aid_weight: float) -> None:
        self.weights = (0.0, 1.0, aid_weight)
        self.merit = 0.0
        self._pace = pace
        self.doubt(1.0)

    def doubt(self, share: float) -> None:
        """Be as unsure as at first, or a share of that."""
        first, second, third = (share**2 * variance for variance in VARIANCES)
        self._covariance = (first, 0.0, 0.0, second, 0.0, third)

    def probability(self, features: Features) -> float:
        """Return how likely such a token is to be kept."""
        first, second, third = self.weights
        logit, aid = features
        return _logistic(first + second * logit + third * aid)

    def spread(self, features: Features) -> float:
        """Return the standard deviation of the logit."""
        logit, aid = features
        first, second, third = self._spreads(logit, aid)
        return math.sqrt(max(0.0, first + logit * second + aid * third))

    def learn(self, features: Features, kept: float, worth: float) -> None:
        """Hear what became of a token, or how likely it was to be kept."""
        self._wander()
        probability = self.probability(features)
        judgement = kept * _log(probability) + (1.0 - kept) * _log(1.0 - probability)
        self.merit = JUDGEMENT_MEMORY * self.merit + worth * judgement
        slope = max(LEAST_SLOPE, probability * (1.0 - probability))
        logit, aid = features
        a, b, c = self._spreads(logit, aid)
        gain = worth / (1.0 + worth * slope * (a + logit * b + aid * c))
        step, certainty = gain * (kept - probability), gain * slope
        first, second, third = self.weights
        self.weights = (_within_bounds(first + step * a), second + step * b, third + step * c)
        aa, ab, ac, bb, bc, cc = self._covariance
        a_less, b_less, c_less = certainty * a, certainty * b, certainty * c
        self._covariance = (
            aa - a_less * a,
            ab - a_less * b,
            ac - a_less * c,
            bb - b_less * b,
            bc - b_less * c,
            cc - c_less * c,
        )

    def _spreads(self, logit: float, aid: float) -> tuple[float, float, float]:
        """Return how each weight varies together with the logit of the probability."""
        aa, ab, ac, bb, bc, cc = self._covariance
        return (
            aa + ab * logit + ac * aid,
            ab + bb * logit + bc * aid,
            ac + bc * logit + cc * aid,
        )

    def _wander(self) -> None:
        """Become less sure, at most as unsure as at first."""
        aa, ab, ac, bb, bc, cc = self._covariance
        largest_a, largest_b, largest_c = VARIANCES
        self._covariance = (
            min(aa + self._pace, largest_a),
            ab,
            ac,
            min(bb + SLOPE_WANDERING, largest_b),
            bc,
            min(cc + SLOPE_WANDERING, largest_c),
        )


class AcceptanceModel:
    """Learns one drafter's acceptance from (confidence, aid, was it kept).

    `confidence` is the drafter's own estimate, 0 to 1, and `aid` a second number of its choice (the
    place in the draft, the length of a match). A token counts as far as it was likely to be
    reached: what came after a rejection says nothing, and a draft kept whole says "at least", both
    without further care, as every token counts for itself.
    """

    def __init__(self, aid_weight: float = 0.0) -> None:
        """Believe the drafter until it is found out; `aid_weight` is what the aid says until then.

        In logits per unit of the aid.
        """
        self._filters = [_Filter(pace, aid_weight) for pace in PACES]
        self._shares = [1.0 / len(PACES)] * len(PACES)
        self._recent: deque[float] = deque(maxlen=NUM_RECENT)
        self._thirds: list[float] | None = None
        self._scatter = [FIRST_SCATTER, FIRST_SCATTER]
        self._hope_of_change = 0.0
        self.num_observed = 0

    def begin_with(self, acceptance: float) -> None:
        """Expect such a share of tokens to be kept, as doubtfully as the drafter was believed.

        Counts as nothing learned: what is heard of tokens overrules it as soon.
        """
        usual, wanted = (_features(share, 0.0)[0] for share in (USUAL_CONFIDENCE, acceptance))
        for each in self._filters:
            each.weights = (_within_bounds(wanted - usual), *each.weights[1:])
        self._thirds = None

    def probability(self, confidence: float, aid: float = 0.0) -> float:
        """Return how likely such a token is to be kept."""
        return self._predict(_features(confidence, aid))

    def meet(self, confidence: float, aid: float) -> float:
        """Like `probability`, remembering that a token like this came up."""
        features = _features(confidence, aid)
        self._recent.append(features[0])
        self._thirds = None
        return self._predict(features)

    @property
    def hope(self) -> float:
        """How much higher the logit may well be: doubt, and what may have changed."""
        usual = _features(USUAL_CONFIDENCE, 0.0)
        spread = sum(share * each.spread(usual) for share, each in self._sharers())
        return spread + self._hope_of_change

    def expected(self, aids: Sequence[float] = (0.0,), bonus: float = 0.0) -> list[list[float]]:
        """Return three equally likely probabilities of a token not seen yet, for each aid.

        From tokens that came up of late. `bonus` is added to the logits.
        """
        if self._thirds is None:
            self._thirds = self._typical()
        slope = sum(share * each.weights[2] for share, each in self._sharers())
        return [[_logistic(third + slope * aid + bonus) for third in self._thirds] for aid in aids]

    def observe(self, confidence: float, aid: float, kept: float, reached: float = 1.0) -> None:
        """Hear what became of a token: 1 kept, 0 rejected, or the chance of being kept.

        It counts as far as it was `reached`, the chance that those before it were kept.
        """
        self.num_observed += 1
        features = _features(confidence, aid)
        kept = min(max(kept, 0.0), 1.0)
        worth = reached if kept in {0.0, 1.0} else reached * self._worth_of_chance(features, kept)
        if kept < 0.5:
            self._hope_of_change *= 0.5
        for each in self._filters:
            each.learn(features, kept, worth)
        best = max([each.merit for each in self._filters])
        merits = [math.exp(each.merit - best) for each in self._filters]
        total = sum(merits)
        self._shares = [merit / total for merit in merits]
        self._thirds = None

    def pass_by(self) -> None:
        """Hope for a change, as the text goes on and nothing is heard."""
        self._hope_of_change = min(self._hope_of_change + HOPE_PER_TOKEN, MOST_HOPE)

    def as_record(self) -> list[float]:
        """Return what was learned, as numbers: three weights, then the logits met of late."""
        weights = [
            sum(share * each.weights[place] for share, each in self._sharers())
            for place in range(3)
        ]
        return [*weights, *self._recent]

    def learn_record(self, record: Sequence[float]) -> None:
        """Start from what was learned before, open to something new."""
        if len(record) < 3 or not all(abs(number) < 20 for number in record):
            return
        for each in self._filters:
            each.weights = (float(record[0]), float(record[1]), float(record[2]))
            each.doubt(0.5)
        self._recent.extend(float(logit) for logit in record[3:])
        self.num_observed += max(1, len(self._recent))
        self._thirds = None

    def _worth_of_chance(self, features: Features, kept: float) -> float:
        """Return how many outcomes tell as much as such a chance.

        Outcomes scatter as p (1 - p), chances mostly less: the dispersion of a quasi-likelihood
        (McCullagh and Nelder 1989, section 4.5), of the last ones heard.
        """
        expected = self._predict(features)
        new = ((kept - expected) ** 2, expected * (1.0 - expected))
        self._scatter = [
            SCATTER_MEMORY * known + (1.0 - SCATTER_MEMORY) * more
            for known, more in zip(self._scatter, new, strict=True)
        ]
        of_chances, of_outcomes = self._scatter
        return min(max(of_outcomes / of_chances, 1.0), LARGEST_WORTH)

    def _typical(self) -> list[float]:
        """Return the logits of three equally likely probabilities, for an aid of 0."""
        recent = self._recent or [_features(USUAL_CONFIDENCE, 0.0)[0]]
        known = sorted([self._predict((logit, 0.0)) for logit in recent])
        thirds = [
            known[third * len(known) // 3 : (third + 1) * len(known) // 3] for third in range(3)
        ]
        middle = known[len(known) // 2]
        return [_logit(sum(part) / len(part) if part else middle) for part in thirds]

    def _predict(self, features: Features) -> float:
        return sum([share * each.probability(features) for share, each in self._sharers()])

    def _sharers(self) -> zip[tuple[float, _Filter]]:
        return zip(self._shares, self._filters, strict=True)


def _features(confidence: float, aid: float) -> Features:
    return (_logit(min(max(confidence, 1.0 - MOST_CERTAIN), MOST_CERTAIN)), aid)


def _within_bounds(intercept: float) -> float:
    return min(max(intercept, INTERCEPTS[0]), INTERCEPTS[1])


def _log(chance: float) -> float:
    return math.log(max(chance, 1e-6))


def _logit(share: float) -> float:
    return math.log(share / (1.0 - share))


def _logistic(score: float) -> float:
    return 1.0 / (1.0 + math.exp(-min(max(score, -20.0), 20.0)))
