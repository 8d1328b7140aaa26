"""What measured answers come to, against figures computed by hand."""

from __future__ import annotations

import pytest

from specchat.bench.measurement import PLAIN, Arm, Bench, Run
from specchat.bench.summary import (
    accepted_by_position,
    accepted_share,
    decode_rate,
    prompt_rate,
    relative_costs,
    task_speedups,
)
from specchat.decoding.statistics import Statistics

AUTO = Arm()


def run(arm: Arm, rate: float, number: int = 0, kept: tuple[int, ...] = (), **more: float) -> Run:
    """Return an answer whose steps drafted three tokens and kept so many."""
    stats = Statistics(prompt_tokens=30, cached_tokens=10, prompt_s=2.0)
    for num_accepted in kept:
        stats.count_step(3, num_accepted, num_accepted + 1)
    figures = stats.as_dict() | {"drafted_by_position": stats.drafted_by_position}
    costs = {int(name[1:]): seconds for name, seconds in more.items()}
    return Run(arm, "one", 0.0, number, "p", rate, figures, (), costs)


def test_a_rate_is_the_median() -> None:
    """Of two answers it is the middle, not the faster one."""
    bench = Bench([run(AUTO, 10.0), run(AUTO, 20.0, 1), run(PLAIN, 5.0)])

    assert decode_rate(bench, AUTO, "one", 0.0) == 15.0
    assert decode_rate(bench, AUTO, "one", 0.8) == 0.0


def test_positions_where_nothing_was_kept_count() -> None:
    """Half of the steps keep all three tokens and half none: half at every position."""
    bench = Bench([run(AUTO, 1.0, 0, (3, 3)), run(AUTO, 1.0, 1, (0, 0)), run(PLAIN, 1.0)])

    assert accepted_by_position(bench, AUTO) == [0.5, 0.5, 0.5]
    assert accepted_share(bench, AUTO, "one", 0.0) == 0.5
    assert accepted_share(bench, PLAIN, "one", 0.0) == 0.0
    assert accepted_by_position(bench, PLAIN) == []


def test_costs_are_relative_to_one_token() -> None:
    """The last answer that knows them counts; without a single token's there are none."""
    known = Bench([run(AUTO, 1.0, n1=1.0, n4=9.0), run(AUTO, 1.0, n1=2.0, n4=3.0), run(PLAIN, 1.0)])

    assert relative_costs(known) == {1: 1.0, 4: 1.5}
    assert relative_costs(Bench([run(AUTO, 1.0, n4=3.0)])) == {}
    assert relative_costs(Bench()) == {}


def test_reading_prompts_is_told_apart() -> None:
    """20 tokens that were not in memory in 2 seconds."""
    assert prompt_rate(Bench([run(AUTO, 1.0), run(PLAIN, 1.0)])) == 10.0
    assert prompt_rate(Bench()) == 0.0


def test_every_task_has_its_speedup() -> None:
    """Twice and four times as fast in two rounds: three times, from two to four."""
    bench = Bench([run(PLAIN, 5.0), run(AUTO, 10.0), run(PLAIN, 5.0, 1), run(AUTO, 20.0, 1)])

    assert task_speedups(bench, AUTO) == {"one": pytest.approx((3.0, 2.0, 4.0))}
