"""What drafting one more token brings and costs within a step.

Everything is in tokens: a second costs as many of them as the rate to beat makes in it. Pure
arithmetic on what is known before a token is drawn.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from operator import mul

from specchat.decoding.proposal import Hint
from specchat.pacing.acceptance import MIN_CHANCE

MAX_CHANCE = 0.999
CLEARLY = 1.0 + 1e-9
"""A gain this many times the price exceeds it, however sums are rounded."""


@dataclass(slots=True)
class DraftEconomics:
    """The gains and prices of one step while it is drafted.

    A price is in tokens: seconds times the rate to beat. `prices` has that of a target pass by its
    number of tokens; `pass_price` that of a draft pass, `later_price` that of one for a later token
    of a draft, 0 if the first gives a whole block, and `another_price` that of one more token in a
    pass: after a fully accepted draft the next one begins by reading its last token. Where the next
    one begins by reading every accepted token, `accepted_price` is that of each. A target pass over
    one token takes `settling_price` more right after draft passes than in plain decoding, which the
    first draft pass therefore has to make up for. `expected` holds equally likely acceptance
    probabilities of a token not seen yet, for each position, from the lowest to the highest.
    `draft_seconds` is the time of the first draft pass, of all if the step explores: no decision
    needs that of the others before the next step. `later` holds the means of `expected`, and
    `chances` those of the drafted tokens that nothing forces.
    """

    depth: int
    limit: int
    prices: Sequence[float]
    pass_price: float
    later_price: float
    another_price: float
    expected: Sequence[Sequence[float]]
    is_exploration: bool = False
    accepted_price: float = 0.0
    settling_price: float = 0.0
    survival: float = 1.0
    draft_seconds: float = 0.0
    drafted: list[tuple[str, Hint]] = field(default_factory=list)
    chances: list[float] = field(default_factory=list)
    declined: tuple[str, Hint] | None = None
    pass_began: float = 0.0
    pass_tokens: int = 0
    later: Sequence[float] = ()
    _lowest: Sequence[float] = field(init=False, default=())

    def __post_init__(self) -> None:
        """Find the mean probabilities, unless they are known."""
        self.later = self.later or means(self.expected)

    @property
    def lowest(self) -> Sequence[float]:
        """The lowest price of each pass and all longer ones: most decisions do without."""
        if not self._lowest:
            last = min(self.limit + 1, len(self.prices) - 1)
            within, beyond = self.prices[:last], min(self.prices[last:])
            self._lowest = list(accumulate(reversed(within), min, initial=beyond))[::-1]
        return self._lowest

    @property
    def has_drafted(self) -> bool:
        """Whether anything was drafted, or a draft pass made."""
        return bool(self.drafted or self.draft_seconds)

    @property
    def room(self) -> int:
        """The number of tokens that may still be drafted."""
        return self.limit - len(self.drafted)

    def take(self, origin: str, hint: Hint, probability: float) -> None:
        """Draft a token with this probability of being accepted once those before it are."""
        self.drafted.append((origin, hint))
        self.chances.append(probability)
        self.survival *= probability

    def gain_of_pass(self, expected: Sequence[Sequence[float]] = ()) -> float:
        """Return the expected gain from a draft pass, after which its token may be declined.

        `expected` replaces the step's own probabilities.
        """
        by_position, later = expected or self.expected, means(expected) or self.later
        chances = by_position[min(len(self.drafted), len(by_position) - 1)]
        gains = [max(0.0, self._gain(chance, later)) for chance in chances]
        return sum(gains) / len(gains) - self._price_of_pass

    def pays_for_pass(self) -> bool:
        """Whether that gain is positive.

        A gain is a maximum of lines in the chance, so the mean of gains is at least the gain of the
        mean chance, which mostly decides. Gains grow with the chance: where the highest one does
        not pay, nor does any other.
        """
        if not self.expected:
            return False
        place, price = len(self.drafted), self._price_of_pass
        if self._gain(self.later[min(place, len(self.later) - 1)], self.later, price) > price:
            return True
        chances = self.expected[min(place, len(self.expected) - 1)]
        missing, gains = CLEARLY * len(chances) * price, list[float]()
        for chance in reversed(chances):
            gain = max(0.0, self._gain(chance, self.later, missing))
            if gain > missing:
                return True
            if not gains and gain <= price:
                return False
            missing -= gain
            gains.append(gain)
        return sum(reversed(gains)) / len(gains) - price > 0

    @property
    def _price_of_pass(self) -> float:
        is_first = not (self.drafted or self.draft_seconds)
        return self.pass_price + self.settling_price if is_first else self.pass_price

    def gain(self, probability: float, enough: float = math.inf) -> float:
        """Return the gain from drafting 1, 2, ... more tokens, whichever number is best.

        The next token is accepted with this probability and its draft pass is made; those after
        it are like recent ones, and take a pass each unless the first gives a block. Once a gain
        above `enough` is found, no better one is looked for.

        Behind m drafted tokens, which are all accepted with the chance S, n more gain

            sum over i = 1 ... n of  S a(1) ... a(i) (1 - accepted_price)   tokens emitted
            - (n - 1) later_price                                           draft passes
            - prices[m + n + 1] + prices[m + 1]                             a longer target pass
            - another_price (S a(1) ... a(n) - S [m > 0])                   reading the last token

        where a(1) is `probability` and a(2), a(3), ... are the expected ones of their positions.
        """
        return self._gain(probability, self.later, enough)

    def _gain(self, next_one: float, later: Sequence[float], enough: float = math.inf) -> float:
        prices, later_price, another_price = self.prices, self.later_price, self.another_price
        place, last, highest = len(self.drafted) + 1, len(later) - 1, max(later)
        chance, gain, best = self.survival * next_one, later_price, -math.inf
        worth, hope = 1.0 - self.accepted_price, highest / (1.0 - highest)
        gain += another_price * self.survival if self.drafted else 0.0
        lowest: Sequence[float] = ()
        # n = more - place + 1; `gain` is the formula's but for its last line, `chance` the product
        # in its last term. All further terms add up to at most chance * hope, a geometric series at
        # the highest expected chance, and no longer pass costs less than `lowest`: that ends the
        # search.
        for more in range(place, min(self.limit + 1, len(prices) - 1)):
            price = prices[more + 1]
            gain += chance * worth - later_price - price + prices[more]
            if gain - another_price * chance > best:
                best = gain - another_price * chance
                if best > enough:
                    break
            else:
                lowest = lowest or self.lowest
                if gain + chance * hope + price - lowest[more + 1] <= best:
                    break  # even if the rest went as well and as cheaply as it can
            chance *= later[more] if more < last else later[last]
        return best

    def best_passage(self, probabilities: Sequence[float]) -> tuple[int, float]:
        """Return how many tokens of a passage to take, none of which costs a draft pass.

        Also returns the largest gain. A fully accepted passage goes on in the next step, so of the
        lengths that pay, the one with the most tokens per time is best, not the largest gain.
        Only for the first tokens of a step.
        """
        chances = accumulate(probabilities[: len(self.prices) - 2], mul, initial=1.0)
        emitted = list(accumulate(chances))
        gains = [tokens - price for tokens, price in zip(emitted, self.prices[1:], strict=False)]
        plain = gains[0] + self.settling_price
        paying = [length for length, gain in enumerate(gains) if gain > plain]
        if not paying:
            return 0, 0.0
        best = max(paying, key=lambda length: emitted[length] / (self.prices[length + 1] or 1.0))
        return best, max(gains) - plain


def means(expected: Sequence[Sequence[float]]) -> list[float]:
    """Return the mean probability for each position, below 1; the last holds from there on."""
    return [min(sum(chances) / len(chances), MAX_CHANCE) for chances in expected]


def best_rate(
    costs: Sequence[float], draft_costs: Sequence[float], chances: Sequence[float], limit: int
) -> float:
    """Return the tokens per second of the best draft length up to `limit`, 0 included.

    `costs` are the seconds of target passes by their number of tokens, `draft_costs` those of a
    draft pass, of one for a later token, of one more token in a pass, which is due after a fully
    accepted draft, and of reading an accepted token, which may be due for each. A token is accepted
    with the chance of its position if those before it are.
    """
    first, later, another, accepted = draft_costs
    best, tokens, survival, num_known = 1.0 / costs[1], 1.0, 1.0, len(chances)
    highest, least = min(max(chances), MAX_CHANCE), min(costs[1:])
    hope, drafting = highest / (1.0 - highest), first
    for length in range(1, min(limit, len(costs) - 2) + 1):
        survival *= chances[length - 1] if length < num_known else chances[-1]
        if survival < MIN_CHANCE:
            break
        tokens += survival
        time = drafting + survival * another + (tokens - 1.0) * accepted + costs[length + 1]
        if tokens > best * time:
            best = tokens / time
        drafting += later
        if tokens + survival * hope <= best * (drafting + least):
            break  # even if the rest went as well and as cheaply as it can
    return best
