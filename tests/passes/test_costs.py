"""What passes cost: a staircase is learned through noise, drift and depth."""

from __future__ import annotations

import numpy as np
import pytest

from specchat.decoding.proposal import Hint
from specchat.pacing.acceptance import AcceptanceModel
from specchat.pacing.draft_economics import DraftEconomics
from specchat.passes.pass_costs import PLAIN, PassCosts

STAIRS = {1: 1.0, 2: 1.6, 3: 2.1, 4: 1.4, 5: 1.9, 8: 2.2, 16: 3.4}


def learned(num_passes: int = 400, *, noise: float = 0.05, seed: int = 0) -> PassCosts:
    """Return costs learned from many passes in random order, some of them far too slow."""
    random = np.random.default_rng(seed)
    costs = PassCosts(17)
    for _ in range(num_passes):
        length = int(random.choice(list(STAIRS)))
        stall = 30.0 if random.random() < 0.02 else 1.0
        costs.observe(length, 10, 0.01 * STAIRS[length] * float(random.lognormal(0, noise)) * stall)
    return costs


def test_the_stairs_are_found_through_noise_and_stalls() -> None:
    """The cost of each measured length, relative to one token, is right within a few percent."""
    costs = learned()
    single = costs.seconds(1, 10)
    for length, expected in STAIRS.items():
        assert costs.seconds(length, 10) / single == pytest.approx(expected, rel=0.12)


def test_unmeasured_lengths_lie_between_their_neighbours() -> None:
    """Between two measured lengths on a line, beyond the last a little more."""
    costs = learned()
    six, seven = costs.seconds(6, 10), costs.seconds(7, 10)

    assert costs.seconds(5, 10) < six < seven < costs.seconds(8, 10)
    assert costs.seconds(16, 10) < costs.seconds(17, 10) < 1.1 * costs.seconds(16, 10)


def test_a_slower_machine_changes_all_costs_alike() -> None:
    """Only one length is in use while the machine slows down; the others are not left behind."""
    costs = learned(noise=0.01)
    ratio = costs.seconds(4, 10) / costs.seconds(1, 10)
    for _ in range(60):
        costs.observe(4, 10, 3 * 0.01 * STAIRS[4])

    assert costs.seconds(4, 10) == pytest.approx(3 * 0.01 * STAIRS[4], rel=0.05)
    assert costs.seconds(4, 10) / costs.seconds(1, 10) == pytest.approx(ratio, rel=0.2)


def test_depths_have_costs_of_their_own() -> None:
    """Far into a context passes are slower; lengths measured only near its start are scaled."""
    costs = learned(noise=0.01)
    for _ in range(100):
        for length in (1, 4):
            costs.observe(length, 5000, 0.02 * STAIRS[length])

    assert costs.seconds(1, 5000) == pytest.approx(2 * costs.seconds(1, 10), rel=0.15)
    assert costs.seconds(8, 5000) == pytest.approx(2 * costs.seconds(8, 10), rel=0.15)


def test_what_was_learned_can_be_kept() -> None:
    """A record restores the costs it was made from; malformed rows are ignored."""
    costs, again = learned(), PassCosts(17)
    nonsense = [(0, 99, 1.0), (0, 2, -1.0), (0, 3, float("nan")), (-1, 2, 1.0)]
    again.learn_record([*costs.as_record(), *nonsense])

    for length in range(1, 18):
        assert again.seconds(length, 10) == pytest.approx(costs.seconds(length, 10), rel=0.03)


def test_what_few_passes_said_is_not_kept() -> None:
    """Loaded again, it would be believed as if many had."""
    costs, again = PassCosts(17), PassCosts(17)
    for count, length in ((3, 1), (2, 2), (3, 4)):
        for _ in range(count):
            costs.observe(length, 10, 0.01 * length)
    again.learn_record(costs.as_record())

    assert [length for _, length, _ in costs.as_record()] == [1, 4]
    assert again.seconds(2, 10) == pytest.approx(0.02, rel=0.01)


def test_nothing_is_known_at_first() -> None:
    """Costs are 0 until a pass is measured; impossible passes are ignored."""
    costs = PassCosts(17)
    costs.observe(-1, 0, 1.0)
    costs.observe(1, 0, 0.0)

    assert not costs.is_known
    assert costs.seconds(1, 0) == 0.0


def test_passes_longer_than_any_known_cost_in_proportion() -> None:
    """A catch-up over many tokens is such a pass."""
    costs = learned()

    assert costs.seconds(34, 10) == pytest.approx(2 * costs.seconds(17, 10))
    before = costs.seconds(17, 10)
    for _ in range(100):
        costs.observe(34, 10, 6 * before)
    assert costs.seconds(17, 10) == pytest.approx(3 * before, rel=0.05)


def test_optimism_grows_with_what_was_not_measured() -> None:
    """A length not measured for long may cost less than believed, never as little as one token."""
    costs = PassCosts(17)
    costs.begin_with({length: 0.01 * STAIRS[length] for length in (1, 2, 8)})
    at_first = costs.optimistic_row(10)
    for _ in range(300):
        costs.observe(8, 10, 0.01 * STAIRS[8])
    row, later = costs.row(10), costs.optimistic_row(10)

    assert at_first[8] == pytest.approx(costs.row(10)[8], rel=0.01)
    assert later[8] == pytest.approx(row[8])
    assert 0.6 * row[1] < later[1] < 0.8 * row[1]
    assert row[1] < later[2] < 0.8 * row[2]


def test_tokens_that_cannot_pay_are_not_looked_at() -> None:
    """The choice is the same as among all tokens of a passage, on any stairs and at any rate."""
    random = np.random.default_rng(1)
    num_spared = 0
    for _ in range(300):
        costs, acceptance = PassCosts(17), AcceptanceModel()
        costs.begin_with({n: 0.01 * (1 + float(random.uniform(0, 3))) for n in range(1, 18)})
        hints = [Hint(float(random.uniform(0.5, 1))) for _ in range(15)]
        row, rate = costs.row(10), float(random.uniform(1, 1.5)) / costs.row(10)[1]
        step = DraftEconomics(10, 15, [rate * cost for cost in row], 0.0, 0.0, 0.0, [])
        several, some = (
            acceptance.likely(hints, least)[1] for least in ([-1.0] * 18, costs.least_rises(10))
        )
        assert step.best_passage(some)[0] == step.best_passage(several)[0]
        num_spared += len(several) - len(some)

    assert num_spared > 300


def test_a_stale_cost_gives_way_at_once() -> None:
    """Two good passes correct a length that was measured wrongly and then not for long."""
    costs = PassCosts(17)
    for _ in range(100):
        costs.observe(1, 10, 0.015)
    for _ in range(100):
        costs.observe(4, 10, 0.014)
    costs.observe(1, 10, 0.016)
    costs.observe(1, 10, 0.010)
    costs.observe(1, 10, 0.010)

    assert costs.seconds(1, 10) == pytest.approx(0.010, rel=0.1)
    assert costs.seconds(4, 10) == pytest.approx(0.014, rel=0.1)


def test_what_was_learned_can_be_doubted() -> None:
    """The fastest of the next passes then counts, as of the first ones."""
    costs = PassCosts(17)
    for _ in range(20):
        costs.observe(1, 10, 0.010)
        costs.observe(2, 10, 0.050)
    costs.doubt()
    assert not costs.is_one_known
    for _ in range(3):
        costs.observe(1, 10, 0.010)
        costs.observe(2, 10, 0.016)

    assert costs.is_one_known
    assert costs.seconds(2, 10) == pytest.approx(0.016, rel=0.1)


def test_measured_costs_replace_learned_ones() -> None:
    """Whatever passes seemed to cost on a busy machine."""
    costs = PassCosts(17)
    for _ in range(20):
        costs.observe(1, 10, 0.010)
        costs.observe(4, 5000, 0.090)
    costs.begin_with({1: 0.005, 4: 0.008})

    assert costs.is_one_known
    assert costs.seconds(1, 10) == pytest.approx(0.005)
    assert costs.seconds(4, 5000) == pytest.approx(0.008)


def test_a_slower_single_pass_leaves_plain_decoding_alone() -> None:
    """Where several tokens were faster than one, as on a machine that was busy at first."""
    costs = PassCosts(17)
    costs.begin_with({1: 0.060, 4: 0.012})
    assert costs.seconds(PLAIN, 10) == costs.seconds(1, 10) == pytest.approx(0.012)
    costs.observe(1, 10, 0.058)

    assert costs.seconds(PLAIN, 10) == costs.seconds(1, 10) == pytest.approx(0.012, rel=0.01)


def test_plain_decoding_has_a_cost_of_its_own() -> None:
    """Never more than one token right after drafting; a record keeps it, and depths scale it."""
    costs, again = PassCosts(17), PassCosts(17)
    costs.observe(1, 10, 0.012)
    assert costs.seconds(PLAIN, 10) == costs.seconds(1, 10)

    for _ in range(60):
        costs.observe(PLAIN, 10, 0.010)
        costs.observe(1, 10, 0.012)
        costs.observe(1, 5000, 0.024)
    assert costs.seconds(PLAIN, 10) == pytest.approx(0.010, rel=0.02)
    assert costs.seconds(1, 10) == pytest.approx(0.012, rel=0.02)
    assert costs.seconds(PLAIN, 5000) == pytest.approx(0.020, rel=0.02)
    again.learn_record(costs.as_record())
    assert again.row(10) == pytest.approx([costs.seconds(n, 10) for n in range(18)], rel=0.02)

    disturbed = PassCosts(17)
    disturbed.observe(PLAIN, 10, 0.013)
    disturbed.observe(1, 10, 0.012)
    assert disturbed.seconds(PLAIN, 10) == disturbed.seconds(1, 10) == 0.012


def test_plain_decoding_alone_is_enough_to_know_costs() -> None:
    """The other costs follow from it."""
    costs = PassCosts(17)
    costs.observe(PLAIN, 10, 0.010)

    assert costs.seconds(1, 10) == costs.seconds(PLAIN, 10) == 0.010
    assert costs.seconds(8, 10) > 0.010
