"""The benchmark's arithmetic, its order, and that nothing is measured on what it has seen."""

from __future__ import annotations

import ast
import math
import xml.etree.ElementTree as ET
from collections.abc import Sequence

import numpy as np
import pytest

from bench.fake_engine import FakeEngine
from conftest import WriteModel
from specchat.bench.measurement import PLAIN, Arm, Bench, Run, interval, measure
from specchat.bench.plot import Bar, draw
from specchat.bench.tasks import CODE, TASKS, Task
from specchat.engine import Engine

AUTO = Arm()
TWO = (Task("one", ("first", "second")), Task("two", ("third",)))


def measured(engine: Engine, rounds: int = 2, temperatures: Sequence[float] = (0.0,)) -> Bench:
    """Measure two tasks to the end."""
    states = measure(
        engine, [AUTO], TWO, temperatures, rounds=rounds, max_tokens=3, tell=lambda *_: None
    )
    return list(states)[-1]


def test_every_answer_begins_on_a_state_that_has_seen_nothing() -> None:
    """Texts are forgotten right before each answer, and not before the warming up alone."""
    engine = FakeEngine()
    bench = measured(engine)

    assert bench.is_whole
    assert engine.forgotten == list(range(1, 9))
    assert len(bench.runs) == 8


def test_arms_take_turns_and_swap_places() -> None:
    """Plain and speculative stand next to each other; each comes first as often as second."""
    engine = FakeEngine()
    measured(engine, rounds=2)
    drafters = [drafter for _, drafter, _ in engine.asked[1:]]

    assert all(set(drafters[at : at + 2]) == {"none", "auto"} for at in range(0, 8, 2))
    assert drafters[::2].count("none") == drafters[::2].count("auto") == 2
    assert [prompt for prompt, *_ in engine.asked[1::2]] == ["first", "third", "second", "third"]


def test_speedups_are_of_neighbours() -> None:
    """An arm is set against plain decoding of the same task, temperature and round."""
    bench = measured(FakeEngine(), temperatures=(0.0, 0.8))

    assert set(bench.ratios(AUTO)) == {(t, at) for t in ("one", "two") for at in (0.0, 0.8)}
    assert bench.ratios(AUTO, "one", 0.8) == {("one", 0.8): [pytest.approx(1.5)] * 2}
    assert interval(bench.ratios(AUTO)) == pytest.approx((1.5, 1.5, 1.5))


def test_a_prompt_that_does_not_fit_is_left_out_with_its_reason() -> None:
    """All else is measured."""
    bench = measured(FakeEngine(too_long="third"))

    assert {run.task for run in bench.runs} == {"one"}
    assert bench.skipped == ["two: too long"]


def test_stopping_keeps_what_was_measured() -> None:
    """The state after any answer holds all answers up to it."""
    states = measure(FakeEngine(), [AUTO], TWO, [0.0], rounds=2, max_tokens=3, tell=lambda *_: None)
    bench = [next(states) for _ in range(3)][-1]

    assert len(bench.runs) == 3
    assert not bench.is_whole
    assert list(bench.ratios(AUTO)) == [("one", 0.0)]


def test_progress_ends_with_nothing_left() -> None:
    """Done, all and the seconds left are told before each answer and at the end."""
    told: list[tuple[int, int, float]] = []
    list(
        measure(
            FakeEngine(), [AUTO], TWO, [0.0], rounds=1, max_tokens=3, tell=lambda *a: told.append(a)
        )
    )

    assert [done for done, *_ in told] == [0, 1, 2, 3, 4]
    assert told[-1] == (4, 4, 0.0)


def test_the_mean_of_speedups_is_geometric() -> None:
    """Twice as fast on one task and half as fast on another is no gain."""
    speedup, low, high = interval({("a", 0.0): [2.0, 2.0], ("b", 0.0): [0.5, 0.5]})

    assert (speedup, low, high) == pytest.approx((1.0, 1.0, 1.0))


def test_every_task_weighs_the_same() -> None:
    """A task measured at one temperature counts as much as one measured at two."""
    ratios = {("a", 0.0): [4.0], ("a", 0.8): [4.0], ("b", 0.0): [1.0]}

    assert interval(ratios) == pytest.approx((2.0, 2.0, 2.0))


def test_a_speedup_is_the_mean_of_medians() -> None:
    """By hand: medians 2 and 8, geometric mean 4; the ends are the extreme rounds' means."""
    speedup, low, high = interval({("a", 0.0): [1.0, 2.0, 3.0], ("b", 0.0): [8.0, 8.0, 8.0]})

    assert speedup == pytest.approx(4.0)
    assert (low, high) == pytest.approx((math.sqrt(8), math.sqrt(24)))
    assert interval({("a", 0.0): [1.0, 2.0, 3.0]}) == interval({("a", 0.0): [1.0, 2.0, 3.0]})


def test_an_interval_of_nothing_is_refused() -> None:
    """There is no speedup where nothing was measured."""
    with pytest.raises(ValueError, match="nothing was measured"):
        interval({})


def test_a_stopped_answer_is_left_out() -> None:
    """Half an answer is no measurement."""
    bench = measured(FakeEngine(stopped_from=4))

    assert len(bench.runs) == 3


def test_both_arms_draw_by_the_same_seed_where_that_changes_nothing_else() -> None:
    """A seed fixes the draft length, so an arm that decides it step by step gets none."""
    for length, has_seed in ((2, True), ("auto", False)):
        engine = FakeEngine()
        list(
            measure(
                engine, [Arm("model", length)], TWO, [0.8], rounds=2, max_tokens=3,
                tell=lambda *_: None,
            )
        )  # fmt: skip
        answers = engine.options[1:]
        plain = [each.get("seed") for each in answers if each["drafter"] == "none"]
        other = [each.get("seed") for each in answers if each["drafter"] == "model"]

        assert plain == [1, 1, 2, 2]
        assert other == (plain if has_seed else [None] * 4)
        assert all(each["ignore_end"] and each["max_tokens"] == 3 for each in answers)


def test_a_chat_template_is_used_where_there_is_one() -> None:
    """The prompt is the message of a user then."""
    engine = FakeEngine(has_chat_template=True)
    measured(engine, rounds=1)

    assert engine.messages == [
        [{"role": "user", "content": text}] for text in ("first", "first", "third", "third")
    ]


def test_a_real_pair_is_measured(tiny: WriteModel) -> None:
    """The same tokens in both arms, of the length asked for, each read from an empty memory."""
    with Engine.load(tiny("llama"), tiny("llama", "half right"), ctx=512, threads=1) as engine:
        bench = measured(engine, rounds=1)

    assert bench.num_compared(AUTO) == 2
    assert bench.num_different(AUTO) == 0
    assert all(len(run.tokens) == 3 for run in bench.runs)
    assert all(run.stats["cached_tokens"] == 0 for run in bench.runs)
    assert bench.runs[-1].pass_costs[1] > 0


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of 100 made-up benchmarks of 9 rounds the interval holds the true median in most."""
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        cells = {("a", 0.0): random.lognormal(math.log(1.3), 0.1, 9).tolist()}
        _, low, high = interval(cells)
        hits += low <= 1.3 <= high

    assert 0.85 < hits / 100 <= 1.0


def test_different_answers_at_temperature_0_are_counted() -> None:
    """Only there must they be the same."""

    def run(arm: Arm, temperature: float, number: int, tokens: tuple[int, ...]) -> Run:
        return Run(arm, "one", temperature, number, "p", 1.0, {}, tokens, {})

    bench = Bench(
        [
            run(PLAIN, 0.0, 0, (1, 2)), run(AUTO, 0.0, 0, (1, 2)),
            run(PLAIN, 0.0, 1, (1, 2)), run(AUTO, 0.0, 1, (1, 3)),
            run(PLAIN, 0.8, 0, (1, 2)), run(AUTO, 0.8, 0, (4, 4)),
        ]
    )  # fmt: skip

    assert (bench.num_different(AUTO), bench.num_compared(AUTO)) == (1, 2)


def test_the_tasks_are_what_they_stand_for() -> None:
    """Six kinds, three prompts each, none twice; editing and summarising come with their text."""
    assert [task.name for task in TASKS] == ["chat", "code", "edit", "summary", "reasoning", "json"]
    prompts = [prompt for task in TASKS for prompt in task.prompts]
    assert len(set(prompts)) == len(prompts) == 18
    lengths = {task.name: min(map(len, task.prompts)) for task in TASKS}
    assert lengths["edit"] > 2000
    assert lengths["chat"] < 300


def test_code_in_a_prompt_is_code() -> None:
    """The module to edit is valid Python."""
    assert ast.parse(CODE).body


def test_the_picture_is_valid_and_complete() -> None:
    """Three panels with every bar's label, whatever stands in it."""
    bars = [Bar("a<b", 1.5, 1.2, 1.9), Bar("c&d", 0.8, 0.7, 0.9)]
    root = ET.fromstring(draw("x < y & z", bars, [Bar("1", 0.9)], []))  # noqa: S314  # our own

    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"a<b", "c&d", "x < y & z", "1.50", "nothing measured"} <= set(texts)
    assert sum(element.tag.endswith("rect") for element in root.iter()) == 4


def test_a_picture_of_nothing_is_a_picture() -> None:
    """Stopped before anything was measured, it still draws."""
    assert ET.fromstring(draw("", [], [], [])) is not None  # noqa: S314  # our own
