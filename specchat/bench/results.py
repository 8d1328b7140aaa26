"""A benchmark's results: the answers, and the speedups, rates and costs computed from them."""

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from specchat import drafter_registry
from specchat.chat.answer_statistics import AnswerTotals, add_up
from specchat.wording import SAME_SPEED, speedup_text

Ratios = Mapping[tuple[str, float], list[float]]
"""The ratios of an arm's speed to plain decoding's, one per round, by task and temperature."""

Floats: TypeAlias = npt.NDArray[np.float64]
NUM_RESAMPLES = 2000


@dataclass(frozen=True, slots=True)
class Arm:
    """A way of decoding to compare with plain decoding."""

    drafter: str = drafter_registry.AUTO
    draft_length: int | str = "auto"
    draft_tree: int | str = "auto"

    @property
    def name(self) -> str:
        """The drafter, with the draft length and the size of trees if they are fixed."""
        if self.drafter == drafter_registry.PLAIN:
            return self.drafter
        length = f" {self.draft_length}" if self.draft_length != "auto" else ""
        tree = f", tree {self.draft_tree}" if self.draft_tree != "auto" else ""
        return f"{self.drafter}{length}{tree}"


PLAIN = Arm(drafter_registry.PLAIN, 0)


@dataclass(frozen=True, slots=True)
class Run:
    """One measured answer; `stats` has the fields of `specchat ask --json`, and more.

    A passage that it says over and over does not count in its `tokens_per_second`. A server's
    answer has no `tokens`, only `text`.
    """

    arm: Arm
    task: str
    temperature: float
    number: int
    prompt: str
    tokens_per_second: float
    stats: Mapping[str, Any]
    tokens: tuple[int, ...]
    pass_costs: Mapping[int, float]
    text: str = ""

    @property
    def content(self) -> tuple[tuple[int, ...], str]:
        """The value by which two answers compare equal."""
        return self.tokens, "" if self.tokens else self.text


class Speedup(NamedTuple):
    """A speedup over plain decoding and the ends of its 95 % confidence interval."""

    speedup: float
    low: float
    high: float

    def words(self) -> str:
        """Return it as text: the same speed if its interval contains that."""
        return SAME_SPEED if self.low < 1 < self.high else speedup_text(self.speedup, 2)


@dataclass(slots=True)
class Results:
    """All answers measured so far, and the reasons for those left out.

    `too_long` has them by task and by the number of the prompt.
    """

    runs: list[Run] = field(default_factory=list)
    too_long: dict[str, dict[int, str]] = field(default_factory=dict)
    is_complete: bool = False

    @property
    def skipped(self) -> list[str]:
        """A line for each task with prompts that were left out: the first one's reason."""
        lines = []
        for task, (reason, *others) in ((task, of.values()) for task, of in self.too_long.items()):
            more = f" (prompts left out: {1 + len(others)})" if others else ""
            lines.append(f"{task}: {reason}{more}")
        return lines

    def of(
        self, arm: Arm, task: str | None = None, temperature: float | None = None
    ) -> Iterator[Run]:
        """Yield an arm's answers, optionally only those of one task or temperature."""
        for run in self.runs:
            is_chosen = task in {None, run.task} and temperature in {None, run.temperature}
            if run.arm == arm and is_chosen:
                yield run

    def plain_rate(self, run: Run) -> float:
        """Return plain decoding's tokens per second in the same round; 0 if unknown."""
        pairs = self.of(PLAIN, run.task, run.temperature)
        return next((pair.tokens_per_second for pair in pairs if pair.number == run.number), 0.0)

    def ratios(self, arm: Arm, task: str | None = None, temperature: float | None = None) -> Ratios:
        """Return the ratios of an arm's speed to plain decoding's in the same round."""
        by_cell: dict[tuple[str, float], list[float]] = {}
        for run in self.of(arm, task, temperature):
            plain = self.plain_rate(run)
            if plain and run.tokens_per_second:
                cell = by_cell.setdefault((run.task, run.temperature), [])
                cell.append(run.tokens_per_second / plain)
        return by_cell

    def speedup(
        self, arm: Arm, task: str | None = None, temperature: float | None = None
    ) -> Speedup:
        """Return an arm's speedup; ValueError if nothing could be compared."""
        return speedup_of(self.ratios(arm, task, temperature))

    def task_speedups(self, arm: Arm) -> dict[str, Speedup]:
        """Return an arm's speedup for each task, over all temperatures."""
        tasks = dict.fromkeys(task for task, _ in self.ratios(arm))
        return {task: self.speedup(arm, task) for task in tasks}

    def totals(
        self, arm: Arm, task: str | None = None, temperature: float | None = None
    ) -> AnswerTotals:
        """Return the totals of an arm's answers."""
        return add_up(run.stats for run in self.of(arm, task, temperature))

    def decode_rate(self, arm: Arm, task: str, temperature: float) -> float:
        """Return the median of an arm's tokens per second; 0 if nothing was measured."""
        rates = [run.tokens_per_second for run in self.of(arm, task, temperature)]
        return statistics.median(rates) if rates else 0.0

    def mean_rate(self, arm: Arm) -> float:
        """Return the geometric mean of an arm's decode rates over tasks and temperatures."""
        cells = {(run.task, run.temperature) for run in self.of(arm)}
        rates = [self.decode_rate(arm, *cell) for cell in cells]
        return statistics.geometric_mean(rate for rate in rates if rate)

    def prompt_rate(self) -> float:
        """Return the prompt tokens processed per second, over all answers."""
        sizes = [(run.stats["prompt_tokens"], run.stats["cached_tokens"]) for run in self.runs]
        tokens = sum((size or 0) - (cached or 0) for size, cached in sizes)
        seconds: float = sum(run.stats["prompt_s"] or 0.0 for run in self.runs)
        return tokens / seconds if seconds else 0.0

    def relative_costs(self) -> dict[int, float]:
        """Return the latest cost of target passes by their tokens, relative to one token."""
        costs = next((run.pass_costs for run in reversed(self.runs) if run.pass_costs), {})
        single = costs.get(1, 0.0)
        return {count: cost / single for count, cost in sorted(costs.items())} if single else {}

    def differing_answers(self, arm: Arm) -> tuple[int, int]:
        """Return how many answers at temperature 0 differ from plain decoding, and the total."""
        plain = {(run.task, run.number): run.content for run in self.of(PLAIN, temperature=0.0)}
        pairs = [
            (run.content, plain[run.task, run.number])
            for run in self.of(arm, temperature=0.0)
            if (run.task, run.number) in plain
        ]
        return sum(answer != plain_answer for answer, plain_answer in pairs), len(pairs)


def speedup_of(ratios: Ratios) -> Speedup:
    """Return the mean of the medians of each task and temperature, with its interval.

    Means are geometric, as ratios require: over a task's temperatures, then over tasks, so that
    every task has the same weight even if measuring was stopped early. The interval is a percentile
    bootstrap over the rounds (Efron 1979); after a single round both its ends are the speedup.
    Raises ValueError if there are no ratios.
    """
    if not ratios:
        raise ValueError("nothing was measured")
    random = np.random.default_rng(0)
    cells = {key: np.array(cell) for key, cell in ratios.items()}
    drawn = _means_of_medians(
        {key: random.choice(cell, (NUM_RESAMPLES, len(cell))) for key, cell in cells.items()}
    )
    low, high = np.sort(drawn)[[int(0.025 * NUM_RESAMPLES), int(0.975 * NUM_RESAMPLES)]]
    (mean,) = _means_of_medians({key: cell[np.newaxis] for key, cell in cells.items()})
    return Speedup(float(mean), float(low), float(high))


def _means_of_medians(cells: Mapping[tuple[str, float], Floats]) -> Floats:
    """Return the mean for each row; the arrays have a row per sample and a column per round."""
    tasks: dict[str, list[Floats]] = {}
    for (task, _), cell in cells.items():
        tasks.setdefault(task, []).append(np.log(np.median(cell, axis=1)))
    means = np.stack([np.mean(logs, axis=0) for logs in tasks.values()])
    return np.asarray(np.exp(means.mean(axis=0)))
