"""What ends a search early does not change what is found."""

from __future__ import annotations

from itertools import accumulate
from operator import mul

import numpy as np
import pytest

from specchat.decoding.proposal import Hint
from specchat.pacing.acceptance import MIN_CHANCE
from specchat.pacing.draft_economics import DraftEconomics, best_rate
from tables import table


def random_costs(random: np.random.Generator, longest: int = 33) -> list[float]:
    """Return the costs of passes: one of plain decoding, then stairs up and sometimes down."""
    rises = random.uniform(-0.2, 1.0, longest) * (random.random(longest) < 0.5)
    row = np.maximum(1.0 + np.concatenate(([0.0], rises[1:])).cumsum(), 1.0)
    return [float(random.uniform(0.7, 1.0)), *row.tolist()]


@table("seed", range(4))
def test_the_first_look_at_a_pass_decides_as_the_whole_gain_does(seed: int) -> None:
    """At any chances, prices and places in a draft."""
    random = np.random.default_rng(seed)
    num_wanted = 0
    for _ in range(500):
        rate = float(random.uniform(0.8, 1.5))
        prices = [rate * cost for cost in random_costs(random)]
        expected = [sorted(random.uniform(0.05, 0.99, 3).tolist()) for _ in range(4)]
        price, read = random.uniform(0.02, 0.5), random.uniform(0.0, 0.1, 2)
        step = DraftEconomics(
            10, 32, prices, price, price, float(read[0]), expected,
            accepted_price=float(read[1]), settling_price=float(random.uniform(0.0, 0.3)),
        )  # fmt: skip
        for _ in range(int(random.integers(5))):
            step.take("head", Hint(1.0), float(random.uniform(0.5, 1.0)))
        wanted = step.gain_of_pass()
        if abs(wanted) > 1e-9:  # rounding decides others
            assert step.pays_for_pass() == (wanted > 0)
            num_wanted += wanted > 0

    assert 100 < num_wanted < 400


def test_the_best_rate_is_that_of_all_lengths() -> None:
    """The search ends where no longer draft can be better."""
    random = np.random.default_rng(5)
    for _ in range(1000):
        costs, (first, later) = random_costs(random), random.uniform(0.02, 0.4, 2).tolist()
        more = random.uniform(0.0, 0.1, 2).tolist()
        chances = random.uniform(0.05, 0.99, 4).tolist()
        survival = list(accumulate([*chances, *chances[-1:] * 28], mul))
        rates = [1.0 / costs[1]]
        for length in range(1, 33):
            if survival[length - 1] < MIN_CHANCE:
                break
            accepted = sum(survival[:length])
            time = first + (length - 1) * later + costs[length + 1]
            time += survival[length - 1] * more[0] + accepted * more[1]
            rates.append((1.0 + accepted) / time)

        found = best_rate(costs, (first, later, *more), chances, 32)

        assert found == pytest.approx(max(rates))
