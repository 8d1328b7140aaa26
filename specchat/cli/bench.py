"""`specchat bench`: plain and speculative decoding side by side, on this machine and pair."""

import argparse
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from specchat.bench.measurement import BenchmarkPlan, machine_record, measure
from specchat.bench.plot import Bar, draw
from specchat.bench.results import PLAIN, Arm, Results, Run
from specchat.bench.tasks import TASKS
from specchat.cli.model_arguments import (
    chosen_answerer,
    open_answerer,
    show_loading,
    stopping_on_interrupt,
)
from specchat.cli.served_report import ServedReport
from specchat.cli.terminal import (
    DONE,
    INTERRUPTED,
    print_result,
    require_output,
    say,
    show_line,
    table_lines,
)
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import InvalidOption, SpecchatError
from specchat.wording import percent, rate_text, speculation_line, speedup_range

TEMPERATURES = (0.0, 0.8)
INTERVAL_HEADING = "95 % interval"
HEADINGS = ("task", "temp", "plain t/s", "spec t/s", "speedup", INTERVAL_HEADING, "accepted")
MAX_POSITIONS = 12
PASS_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""The pass lengths, in tokens, whose cost the plot shows."""


def run(arguments: argparse.Namespace) -> int:
    """Measure the pair and print the results, even if interrupted after the first comparison."""
    arm = Arm(arguments.drafter, arguments.draft_length, arguments.draft_tree)
    plan = _plan(arguments, arm)
    if plot := arguments.plot:
        require_output(plot, (".svg", ".png"))
        if plot.suffix == ".png" and shutil.which("rsvg-convert") is None:
            raise InvalidOption(f"{plot}: install rsvg-convert for PNG, or name a .svg file")
    answerer = chosen_answerer(arguments)
    with open_answerer(arguments, answerer, arm.drafter) as engine:
        if not engine.facts.chooses_drafter:
            plan = replace(plan, has_plain=False)
        results = run_benchmark(engine, plan)
    if not plan.has_plain and results.runs:
        served = ServedReport(engine.facts, arm, results)
        print_result(arguments, served.as_record(), list(served.lines()))
        if arguments.plot:
            say("no chart: there is no plain decoding to compare with")
    elif results.ratios(arm):
        report = _Report(answerer.name, engine.facts, arm, results)
        print_result(arguments, report.as_record(), list(report.lines()))
        if arguments.plot:
            _write_plot(arguments.plot, report.plot())
    elif results.is_complete:
        raise SpecchatError("nothing was measured: " + "; ".join(results.skipped))
    else:
        say("interrupted before anything was compared; a smaller --max-tokens takes less time")
    return DONE if results.is_complete else INTERRUPTED


def run_benchmark(engine: Engine, plan: BenchmarkPlan) -> Results:
    """Measure everything; Ctrl+C ends it early, with incomplete results."""
    results = Results()
    engine.prepare(show_loading)
    with stopping_on_interrupt(engine.stop) as is_interrupted, suppress(KeyboardInterrupt):
        for results in measure(engine, plan, _show_measuring):  # noqa: B007  # only the last one is used
            if is_interrupted():
                break
    show_line()
    return results


def interval_text(low: float, high: float) -> str:
    """Return a confidence interval of a speedup; "-" after a single round."""
    return "-" if low == high else speedup_range(low, high)


def _show_measuring(done: int, total: int, seconds_left: float) -> None:
    left = f", {seconds_left / 60:.1f} minutes left" if done else ""
    show_line(f"measuring answer {min(done + 1, total)} of {total}{left}")


def _plan(arguments: argparse.Namespace, arm: Arm) -> BenchmarkPlan:
    """Return what to measure. Raises InvalidOption, before anything is loaded."""
    temperatures = arguments.temperature or TEMPERATURES
    if arm.drafter == PLAIN.drafter:
        raise InvalidOption("plain decoding is always measured: choose another --drafter")
    tasks = [task for task in TASKS if not arguments.task or task.name in arguments.task]
    return BenchmarkPlan([arm], tasks, temperatures, arguments.rounds, arguments.max_tokens)


@dataclass(frozen=True, slots=True)
class _Report:
    """The results of one arm against plain decoding, from at least one comparison."""

    pair: str
    facts: EngineFacts
    arm: Arm
    results: Results

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table and the conclusions below it."""
        cells = self.results.ratios(self.arm)
        yield self._heading()
        yield ""
        yield from table_lines([HEADINGS, *(self._row(*cell) for cell in cells)])
        yield ""
        yield from self._conclusions()

    def as_record(self) -> dict[str, Any]:
        """Return the JSON object."""
        speedup, low, high = self.results.speedup(self.arm)
        speedups = self.results.task_speedups(self.arm)
        tasks = {task: result._asdict() for task, result in speedups.items()}
        different, compared = self.results.differing_answers(self.arm)
        return {
            "machine": machine_record() | {"gpu": self.facts.gpu},
            "model": {"target": self.facts.target, "draft": self.facts.draft},
            "runs": [self._run_record(run) for run in self.results.runs],
            "speedup": {"all": speedup, "low": low, "high": high, "tasks": tasks},
            "accepted_by_position": self.results.totals(self.arm).accepted_by_position,
            "relative_pass_costs": self.results.relative_costs(),
            "compared_at_temperature_0": compared,
            "different_at_temperature_0": different,
            "skipped": self.results.skipped,
            "complete": self.results.is_complete,
        }

    def plot(self) -> str:
        """Return the plot as SVG."""
        shares = self.results.totals(self.arm).accepted_by_position[:MAX_POSITIONS]
        costs = self.results.relative_costs()
        tasks = self.results.task_speedups(self.arm)
        return draw(
            self._heading() + ("" if self.results.is_complete else " (stopped early)"),
            [Bar(task, *speedup) for task, speedup in tasks.items()],
            [Bar(str(number), share) for number, share in enumerate(shares, 1)],
            [Bar(str(count), costs[count]) for count in PASS_LENGTHS if count in costs],
        )

    def _heading(self) -> str:
        device = self.facts.served_by or self.facts.gpu or machine_record()["processor"]
        return f"{self.pair} on {device}, drafter {self.arm.name}"

    def _row(self, task: str, temperature: float) -> tuple[str, ...]:
        found = self.results.speedup(self.arm, task, temperature)
        accepted = self.results.totals(self.arm, task, temperature).acceptance_rate or 0.0
        return (
            task,
            f"{temperature:g}",
            *(f"{self.results.decode_rate(a, task, temperature):.1f}" for a in (PLAIN, self.arm)),
            found.words(),
            interval_text(found.low, found.high),
            percent(accepted),
        )

    def _conclusions(self) -> Iterator[str]:
        found = self.results.speedup(self.arm)
        is_single = max(map(len, self.results.ratios(self.arm).values())) == 1
        interval = (
            "" if is_single else f" ({INTERVAL_HEADING}: {interval_text(found.low, found.high)})"
        )
        yield f"over all tasks: {found.words()}{interval}"
        if is_single:
            yield "a single round has no interval: use --rounds 2 or more"
        *_, last = self.results.of(self.arm)
        yield speculation_line(last.stats["speculation"])
        yield f"prompts, not counted above: {rate_text(self.results.prompt_rate())}"
        different, compared = self.results.differing_answers(self.arm)
        if compared:
            yield f"temperature 0: {different} of {compared} answers differ from plain decoding"
        if different:
            yield "near ties can cause that; `specchat check` shows whether they did"
        yield from (f"skipped {reason}" for reason in self.results.skipped)
        if not self.results.is_complete:
            yield "stopped early: the figures cover only the answers measured so far"

    def _run_record(self, run: Run) -> dict[str, Any]:
        """Return the JSON record of one answer, with its speedup in the same round."""
        plain = self.results.plain_rate(run)
        return {
            **asdict(run.arm),
            "temperature": run.temperature,
            "task": run.task,
            "round": run.number,
            "prompt": run.prompt,
            "speedup": run.tokens_per_second / plain if plain else None,
            **run.stats,
        }


def _write_plot(path: Path, svg: str) -> None:
    try:
        if path.suffix == ".svg":
            path.write_text(svg, "utf-8")
            return
        command = ["rsvg-convert", "--zoom", "2", "--output", str(path)]
        subprocess.run(command, input=svg.encode(), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SpecchatError(f"cannot write {path}: {error}") from None
