"""What exact kernels cost, and up to which passes they are cheap."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

from conftest import WriteModel
from passes.test_exact_passes import context_of
from specchat.llama import tinyblas
from specchat.llama.context import Context
from specchat.options.declarations import LONGEST_DRAFT
from specchat.passes import exact_costs as costs
from specchat.passes import exactness_measurement as measurement
from specchat.passes.exact_costs import longest_cheap
from specchat.passes.exact_passes import NUM_COPIED
from specchat.passes.exactness import Exactness
from specchat.passes.exactness_measurement import ExactnessMeasurement
from tables import table


@pytest.fixture
def context(tiny: WriteModel, monkeypatch: pytest.MonkeyPatch) -> Iterator[Context]:
    """A context whose passes take a second a token, and without tinyBLAS 1.2 from 8 tokens on.

    At depths from 1000 on they take 1.5 without tinyBLAS. Filling the memory takes no time.
    """
    now, exact, slow = 0.0, 1, 1.2

    @contextmanager
    def left_out(longest: int) -> Iterator[None]:
        nonlocal exact
        exact = longest
        yield

    with context_of(tiny("llama")) as context:
        evaluate, repeat = context.evaluate, context.rollback_kind.repeat

        def repeated(num_times: int) -> bool:
            nonlocal slow
            slow = 1.5 if num_times > 1000 // NUM_COPIED else 1.2
            return repeat(num_times)

        def timed(tokens: Sequence[int], num_rows: int) -> Any:
            nonlocal now
            now += len(tokens) * (slow if exact >= len(tokens) >= 8 else 1.0) if num_rows else 0.0
            return evaluate(tokens, num_rows)

        monkeypatch.setattr(context, "evaluate", timed)
        monkeypatch.setattr(context.rollback_kind, "repeat", repeated)
        monkeypatch.setattr(tinyblas, "is_optional", lambda: True)
        monkeypatch.setattr(tinyblas, "left_out", left_out)
        monkeypatch.setattr(tinyblas, "longest_without", lambda: LONGEST_DRAFT + 1)
        for module in (costs, measurement):
            monkeypatch.setattr(module, "perf_counter", lambda: now)
        yield context


@pytest.fixture
def costs_of(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> Callable[[int, float], dict[int, float]]:
    """Return a function that times exact kernels where passes are exact up to some length."""

    def measured(longest: int, most_seconds: float) -> dict[int, float]:
        monkeypatch.setattr(measurement, "longest_here", lambda *_: (longest, longest))
        monkeypatch.setitem(measurement.MOST_SECONDS, "on", 0.0)
        monkeypatch.setattr(measurement, "MOST_SECONDS_OF_COSTS", most_seconds)
        return dict(ExactnessMeasurement("on").run(context, tinyblas).costs)

    return measured


def test_costs_are_the_largest_of_shallow_and_deep_contexts(
    context: Context, costs_of: Callable[[int, float], dict[int, float]]
) -> None:
    """Each length is timed with and without tinyBLAS, and the memory is left empty."""
    assert costs_of(33, 1e6) == pytest.approx({2: 1.0, 4: 1.0, 8: 1.5, 16: 1.5})
    assert costs_of(4, 1e6) == pytest.approx({2: 1.0, 4: 1.0})
    assert context.length == 0


def test_what_the_time_does_not_reach_has_no_cost(
    costs_of: Callable[[int, float], dict[int, float]],
) -> None:
    """Lengths are timed from the shortest on, at both depths."""
    assert list(costs_of(33, 100.0)) == [2, 4]
    assert costs_of(33, 0.0) == {}


def test_a_build_without_the_choice_has_no_costs(
    context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is timed, and what was found exact costs nothing more."""
    monkeypatch.setattr(tinyblas, "is_optional", lambda: False)
    monkeypatch.setattr(measurement, "longest_here", lambda *_: (7, 7))

    assert ExactnessMeasurement("auto").run(context, tinyblas) == Exactness(7, bound=7)


@table(
    ("known", "longest", "cheap"),
    [
        ({2: 1.0, 4: 1.04, 8: 1.0, 16: 0.9}, 33, 33),
        ({2: 1.0, 4: 1.04, 8: 1.06, 16: 1.0}, 33, 4),
        ({2: 1.0, 4: 1.04}, 33, 4),
        ({2: 1.06, 4: 1.0}, 33, 1),
        ({2: 1.0}, 3, 3),
        ({}, 33, 1),
    ],
)
def test_exact_kernels_are_cheap_up_to_a_pass_that_takes_longer(
    known: dict[int, float], longest: int, cheap: int
) -> None:
    """Up to 5 % more time is cheap; what was not timed is not."""
    assert longest_cheap(known, longest) == cheap
