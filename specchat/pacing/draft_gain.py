"""What drafting one token more brings and takes, within one step.

All in tokens: a second counts as many of them as the rate to beat makes in it. Pure arithmetic on
what is known before a token is drawn.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from specchat.decoding.proposal import Hint

__all__ = ["POSITION_FEATURES", "DraftEconomics", "best_rate", "means", "position_feature"]

MOST_LIKELY = 0.999
LEAST_KEPT = 0.02
"""Tokens that are less likely to be kept raise no rate by much."""
SPACING = 0.8
"""Lengths of later steps are looked at that are so much shorter than the next."""
SETTLED = 3
"""From this place in a draft on, places are alike.

Above temperature 0 the first token of a draft is kept with the chance that it has on its own. Later
ones are kept more often: block verification forgives a token that the target finds too unlikely if
others before it were likelier there than in the draft, and the other way round.
"""
POSITION_FEATURES = tuple(place / SETTLED for place in range(SETTLED + 1))
"""The feature of tokens that cost a draft pass, by their position in the draft."""


def position_feature(num_before: int) -> float:
    """Return the feature of a token that follows this many drafted ones."""
    return POSITION_FEATURES[min(num_before, SETTLED)]


@dataclass(slots=True)
class DraftEconomics:
    """One step while it is drafted.

    Prices are in tokens, seconds times the rate to beat: `prices` of a target pass by the number of
    its tokens, `pass_price` of a draft pass, `another_price` of one token more in such a pass:
    after a draft that is kept whole the next one begins by reading its last token. `expected` are
    equally likely chances of tokens nothing is known of yet, for each of POSITION_FEATURES, and
    `later` their means. `lowest` has the least price of each pass and all longer ones. In `prices`
    a pass of the same length as the last one is cheaper by what a change of length takes;
    `later_prices` know of no such step before.
    """

    depth: int
    limit: int
    prices: Sequence[float]
    later_prices: Sequence[float]
    pass_price: float
    another_price: float
    expected: Sequence[Sequence[float]]
    lowest: Sequence[float] = field(init=False)
    later: Sequence[float] = field(init=False)
    survival: float = 1.0
    draft_seconds: float = 0.0
    is_look: bool = False
    drafted: list[tuple[str, Hint]] = field(default_factory=list)
    declined: tuple[str, Hint] | None = None
    pass_began: float = 0.0
    pass_tokens: int = 0

    def __post_init__(self) -> None:
        """Find the lowest prices, and the mean chances."""
        self.lowest = list(accumulate(reversed(self.prices), min))[::-1]
        self.later = means(self.expected)

    @property
    def room(self) -> int:
        """The number of tokens that may still be drafted."""
        return self.limit - len(self.drafted)

    def take(self, origin: str, hint: Hint, probability: float) -> None:
        """Draft a token that will be kept with this probability if those before it are."""
        self.drafted.append((origin, hint))
        self.survival *= probability

    def pays(self, cost: float, single: float, expected: Sequence[Sequence[float]] = ()) -> bool:
        """Say whether a draft pass of `cost` seconds brings more than it takes.

        A pass over one token takes `single` seconds. Tokens of the text that the draft model has
        yet to read are no cost of this step, nor are drafted ones as far as they will be kept.
        """
        share = (1.0 - self.survival) if self.drafted else 0.0
        price = self.pass_price * (1.0 + share * (cost / single - 1.0)) if single else 0.0
        return self.gain_of_pass(expected) > price

    def gain_of_pass(self, expected: Sequence[Sequence[float]] = ()) -> float:
        """Return what a pass is worth whose token may then be declined.

        `expected` are the chances to go by, if other than the step's own.
        """
        later = means(expected) if expected else self.later
        chances = (expected or self.expected)[min(len(self.drafted), SETTLED)]
        return sum(max(0.0, self._gain(chance, later)) for chance in chances) / len(chances)

    def gain(self, next_one: float) -> float:
        """Return the best of drafting 1, 2, ... more tokens, in tokens after their cost.

        The next token is kept with probability `next_one` and its draft pass is made; those after
        it are like others of late, and need a pass each.
        """
        return self._gain(next_one, self.later)

    def _gain(self, next_one: float, later: Sequence[float]) -> float:
        prices, lowest, place = self.prices, self.lowest, len(self.drafted) + 1
        likeliest = max(later)
        pass_price, prospect = self.pass_price, likeliest / (1.0 - likeliest)
        another = self.another_price
        chance, gain, best = self.survival * next_one, pass_price, -math.inf
        gain += another * self.survival if self.drafted else 0.0
        for more in range(place, min(place + self.room, len(prices) - 1)):
            gain += chance - pass_price - prices[more + 1] + prices[more]
            if gain - another * chance > best:
                best = gain - another * chance
            elif gain + chance * prospect + prices[more + 1] - lowest[more + 1] <= best:
                break  # even if the rest went as well and as cheaply as it can
            chance *= later[min(more, SETTLED)]
        return best

    def best(self, probabilities: Sequence[float]) -> tuple[int, float]:
        """Return how many tokens that cost no pass to take, and what they could bring at most.

        A passage kept whole goes on in the next step, so the tokens that a longer pass would add
        are not worth their risk if the next pass takes them as well: that number counts which
        brings most together with the best steps after it (dynamic programming over the passage).
        Only for the first tokens of a step.
        """
        prices = self.prices
        chances = list(accumulate(probabilities[: len(prices) - 2], mul, initial=1.0))
        kept = list(accumulate(chances))
        num_tokens = len(chances) - 1
        worths = [kept[more] - prices[more + 1] for more in range(num_tokens + 1)]
        paying = [more for more in range(1, num_tokens + 1) if worths[more] > worths[0]]
        if not paying:
            return 0, 0.0
        later = self._later_steps(chances, kept)
        num_taken = max(paying, key=lambda more: worths[more] + later[min(more + 1, num_tokens)])
        return num_taken, max(worths) - worths[0]

    def _later_steps(self, chances: Sequence[float], kept: Sequence[float]) -> list[float]:
        """Return what steps bring that begin after 0, 1, 2, ... tokens of a passage.

        Times the chance that the passage is kept so far; nothing where no step pays.
        """
        prices, end = self.later_prices, len(chances) - 1
        lengths = self._good_lengths()
        later = [0.0] * (end + 1)
        for begin in range(end - 1, 0, -1):
            chance, before = chances[begin], kept[begin - 1]
            best = 0.0
            for length in lengths:
                last = begin + length - 1
                if last >= end:
                    break
                worth = kept[last] - before - chance * prices[length] + later[last + 1]
                best = max(best, worth)
            later[begin] = best
        return later

    def _good_lengths(self) -> list[int]:
        """Return the lengths of passes that are cheaper per token than all shorter ones.

        Of those that hardly differ the longest.
        """
        least, records = math.inf, []
        for length in range(1, len(self.later_prices)):
            price = self.later_prices[length] / length
            if price < least:
                least = price
                records.append(length)
        good: list[int] = []
        for length in reversed(records):
            if not good or length <= SPACING * good[-1]:
                good.append(length)
        return good[::-1]


def means(expected: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean chance for each of POSITION_FEATURES."""
    return [min(sum(chances) / len(chances), MOST_LIKELY) for chances in expected]


def best_rate(
    costs: Sequence[float],
    draft_cost: float,
    another_cost: float,
    chances: Sequence[float],
    limit: int,
) -> float:
    """Return the tokens per second of the best draft length up to `limit`, 0 included.

    `costs` are the seconds of target passes by the number of their tokens, `draft_cost` those of a
    draft pass and `another_cost` those of one token more in it, which is due after a draft that is
    kept whole; a token is kept with the chance for its place if those before it are.
    """
    best, tokens, kept = 1.0 / costs[1], 1.0, 1.0
    for length in range(1, min(limit, len(costs) - 2) + 1):
        kept *= chances[min(length - 1, SETTLED)]
        if kept < LEAST_KEPT:
            break
        tokens += kept
        drafting = length * draft_cost + kept * another_cost
        best = max(best, tokens / (drafting + costs[length + 1]))
    return best
