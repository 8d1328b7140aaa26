"""What the measured answers come to: medians, shares and costs, for a table or a picture."""

from __future__ import annotations

import statistics
from itertools import zip_longest

from specchat.bench.measurement import Arm, Bench, Run, interval

__all__ = [
    "accepted_by_position",
    "accepted_share",
    "decode_rate",
    "prompt_rate",
    "relative_costs",
    "task_speedups",
]


def decode_rate(bench: Bench, arm: Arm, task: str, temperature: float) -> float:
    """Return the median of an arm's tokens per second; 0 where nothing was measured."""
    runs = _chosen(bench, arm, task, temperature)
    return statistics.median(run.tokens_per_second for run in runs) if runs else 0.0


def accepted_share(bench: Bench, arm: Arm, task: str, temperature: float) -> float:
    """Return accepted / drafted over all of a cell's answers; 0 where nothing was drafted."""
    runs = _chosen(bench, arm, task, temperature)
    drafted = sum(run.stats["drafted"] for run in runs)
    return sum(run.stats["accepted"] for run in runs) / drafted if drafted else 0.0


def task_speedups(bench: Bench, arm: Arm) -> dict[str, tuple[float, float, float]]:
    """Return each task's speedup and interval, over its temperatures."""
    tasks = dict.fromkeys(task for task, _ in bench.ratios(arm))
    return {task: interval(bench.ratios(arm, task)) for task in tasks}


def accepted_by_position(bench: Bench, arm: Arm) -> list[float]:
    """Return accepted / drafted at each draft position, over all of an arm's answers."""
    drafted: list[int] = []
    kept: list[int] = []
    for run in bench.runs:
        if run.arm != arm:
            continue
        here, histogram = run.stats["drafted_by_position"], run.stats["acceptance_histogram"]
        drafted = _added(drafted, here)
        kept = _added(kept, [sum(histogram[place + 1 :]) for place in range(len(here))])
    return [k / d for k, d in zip(kept, drafted, strict=True)]


def relative_costs(bench: Bench) -> dict[int, float]:
    """Return what a target pass costs by its tokens, over one of a single token, as last known."""
    costs = next((run.pass_costs for run in reversed(bench.runs) if run.pass_costs), {})
    single = costs.get(1, 0.0)
    return {count: cost / single for count, cost in sorted(costs.items())} if single else {}


def prompt_rate(bench: Bench) -> float:
    """Return the prompts' tokens that were read per second, over all answers."""
    tokens = sum(run.stats["prompt_tokens"] - run.stats["cached_tokens"] for run in bench.runs)
    seconds: float = sum(run.stats["prompt_s"] for run in bench.runs)
    return tokens / seconds if seconds else 0.0


def _added(counts: list[int], more: list[int]) -> list[int]:
    return [a + b for a, b in zip_longest(counts, more, fillvalue=0)]


def _chosen(bench: Bench, arm: Arm, task: str, temperature: float) -> list[Run]:
    wanted = (arm, task, temperature)
    return [run for run in bench.runs if (run.arm, run.task, run.temperature) == wanted]
