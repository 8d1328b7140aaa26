"""The benchmark's arithmetic, its order, and that nothing is measured on what it has seen."""

from __future__ import annotations

import math
import xml.etree.ElementTree as ET
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from specchat.bench.measuring import PLAIN, Arm, Bench, Run, interval, measure
from specchat.bench.plot import Bar, draw
from specchat.bench.tasks import TASKS, Task
from specchat.chat.template import Message
from specchat.decoding.loop import Chunk
from specchat.decoding.statistics import Statistics
from specchat.engine import Engine
from specchat.engine.api import EngineFacts, Tell
from specchat.errors import ContextFull

AUTO = Arm()
TWO = (Task("one", ("first", "second")), Task("two", ("third",)))


class FakeEngine(Engine):
    """Answers at once and keeps account of what it was asked; "auto" is 1.5 times as fast."""

    def __init__(self, too_long: str = "") -> None:
        """Refuse one prompt, if asked to, as too long."""
        self.asked: list[tuple[str, str, float]] = []
        self.forgotten: list[int] = []
        self.stats = Statistics()
        self.facts = EngineFacts("t", None, 512, False, ("tail",), "", "", 32)
        self._too_long = too_long

    def generate(
        self, prompt: str | Sequence[int], *, tell: Tell | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Answer three tokens."""
        if prompt == self._too_long:
            raise ContextFull("too long")
        self.asked.append((str(prompt), options["drafter"], options.get("temperature", -1.0)))
        rate = 10.0 if options["drafter"] == "none" else 15.0
        self.stats = Statistics(generated_tokens=3, decode_s=3 / rate, steps=3)
        yield Chunk("abc", (1, 2, 3), finish="length")

    def chat(
        self, messages: Sequence[Message], *, tell: Tell | None = None, **options: Any
    ) -> Iterator[Chunk]:
        """Has no template."""
        raise AssertionError

    def stop(self) -> None:
        """Has stopped already."""

    def forget(self) -> None:
        """Note how many answers were given before."""
        self.forgotten.append(len(self.asked))

    def close(self) -> None:
        """Hold nothing."""


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
    assert bench.skipped == ["two: too long"] * 4


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


def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    """Of 200 made-up benchmarks of 9 rounds the interval holds the true median in most."""
    random = np.random.default_rng(0)
    hits = 0
    for _ in range(200):
        cells = {("a", 0.0): random.lognormal(math.log(1.3), 0.1, 9).tolist()}
        _, low, high = interval(cells)
        hits += low <= 1.3 <= high

    assert 0.85 < hits / 200 <= 1.0


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

    assert bench.num_different(AUTO) == 1


def test_the_tasks_are_what_they_stand_for() -> None:
    """Six kinds, three prompts each, none twice; editing and summarising come with their text."""
    assert [task.name for task in TASKS] == ["chat", "code", "edit", "summary", "reasoning", "json"]
    prompts = [prompt for task in TASKS for prompt in task.prompts]
    assert len(set(prompts)) == len(prompts) == 18
    lengths = {task.name: min(map(len, task.prompts)) for task in TASKS}
    assert lengths["edit"] > 1000
    assert lengths["chat"] < 300


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
