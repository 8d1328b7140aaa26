"""Plain and speculative decoding by turns, over tasks, temperatures and rounds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np

from specchat.bench.tasks import Task
from specchat.engine.api import Engine
from specchat.errors import ContextFull

__all__ = ["Arm", "Bench", "Run", "TellProgress", "interval", "measure"]

TellProgress = Callable[[int, int, float], None]
"""Called with the answers measured, all there are to be, and the seconds that are left."""

NUM_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Arm:
    """One way of decoding that is compared with plain decoding."""

    drafter: str = "auto"
    draft_length: int | str = "auto"

    @property
    def name(self) -> str:
        """What tells it from others."""
        is_plain = self.drafter == "none" or self.draft_length == "auto"
        return self.drafter if is_plain else f"{self.drafter} {self.draft_length}"


PLAIN = Arm("none", 0)


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
            if run.arm != arm or key not in plain or not plain[key]:
                continue
            if task in {None, run.task} and temperature in {None, run.temperature}:
                cell = found.setdefault((run.task, run.temperature), [])
                cell.append(run.tokens_per_second / plain[key])
        return found

    def num_different(self, arm: Arm) -> int:
        """Count the answers at temperature 0 that are not plain decoding's."""
        plain = {(r.task, r.number): r.tokens for r in self.runs if r.arm == PLAIN and _greedy(r)}
        return sum(
            run.tokens != plain.get((run.task, run.number), run.tokens)
            for run in self.runs
            if run.arm == arm and _greedy(run)
        )


Ratios = dict[tuple[str, float], list[float]]


def _greedy(run: Run) -> bool:
    return run.temperature == 0


def interval(ratios: Ratios) -> tuple[float, float, float]:
    """Return a speedup and its 95 % interval: the mean of cells' medians, rounds drawn anew.

    The mean over cells is geometric, as of ratios it must be; the interval is a percentile
    bootstrap of the rounds in each cell (Efron 1979).
    """
    if not ratios:
        raise ValueError("nothing was measured")
    source = np.random.default_rng(0)
    cells = list(ratios.values())
    drawn = sorted(
        _mean_of_medians([source.choice(cell, size=len(cell)).tolist() for cell in cells])
        for _ in range(NUM_RESAMPLES)
    )
    low, high = drawn[int(0.025 * NUM_RESAMPLES)], drawn[int(0.975 * NUM_RESAMPLES)]
    return _mean_of_medians(cells), low, high


def _mean_of_medians(cells: Sequence[Sequence[float]]) -> float:
    return math.exp(statistics.mean(math.log(statistics.median(cell)) for cell in cells))


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
    Only decoding counts, not reading the prompt.
    """
    bench, started = Bench(), perf_counter()
    plan = list(_plan([PLAIN, *arms], tasks, temperatures, rounds))
    _warm_up(engine, max_tokens)
    for done, (number, task, temperature, arm) in enumerate(plan):
        spent = perf_counter() - started
        tell(done, len(plan), spent / max(1, done) * (len(plan) - done))
        prompt = task.prompts[number % len(task.prompts)]
        try:
            bench.runs.append(_run(engine, arm, task, temperature, number, prompt, max_tokens))
        except ContextFull as error:
            bench.skipped.append(f"{task.name}: {error}")
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
    for _ in engine.generate("Once", max_tokens=min(16, max_tokens), drafter="none"):
        pass


def _run(
    engine: Engine,
    arm: Arm,
    task: Task,
    temperature: float,
    number: int,
    prompt: str,
    max_tokens: int,
) -> Run:
    engine.forget()
    options: dict[str, Any] = {
        "drafter": arm.drafter,
        "draft_length": arm.draft_length,
        "temperature": temperature,
        "max_tokens": max_tokens,
        "ignore_end": True,
    }
    chunks = (
        engine.chat([{"role": "user", "content": prompt}], **options)
        if engine.facts.has_chat_template
        else engine.generate(prompt, **options)
    )
    tokens = tuple(token for chunk in chunks for token in chunk.tokens)
    stats = engine.stats
    return Run(
        arm=arm,
        task=task.name,
        temperature=temperature,
        number=number,
        prompt=prompt,
        tokens_per_second=stats.tokens_per_second,
        stats=stats.as_dict() | {"speculation": stats.speculation},
        tokens=tokens,
        pass_costs=dict(stats.pass_costs),
    )
