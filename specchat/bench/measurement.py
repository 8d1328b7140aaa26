"""Measuring plain and speculative decoding, interleaved, over tasks, temperatures and rounds."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from specchat.bench.results import PLAIN, Arm, Results, Run
from specchat.bench.tasks import Task
from specchat.engine.api import Engine
from specchat.errors import ContextFull
from specchat.system.private_files import read_text

MeasuringCallback: TypeAlias = Callable[[int, int, float], None]
"""Called with the number of answers measured, the total, and the estimated seconds left."""


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """What to measure: each arm and plain decoding, on each task at each temperature."""

    arms: Sequence[Arm]
    tasks: Sequence[Task]
    temperatures: Sequence[float]
    rounds: int
    max_tokens: int
    has_plain: bool = True
    """Whether plain decoding is measured too; a server may not be able to."""

    def cases(self) -> Iterator[tuple[int, Task, float, Arm]]:
        """Yield the round, task, temperature and arm of each answer.

        Arms run back to back, in alternating order, so that they are compared fairly.
        """
        arms = [*([PLAIN] if self.has_plain else []), *self.arms]
        for number in range(self.rounds):
            for index, task in enumerate(self.tasks):
                for temperature in self.temperatures:
                    for arm in arms if (number + index) % 2 else reversed(arms):
                        yield number, task, temperature, arm


def measure(
    engine: Engine, plan: BenchmarkPlan, on_progress: MeasuringCallback
) -> Iterator[Results]:
    """Measure everything planned; yield the results so far after every answer.

    The engine is cleared before each answer, so that no prompt is cached. Only decoding is timed,
    not reading the prompt. An answer that was stopped is left out.
    """
    results, started = Results(), perf_counter()
    cases = list(plan.cases())
    warm_up = {"max_tokens": min(16, plan.max_tokens), "drafter": PLAIN.drafter}
    for _ in engine.answer([{"role": "user", "content": "Once"}], **warm_up):
        pass  # brings weights into memory and clocks up to speed
    for done, (number, task, temperature, arm) in enumerate(cases):
        elapsed = perf_counter() - started
        on_progress(done, len(cases), elapsed / max(1, done) * (len(cases) - done))
        try:
            run = _run(engine, plan.max_tokens, number, task, temperature, arm)
        except ContextFull as error:
            reason = f"{task.name}: {error}"
            results.skipped += [reason] if reason not in results.skipped else []
        else:
            results.runs += [run] if run else []
        yield results
    results.is_complete = True
    on_progress(len(cases), len(cases), 0.0)
    yield results


def _run(
    engine: Engine, max_tokens: int, number: int, task: Task, temperature: float, arm: Arm
) -> Run | None:
    """Measure one answer with an empty cache; None if it was stopped.

    No seed is set, as in most users' chats: with a seed, fewer drafted tokens are accepted.
    """
    engine.forget()
    prompt = task.prompts[number % len(task.prompts)]
    options: dict[str, Any] = {"temperature": temperature, "max_tokens": max_tokens}
    options |= {"drafter": arm.drafter, "draft_length": arm.draft_length}
    options |= {"draft_tree": arm.draft_tree, "ignore_end": engine.facts.ignores_end}
    chunks = list(engine.answer([{"role": "user", "content": prompt}], **options))
    if chunks and chunks[-1].finish == "cancelled":
        return None
    stats = engine.stats
    more = {"drafted_by_position": [*stats.drafted_by_position], "speculation": stats.speculation}
    return Run(
        arm=arm,
        task=task.name,
        temperature=temperature,
        number=number,
        prompt=prompt,
        tokens_per_second=stats.tokens_per_second,
        stats=stats.as_dict() | more,
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        text="".join(chunk.reasoning + chunk.text for chunk in chunks),
        pass_costs=dict(stats.pass_costs),
    )


def machine_record() -> dict[str, Any]:
    """Return the machine's system, processor, number of cores and Python version."""
    lines = read_text(Path("/proc/cpuinfo")).splitlines()
    names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": names[0] if names else platform.processor() or platform.machine(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
