"""Measuring plain and speculative decoding, interleaved, over tasks, temperatures and rounds."""

import os
import platform
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import perf_counter
from typing import Any, TypeAlias

from specchat.bench.kept_runs import KeptRuns
from specchat.bench.results import PLAIN, Arm, Results, Run
from specchat.bench.tasks import Task
from specchat.decoding.chunk import Chunk
from specchat.decoding.statistics import Statistics
from specchat.engine.api import Engine
from specchat.errors import ContextFull
from specchat.formats.chat_message import ChatMessage
from specchat.system.private_files import read_text

MeasuringCallback: TypeAlias = Callable[[int, int, float], None]
"""Called with the number of answers measured, the total, and the estimated seconds left."""


@dataclass(frozen=True, slots=True)
class BenchmarkPlan:
    """What to measure: each arm and plain decoding, on each task at each temperature."""

    arms: Sequence[Arm]
    tasks: Sequence[Task]
    temperatures: Sequence[float]
    rounds: int | None
    """Answers per task and temperature; None for one to each prompt of a task."""
    max_tokens: int
    has_plain: bool = True
    """Whether plain decoding is measured too; a server may not be able to."""
    ends_answers: bool = False
    """Whether an answer ends where the model ends it; others all have `max_tokens`."""

    @property
    def all_arms(self) -> list[Arm]:
        """The arms, plain decoding included if it is measured."""
        return [*([PLAIN] if self.has_plain else []), *self.arms]

    def cases(self) -> Iterator[tuple[int, Task, float, Arm]]:
        """Yield the round, task, temperature and arm of each answer.

        Arms run back to back, in alternating order, so that they are compared fairly.
        """
        arms = self.all_arms
        for number in range(self.rounds or max(len(task.prompts) for task in self.tasks)):
            for index, task in enumerate(self.tasks):
                if self.rounds is None and number >= len(task.prompts):
                    continue
                for temperature in self.temperatures:
                    for arm in arms if (number + index) % 2 else reversed(arms):
                        yield number, task, temperature, arm


def measure(
    engine: Engine,
    plan: BenchmarkPlan,
    on_progress: MeasuringCallback,
    kept: KeptRuns | None = None,
) -> Iterator[Results]:
    """Measure everything planned; yield the results so far after every answer.

    What was `kept` of an earlier benchmark is not measured again, and new answers are kept too.

    The engine is cleared before each conversation, so that no prompt is cached. Only decoding is
    timed, not reading the prompt. An answer that was stopped is left out.
    """
    planned = list(plan.cases())
    earlier = kept.runs if kept else []
    known = {(run.number, run.task, run.temperature, run.arm): run for run in earlier}
    keys = [(number, task.name, temperature, arm) for number, task, temperature, arm in planned]
    results = Results([known[key] for key in keys if key in known])
    started = perf_counter()
    cases = [case for case, key in zip(planned, keys, strict=True) if key not in known]
    num_kept = len(planned) - len(cases)
    warm_up = {"max_tokens": min(16, plan.max_tokens), "drafter": PLAIN.drafter}
    for _ in engine.answer([{"role": "user", "content": "Once"}], **warm_up):
        pass  # brings weights into memory and clocks up to speed
    for done, (number, task, temperature, arm) in enumerate(cases):
        elapsed = perf_counter() - started
        seconds_left = elapsed / max(1, done) * (len(cases) - done)
        on_progress(num_kept + done, len(planned), seconds_left)
        try:
            run = _run(engine, plan, number, task, temperature, arm)
        except ContextFull as error:
            reasons = results.too_long.setdefault(task.name, {})
            reasons.setdefault(number % len(task.prompts), str(error))
        else:
            if run:
                results.runs.append(run)
            if run and kept:
                kept.add(run)
        yield results
    results.is_complete = True
    on_progress(len(planned), len(planned), 0.0)
    yield results


def _run(
    engine: Engine, plan: BenchmarkPlan, number: int, task: Task, temperature: float, arm: Arm
) -> Run | None:
    """Measure the answers of one conversation, from an empty cache; None if one was stopped.

    No seed is set, as in most users' chats: with a seed, fewer drafted tokens are accepted.
    """
    engine.forget()
    prompt = task.prompts[number % len(task.prompts)]
    options: dict[str, Any] = {"temperature": temperature, "max_tokens": plan.max_tokens}
    options |= {"drafter": arm.drafter, "draft_length": arm.draft_length}
    options |= {"draft_tree": arm.draft_tree}
    options |= {"ignore_end": engine.facts.ignores_end and not plan.ends_answers}
    messages: list[ChatMessage] = []
    chunks: list[Chunk] = []
    stats = Statistics()
    for turn in prompt:
        messages.append({"role": "user", "content": turn})
        answer = list(engine.answer(messages, **options))
        if answer and answer[-1].finish == "cancelled":
            return None
        messages.append({"role": "assistant", "content": "".join(each.text for each in answer)})
        chunks += answer
        stats = _with_turn(stats, engine.stats)
    more = {"drafted_by_position": [*stats.drafted_by_position], "speculation": stats.speculation}
    return Run(
        arm=arm,
        task=task.name,
        temperature=temperature,
        number=number,
        prompt="\n\n".join(prompt),
        tokens_per_second=stats.counted_rate,
        stats=stats.as_dict() | more,
        tokens=tuple(token for chunk in chunks for token in chunk.tokens),
        text="".join(chunk.reasoning + chunk.text for chunk in chunks),
        pass_costs=dict(stats.pass_costs),
    )


def _with_turn(earlier: Statistics, turn: Statistics) -> Statistics:
    """Return the statistics of a conversation with one more turn, whose prompt counts too."""
    sums = {
        name: getattr(earlier, name) + getattr(turn, name)
        for name in ("prompt_tokens", "cached_tokens")
    }
    return replace(earlier.joined(turn), **sums)


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
