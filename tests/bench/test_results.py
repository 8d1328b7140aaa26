"""The figures of measured answers, against figures computed by hand."""

from __future__ import annotations

import pytest

from specchat.bench.results import PLAIN, Arm, Results, Run
from specchat.decoding.statistics import Statistics

AUTO = Arm()


def run(arm: Arm, rate: float, number: int = 0, kept: tuple[int, ...] = (), **more: float) -> Run:
    """Return an answer whose steps drafted three tokens each and accepted `kept`."""
    stats = Statistics(prompt_tokens=30, cached_tokens=10, prompt_s=2.0)
    for num_accepted in kept:
        stats.count_step(3, num_accepted, num_accepted + 1)
    figures = stats.as_dict() | {"drafted_by_position": stats.drafted_by_position}
    costs = {int(name[1:]): seconds for name, seconds in more.items()}
    return Run(arm, "one", 0.0, number, "p", rate, figures, (), costs)


def test_a_rate_is_the_median() -> None:
    """The rate of two answers is their mean, not the faster one."""
    results = Results([run(AUTO, 10.0), run(AUTO, 20.0, 1), run(PLAIN, 5.0)])

    assert results.decode_rate(AUTO, "one", 0.0) == 15.0
    assert results.decode_rate(AUTO, "one", 0.8) == 0.0


def test_positions_where_nothing_was_kept_count() -> None:
    """Half of the steps accept all three tokens and half none: 0.5 at every position."""
    results = Results([run(AUTO, 1.0, 0, (3, 3)), run(AUTO, 1.0, 1, (0, 0)), run(PLAIN, 1.0)])

    assert results.totals(AUTO).accepted_by_position == (0.5, 0.5, 0.5)
    assert results.totals(AUTO, "one", 0.0).acceptance_rate == 0.5
    assert results.totals(PLAIN, "one", 0.0).acceptance_rate is None
    assert results.totals(PLAIN).accepted_by_position == ()


def test_costs_are_relative_to_one_token() -> None:
    """The last known costs count; without the cost of one token there are none."""
    runs = [run(AUTO, 1.0, n1=1.0, n4=9.0), run(AUTO, 1.0, n1=2.0, n4=3.0), run(PLAIN, 1.0)]
    known = Results(runs)

    assert known.relative_costs() == {1: 1.0, 4: 1.5}
    assert Results([run(AUTO, 1.0, n4=3.0)]).relative_costs() == {}
    assert Results().relative_costs() == {}


def test_the_prompt_rate_leaves_cached_tokens_out() -> None:
    """Each prompt has 20 tokens that are not cached, read in 2 seconds."""
    assert Results([run(AUTO, 1.0), run(PLAIN, 1.0)]).prompt_rate() == 10.0
    assert Results().prompt_rate() == 0.0


def test_every_task_has_its_speedup() -> None:
    """Two rounds at 2x and 4x give a speedup of 3x with an interval from 2x to 4x."""
    results = Results([run(PLAIN, 5.0), run(AUTO, 10.0), run(PLAIN, 5.0, 1), run(AUTO, 20.0, 1)])

    assert results.task_speedups(AUTO) == {"one": pytest.approx((3.0, 2.0, 4.0))}
