"""Plain and speculative decoding by turns, over tasks, temperatures and rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from specchat import drafters
from specchat.bench.tasks import Task
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine
from specchat.errors import ContextFull

__all__ = ["PLAIN", "Arm", "Bench", "Ratios", "Run", "TellProgress", "interval", "measure"]

TellProgress = Callable[[int, int, float], None]
"""Called with the answers measured, all there are to be, and the seconds that are left."""

NUM_RESAMPLES = 2000
SEED = 1


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of decoding that is compared with plain decoding."""

    drafter: str = drafters.AUTO
    draft_length: int | str = "auto"

    @property
    def name(self) -> str:
        """What tells it from others."""
        is_plain = self.drafter == drafters.PLAIN or self.draft_length == "auto"
        return self.drafter if is_plain else f"{self.drafter} {self.draft_length}"


PLAIN = Arm(drafters.PLAIN, 0)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured answer, and what its drafting came to."""

    arm: Arm
    task: str
    temperature: float
    number: int
    prompt: str
    tokens_per_second: float
    stats: dict[str, Any]
    tokens: tuple[int, ...]
    pass_costs: dict[int, float]


@dataclass(slots=True)
class Bench:
    """All that was measured."""

    runs: list[Run] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    is_whole: bool = False

    def ratios(self, arm: Arm, task: str | None = None, temperature: float | None = None) -> Ratios:
        """Return an arm's speed over plain decoding's, by task and temperature, round by round."""
        plain = {
            (run.task, run.temperature, run.number): run.tokens_per_second
            for run in self.runs
            if run.arm == PLAIN
        }
        found: Ratios = {}
        for run in self.runs:
            key = (run.task, run.temperature, run.number)
            if run.arm != arm or not plain.get(key) or not run.tokens_per_second:
                continue
            if task in {None, run.task} and temperature in {None, run.temperature}:
                cell = found.setdefault((run.task, run.temperature), [])
                cell.append(run.tokens_per_second / plain[key])
        return found

    def num_different(self, arm: Arm) -> int:
        """Count the answers at temperature 0 that are not plain decoding's."""
        return sum(ours != plain for ours, plain in self._greedy_answers(arm))

    def num_compared(self, arm: Arm) -> int:
        """Count the answers at temperature 0 that could be compared with plain decoding's."""
        return len(self._greedy_answers(arm))

    def _greedy_answers(self, arm: Arm) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        greedy = [run for run in self.runs if run.temperature == 0]
        plain = {(run.task, run.number): run.tokens for run in greedy if run.arm == PLAIN}
        return [
            (run.tokens, plain[run.task, run.number])
            for run in greedy
            if run.arm == arm and (run.task, run.number) in plain
        ]


Ratios = dict[tuple[str, float], list[float]]


def interval(ratios: Ratios) -> tuple[float, float, float]:
    """Return a speedup and its 95 % interval: the mean of medians, rounds drawn anew.

    A median is that of the rounds of a task at a temperature. Means are geometric, as of ratios
    they must be: over a task's temperatures, then over tasks, so that every task weighs the same
    however far the measuring got. The interval is a percentile bootstrap of the rounds (Efron
    1979); a single round has none, and both its ends are the speedup.
    """
    if not ratios:
        raise ValueError("nothing was measured")
    source = np.random.default_rng(0)
    drawn = sorted(
        _mean_of_medians(
            {key: source.choice(cell, size=len(cell)).tolist() for key, cell in ratios.items()}
        )
        for _ in range(NUM_RESAMPLES)
    )
    low, high = drawn[int(0.025 * NUM_RESAMPLES)], drawn[int(0.975 * NUM_RESAMPLES)]
    return _mean_of_medians(ratios), low, high


def _mean_of_medians(ratios: Ratios) -> float:
    tasks: dict[str, list[float]] = {}
    for (task, _), cell in ratios.items():
        tasks.setdefault(task, []).append(math.log(statistics.median(cell)))
    return math.exp(statistics.mean(statistics.mean(logs) for logs in tasks.values()))


def measure(
    engine: Engine,
    arms: Sequence[Arm],
    tasks: Sequence[Task],
    temperatures: Sequence[float],
    *,
    rounds: int,
    max_tokens: int,
    tell: TellProgress,
) -> Iterator[Bench]:
    """Measure everything, all arms by turns; yield what there is after every answer.

    No prompt is measured on a state that has seen it: every text is forgotten before each answer.
    Only decoding counts, not reading the prompt. An answer that was stopped is left out.
    """
    bench, started = Bench(), perf_counter()
    plan = list(_plan([PLAIN, *arms], tasks, temperatures, rounds))
    _warm_up(engine, max_tokens)
    for done, (number, task, temperature, arm) in enumerate(plan):
        spent = perf_counter() - started
        tell(done, len(plan), spent / max(1, done) * (len(plan) - done))
        prompt = task.prompts[number % len(task.prompts)]
        try:
            run = _run(engine, arm, task, temperature, number, prompt, max_tokens)
        except ContextFull as error:
            reason = f"{task.name}: {error}"
            bench.skipped += [reason] if reason not in bench.skipped else []
        else:
            bench.runs += [run] if run else []
        yield bench
    bench.is_whole = True
    tell(len(plan), len(plan), 0.0)
    yield bench


def _plan(
    arms: Sequence[Arm], tasks: Sequence[Task], temperatures: Sequence[float], rounds: int
) -> Iterator[tuple[int, Task, float, Arm]]:
    """Yield what to measure: round by round, the arms of a cell next to each other."""
    for number in range(rounds):
        for place, task in enumerate(tasks):
            for temperature in temperatures:
                turned = arms if (number + place) % 2 else list(reversed(arms))
                for arm in turned:
                    yield number, task, temperature, arm


def _warm_up(engine: Engine, max_tokens: int) -> None:
    """Bring weights into memory and clocks up to speed."""
    for _ in engine.generate("Once", max_tokens=min(16, max_tokens), drafter=drafters.PLAIN):
        pass


def _run(
    engine: Engine,
    arm: Arm,
    task: Task,
    temperature: float,
    number: int,
    prompt: str,
    max_tokens: int,
) -> Run | None:
    """Measure one answer from an empty memory; None where it was stopped."""
    engine.forget()
    options = _options(arm, temperature, number, max_tokens)
    chunks = list(
        engine.chat([{"role": "user", "content": prompt}], **options)
        if engine.facts.has_chat_template
        else engine.generate(prompt, **options)
    )
    if chunks and chunks[-1].finish == "cancelled":
        return None
    return Run(
        arm=arm,
        task=task.name,
        temperature=temperature,
        number=number,
        prompt=prompt,
        tokens_per_second=engine.stats.tokens_per_second,
        stats=_figures(engine.stats),
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        pass_costs=dict(engine.stats.pass_costs),
    )


def _figures(stats: Statistics) -> dict[str, Any]:
    positions = list(stats.drafted_by_position)
    return stats.as_dict() | {"drafted_by_position": positions, "speculation": stats.speculation}


def _options(arm: Arm, temperature: float, number: int, max_tokens: int) -> dict[str, Any]:
    """Return the options of an answer: of a round, both arms draw by the same seed.

    Above temperature 0 a seed fixes the draft length. Where that is to be decided step by step,
    none is given, or something else than what users get would be measured.
    """
    options = {
        "drafter": arm.drafter,
        "draft_length": arm.draft_length,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "ignore_end": True,
    }
    return options if arm.draft_length == "auto" else options | {"seed": SEED + number}
