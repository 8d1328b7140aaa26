"""What passes cost: measured staircases, usual ones, and what lies between."""

from __future__ import annotations

from functools import partial

import pytest

from specchat.passes.pass_costs import (
    ON_GPU,
    PLAIN,
    QUANTISED,
    REPACKED,
    UNQUANTISED,
    PassCosts,
    usual_stair,
)

STAIRS = {1: 1.0, 2: 1.6, 3: 2.1, 4: 1.4, 5: 1.9, 8: 2.2, 16: 3.4}


def measured(depth_factor: float = 0.0) -> PassCosts:
    """Return measured costs, and some at a depth."""
    costs = PassCosts(17)
    costs.begin_with(STAIRS)
    if depth_factor:
        costs.learn_record([(5, 1, depth_factor), (5, 4, depth_factor * STAIRS[4])])
    return costs


def test_measured_lengths_cost_what_was_measured() -> None:
    """And nothing is measured at first."""
    assert not PassCosts(17).is_known
    costs = measured()
    assert costs.is_known
    for length, seconds in STAIRS.items():
        assert costs.seconds(length, 10) == pytest.approx(seconds)


def test_unmeasured_lengths_lie_between_their_neighbours() -> None:
    """Beyond the last they cost a little more, and far beyond in proportion."""
    costs = measured()
    assert costs.seconds(5, 10) < costs.seconds(6, 10) < costs.seconds(8, 10)
    assert costs.seconds(16, 10) < costs.seconds(17, 10) < 1.1 * costs.seconds(16, 10)
    assert costs.seconds(170, 10) == pytest.approx(10 * costs.seconds(17, 10))


@pytest.mark.parametrize("stair", [REPACKED, QUANTISED, UNQUANTISED, ON_GPU])
def test_an_unmeasured_pair_has_a_usual_stair(stair: dict[int, float]) -> None:
    """In units of a pass over one token; what is measured scales what is not."""
    costs = PassCosts(65, stair)
    for length, relative in stair.items():
        assert costs.seconds(length, 0) == pytest.approx(relative)
    costs.begin_with({1: 0.5})
    assert costs.seconds(8, 0) == pytest.approx(0.5 * stair[8])


def test_a_pass_of_a_mixture_usually_reads_the_experts_of_all_its_tokens() -> None:
    """As measured on 128 experts of which a token uses 8; files without experts are as before."""
    usual = partial(usual_stair, "Q8_0", is_on_gpu=False, is_repacked=False)
    costs = PassCosts(65, usual(active_share=8 / 128))
    for count, measured_cost in {2: 2.2, 3: 3.0, 4: 4.1, 8: 7.0, 16: 11.7}.items():
        assert costs.seconds(count, 0) == pytest.approx(measured_cost, rel=0.1)
    assert usual() is QUANTISED
    assert costs.seconds(65, 0) == pytest.approx(QUANTISED[65])


def test_no_measurement_is_taken_beyond_what_can_be() -> None:
    """A pass over n tokens takes no less than one over 1, and no more than n of them."""
    costs = PassCosts(17)
    costs.begin_with({1: 1.0, 2: 9.7, 4: 0.2})
    assert costs.seconds(2, 0) == pytest.approx(2.0)
    assert costs.seconds(4, 0) == pytest.approx(1.0)


@pytest.mark.parametrize("stair", [REPACKED, QUANTISED, UNQUANTISED, ON_GPU])
@pytest.mark.parametrize(
    "known", [{1: 1.0}, {1: 1.0, 4: 1.2}, {1: 1.0, 16: 9.0, 33: 9.5, 65: 10.0}]
)
def test_long_passes_cost_what_they_can(stair: dict[int, float], known: dict[int, float]) -> None:
    """Beyond the steps no less than shorter ones, and no more than their tokens one by one."""
    costs = PassCosts(65, stair)
    costs.begin_with(known)
    row = [costs.seconds(length, 0) for length in range(1, 66)]
    assert all(seconds <= length for length, seconds in enumerate(row, 1))
    assert row[7:] == sorted(row[7:])
    for length, seconds in known.items():
        assert row[length - 1] == pytest.approx(seconds)


def test_depths_have_costs_of_their_own() -> None:
    """Far into a context passes are slower; lengths measured only near its start are scaled."""
    costs = measured(2.0)
    assert costs.seconds(1, 5000) == pytest.approx(2.0)
    assert costs.seconds(8, 5000) == pytest.approx(2 * costs.seconds(8, 10))
    assert costs.seconds(8, 10) == pytest.approx(2.2)


def test_plain_decoding_has_a_cost_of_its_own() -> None:
    """Which is no more than that of a single pass; alone it is enough to know costs."""
    costs = measured()
    assert costs.seconds(PLAIN, 10) == costs.seconds(1, 10)
    costs.set_plain(0.8)
    assert costs.seconds(PLAIN, 10) == pytest.approx(0.8)
    assert costs.seconds(1, 10) == pytest.approx(1.0)
    costs.set_plain(1.3)
    assert costs.seconds(PLAIN, 10) == pytest.approx(1.0)
    alone = PassCosts(17)
    alone.set_plain(0.5)
    assert alone.seconds(1, 0) == alone.seconds(PLAIN, 0) == pytest.approx(0.5)


def test_what_is_known_can_be_kept() -> None:
    """Entries that cannot be right are left out."""
    costs = measured(2.0)
    kept = PassCosts(17)
    kept.learn_record([*costs.as_record(), (0, 999, 1.0), (99, 1, 1.0), (0, 7, -1.0), (0, 7, 1e9)])
    assert kept.as_record() == costs.as_record()


def test_a_new_measurement_replaces_all() -> None:
    """Also what is known at depths."""
    costs = measured(2.0)
    costs.begin_with({1: 3.0})
    assert costs.as_record() == [(0, 1, 3.0)]
