"""The benchmark: its arithmetic, its order, and that no prompt is cached when it is measured."""

from __future__ import annotations

import ast
import math
import xml.etree.ElementTree as ET
from collections.abc import Generator, Iterator, Sequence

import numpy as np
import pytest

from bench.fake_engine import FakeEngine
from conftest import WriteModel
from specchat import Engine
from specchat.bench.measurement import BenchmarkPlan, MeasuringCallback, measure
from specchat.bench.plot import Bar, draw
from specchat.bench.results import PLAIN, Arm, Results, Run, speedup_of
from specchat.bench.tasks import TASKS, TEXTS, Task
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.requests.answer_request import AnswerRequest
from specchat.requests.answer_update import Update

AUTO = Arm()
TWO = (Task("one", (("first",), ("second",))), Task("two", (("third",),)))


def states(
    engine: Engine,
    rounds: int = 2,
    temperatures: Sequence[float] = (0.0,),
    arm: Arm = AUTO,
    on_progress: MeasuringCallback = lambda *_: None,
) -> Iterator[Results]:
    """Measure two tasks, answer by answer."""
    return measure(
        engine, BenchmarkPlan([arm], TWO, temperatures, rounds, max_tokens=3), on_progress
    )


def measured(engine: Engine, rounds: int = 2, temperatures: Sequence[float] = (0.0,)) -> Results:
    """Measure two tasks to the end."""
    return list(states(engine, rounds, temperatures))[-1]


def test_every_answer_begins_with_an_empty_memory() -> None:
    """The engine forgets all texts right before each answer, not only before the warm-up."""
    engine = FakeEngine()
    results = measured(engine)

    assert results.is_complete
    assert engine.forgotten == list(range(1, 9))
    assert len(results.runs) == 8


def test_arms_take_turns_and_swap_places() -> None:
    """Plain and speculative answers are neighbours; each comes first as often as second."""
    engine = FakeEngine()
    measured(engine, rounds=2)
    drafters = [drafter for _, drafter, _ in engine.asked[1:]]

    assert all(set(drafters[at : at + 2]) == {"none", "auto"} for at in range(0, 8, 2))
    assert drafters[::2].count("none") == drafters[::2].count("auto") == 2
    assert [prompt for prompt, *_ in engine.asked[1::2]] == ["first", "third", "second", "third"]


def test_speedups_are_of_neighbours() -> None:
    """An arm is compared with plain decoding of the same task, temperature and round."""
    results = measured(FakeEngine(), temperatures=(0.0, 0.8))

    assert set(results.ratios(AUTO)) == {(t, at) for t in ("one", "two") for at in (0.0, 0.8)}
    assert results.ratios(AUTO, "one", 0.8) == {("one", 0.8): [pytest.approx(1.5)] * 2}
    assert results.speedup(AUTO) == pytest.approx((1.5, 1.5, 1.5))


def test_passages_said_over_and_over_are_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of both ways of decoding: it is always the same passage."""

    def looping(engine: FakeEngine, request: AnswerRequest) -> Generator[Update]:
        is_plain = request.drafter == "none"
        statistics = Statistics(generated_tokens=400, repeated=300, steps=400)
        statistics.decode_s = 40.0 if is_plain else 11.0
        statistics.step_times.add(0, 100, 10.0 if is_plain else 8.0)
        yield Update((Chunk("abc", (1, 2, 3), finish="length"),), statistics, finish="length")

    monkeypatch.setattr(FakeEngine, "_answer", looping)
    results = measured(FakeEngine())

    assert results.speedup(AUTO).speedup == pytest.approx(1.25)
    assert results.decode_rate(PLAIN, "one", 0.0) == pytest.approx(10.0)


def test_a_prompt_that_does_not_fit_is_left_out_with_its_reason() -> None:
    """The other tasks are measured."""
    results = measured(FakeEngine(too_long="third"))

    assert {run.task for run in results.runs} == {"one"}
    assert results.skipped == ["two: too long"]


def test_stopping_keeps_what_was_measured() -> None:
    """The results yielded after an answer hold all answers up to it."""
    yielded = states(FakeEngine())
    results = [next(yielded) for _ in range(3)][-1]

    assert len(results.runs) == 3
    assert not results.is_complete
    assert list(results.ratios(AUTO)) == [("one", 0.0)]


def test_progress_ends_with_nothing_left() -> None:
    """Progress is reported before each answer and at the end."""
    reported: list[tuple[int, int, float]] = []
    list(states(FakeEngine(), rounds=1, on_progress=lambda *a: reported.append(a)))

    assert [done for done, *_ in reported] == [0, 1, 2, 3, 4]
    assert reported[-1] == (4, 4, 0.0)


def test_the_mean_of_speedups_is_geometric() -> None:
    """A speedup of 2 on one task and of 0.5 on another is a speedup of 1 over both."""
    speedup, low, high = speedup_of({("a", 0.0): [2.0, 2.0], ("b", 0.0): [0.5, 0.5]})

    assert (speedup, low, high) == pytest.approx((1.0, 1.0, 1.0))


def test_every_task_weighs_the_same() -> None:
    """A task measured at one temperature counts as much as one measured at two."""
    ratios = {("a", 0.0): [4.0], ("a", 0.8): [4.0], ("b", 0.0): [1.0]}

    assert speedup_of(ratios) == pytest.approx((2.0, 2.0, 2.0))


def test_a_speedup_is_the_mean_of_medians() -> None:
    """By hand: medians 2 and 8, geometric mean 4; the ends are the extreme rounds' means."""
    speedup, low, high = speedup_of({("a", 0.0): [1.0, 2.0, 3.0], ("b", 0.0): [8.0, 8.0, 8.0]})

    assert speedup == pytest.approx(4.0)
    assert (low, high) == pytest.approx((math.sqrt(8), math.sqrt(24)))
    assert speedup_of({("a", 0.0): [1.0, 2.0, 3.0]}) == speedup_of({("a", 0.0): [1.0, 2.0, 3.0]})


def test_an_interval_of_nothing_is_refused() -> None:
    """Without a comparison the speedup is a ValueError."""
    with pytest.raises(ValueError, match="nothing was measured"):
        speedup_of({})


def test_a_stopped_answer_is_left_out() -> None:
    """An answer that was stopped is not measured."""
    results = measured(FakeEngine(stopped_from=4))

    assert len(results.runs) == 3


def test_answers_are_measured_as_users_get_them() -> None:
    """No arm has a seed: with one, fewer drafted tokens are accepted."""
    for length in (2, "auto"):
        engine = FakeEngine()
        list(states(engine, 2, [0.8], Arm("model", length)))
        answers = engine.options[1:]

        assert [each["drafter"] for each in answers].count("none") == 4
        assert not any("seed" in each for each in answers)
        assert all(each["ignore_end"] and each["max_tokens"] == 3 for each in answers)


def test_a_chat_template_is_used_where_there_is_one() -> None:
    """With a chat template the prompt is sent as the user's message."""
    engine = FakeEngine(has_chat_template=True)
    measured(engine, rounds=1)

    texts = ("Once", "first", "first", "third", "third")  # the first one warms up
    assert engine.messages == [[{"role": "user", "content": text}] for text in texts]


def test_a_real_pair_is_measured(tiny: WriteModel) -> None:
    """Both arms give the same tokens, as many as asked for, and no prompt is cached."""
    with Engine.load(tiny("llama"), tiny("llama", "half right"), ctx=512, threads=1) as engine:
        results = measured(engine, rounds=1)

    assert results.differing_answers(AUTO) == (0, 2)
    assert all(len(run.tokens) == 3 for run in results.runs)
    assert all(run.stats["cached_tokens"] == 0 for run in results.runs)
    assert results.runs[-1].pass_costs[1] > 0


def test_the_interval_covers_the_true_median_as_often_as_it_says() -> None:
    """In most of 100 simulated benchmarks of 9 rounds the interval holds the true median."""
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(100):
        cells = {("a", 0.0): random.lognormal(math.log(1.3), 0.1, 9).tolist()}
        _, low, high = speedup_of(cells)
        hits += low <= 1.3 <= high

    assert 0.85 < hits / 100 <= 1.0


def test_different_answers_at_temperature_0_are_counted() -> None:
    """Above temperature 0 answers may differ, so they are not compared."""

    def run(arm: Arm, temperature: float, number: int, tokens: tuple[int, ...]) -> Run:
        return Run(arm, "one", temperature, number, "p", 1.0, {}, tokens, {})

    results = Results(
        [
            run(PLAIN, 0.0, 0, (1, 2)), run(AUTO, 0.0, 0, (1, 2)),
            run(PLAIN, 0.0, 1, (1, 2)), run(AUTO, 0.0, 1, (1, 3)),
            run(PLAIN, 0.8, 0, (1, 2)), run(AUTO, 0.8, 0, (4, 4)),
        ]
    )  # fmt: skip

    assert results.differing_answers(AUTO) == (1, 2)


def test_there_are_six_tasks_of_three_prompts() -> None:
    """All prompts differ; those for editing and summarising contain their text."""
    assert [task.name for task in TASKS] == ["chat", "code", "edit", "summary", "reasoning", "json"]
    prompts = [turn for task in TASKS for prompt in task.prompts for turn in prompt]
    assert len(set(prompts)) == len(prompts) == 18
    lengths = {task.name: min(len(turn) for (turn,) in task.prompts) for task in TASKS}
    assert lengths["edit"] > 2000
    assert lengths["chat"] < 300


def test_code_in_a_prompt_is_code() -> None:
    """The module that a prompt asks to edit is valid Python."""
    assert ast.parse(TEXTS["code"]).body


def test_the_plot_is_valid_and_complete() -> None:
    """The plot has three panels with every bar's label, whatever characters are in it."""
    bars = [Bar("a<b", 1.5, 1.2, 1.9), Bar("c&d", 0.8, 0.7, 0.9)]
    root = ET.fromstring(draw("x < y & z", bars, [Bar("1", 0.9)], []))  # noqa: S314  # our own

    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert {"a<b", "c&d", "x < y & z", "1.50", "nothing measured"} <= set(texts)
    assert sum(element.tag.endswith("rect") for element in root.iter()) == 4


def test_an_empty_plot_is_valid() -> None:
    """Without any measurement the plot is still valid SVG."""
    assert ET.fromstring(draw("", [], [], [])) is not None  # noqa: S314  # our own
