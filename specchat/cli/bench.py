"""`specchat bench`: plain and speculative decoding side by side, on this machine and pair."""

import argparse
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from specchat import __version__
from specchat.bench.kept_runs import KeptRuns
from specchat.bench.measurement import BenchmarkPlan, machine_record, measure
from specchat.bench.plot import Bar, draw
from specchat.bench.race_picture import ENDINGS, card_path
from specchat.bench.race_record import Race, run_race
from specchat.bench.results import PLAIN, Arm, Results, Run, Speedup
from specchat.bench.spec_bench import read_spec_bench
from specchat.bench.tasks import TASKS
from specchat.chat.answer_statistics import AnswerTotals
from specchat.chat.export import output_path, write_export
from specchat.cli.model_arguments import (
    Answerer,
    chosen_answerer,
    loading_of,
    open_answerer,
    show_loading,
    stopping_on_interrupt,
)
from specchat.cli.served_report import ServedReport
from specchat.cli.server_argument import is_connected
from specchat.cli.terminal import (
    DONE,
    INTERRUPTED,
    print_result,
    say,
    show_line,
    table_lines,
)
from specchat.engine.api import Engine, EngineFacts
from specchat.errors import Cancelled, InvalidOption, SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.wording import percent, rate_text, speculation_line, speedup_range

TEMPERATURES = (0.0, 0.8)
SPEC_BENCH_TEMPERATURES = (0.0,)
"""Those of Spec-Bench's own tables."""
INTERVAL_HEADING = "95 % interval"
ROUNDS = 3
HEADINGS = (
    *("task", "temp", "plain t/s", "spec t/s", "speedup", INTERVAL_HEADING),
    *("accepted", "per pass"),
)  # fmt: skip
OVERALL = "overall"
MAX_POSITIONS = 12
PASS_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)
"""The pass lengths, in tokens, whose cost the plot shows."""


def run(arguments: argparse.Namespace) -> int:
    """Measure the pairs and print the results, even if interrupted after the first comparison."""
    arm = Arm(arguments.drafter, arguments.draft_length, arguments.draft_tree)
    plan = _plan(arguments, arm)
    named: list[str] | str | None = arguments.pair
    names = named if isinstance(named, list) else [named]  # the settings hold a single name
    card, plot = _outputs(arguments, has_many=len(names) > 1)
    answerers, races, all_kept = list[Answerer](), list[Race](), list[KeptRuns]()
    for arguments.pair in names:  # all of them before any is measured
        answerers.append(chosen_answerer(arguments))
    is_done, saved = False, ""
    try:
        for place, answerer in enumerate(answerers):
            if place and not arguments.json:
                print()
            with open_answerer(arguments, answerer, arm.drafter) as engine:
                kept = _kept(arguments, answerer, plan, engine.facts.target)
                all_kept += filter(None, [kept])
                report, is_complete = _bench(arguments, answerer, engine, plan, plot, kept)
                if not is_complete:
                    return INTERRUPTED
                if card and report:
                    races += _races(answerer, engine, plan, report)
            if card and races:  # at once: whatever ends a later pair takes nothing back
                write_export(card, ENDINGS[card.suffix](races), overwrite=True)
                saved = f"saved to {card}"
        is_done = True
    finally:
        if saved:
            say(saved)
        if all_kept and not is_done:
            say("the same command continues where this was stopped")
    for kept in all_kept:
        kept.delete()
    if card and not races:
        raise SpecchatError(f"{card.name} was not saved, because nothing could be raced")
    return DONE


def _outputs(arguments: argparse.Namespace, *, has_many: bool) -> tuple[Path | None, Path | None]:
    """Return the paths of the card and of the plot. Raises InvalidOption, before any loading."""
    card = card_path(arguments.save) if arguments.save else None
    plot = output_path(arguments.plot, (".svg",)) if arguments.plot else None
    if card and is_connected(arguments):
        raise InvalidOption("--save races pairs on this machine: leave it or --connect out")
    if plot and has_many:
        raise InvalidOption("--plot draws a single pair: leave the others out, or use --save")
    return card, plot


def _bench(
    arguments: argparse.Namespace,
    answerer: Answerer,
    engine: Engine,
    plan: BenchmarkPlan,
    plot: Path | None,
    kept: KeptRuns | None,
) -> tuple["_Report | None", bool]:
    """Measure a pair and print the results.

    Return them if anything was compared, and whether everything was measured.
    """
    (arm,) = plan.arms
    if not engine.facts.chooses_drafter:
        plan = replace(plan, has_plain=False)
    results, report = run_benchmark(engine, plan, kept), None
    if not plan.has_plain and results.runs:
        served = ServedReport(engine.facts, arm, results)
        print_result(arguments, served.as_record(), list(served.lines()))
        if plot:
            say("no chart: there is no plain decoding to compare with")
    elif results.ratios(arm):
        more = "give a larger --limit" if arguments.spec_bench else "use --rounds 2 or more"
        report = _Report(answerer.name, engine.facts, arm, results, more)
        print_result(arguments, report.as_record(), list(report.lines()))
        if plot:
            write_export(plot, report.plot(), overwrite=True)
    elif results.is_complete:
        raise SpecchatError("nothing was measured: " + "; ".join(results.skipped))
    else:
        say("interrupted before anything was compared; a smaller --max-tokens takes less time")
    return report, results.is_complete


def _races(
    answerer: Answerer, engine: Engine, plan: BenchmarkPlan, report: "_Report"
) -> list[Race]:
    """Return the race of the answer to the first prompt measured, which is the same for all pairs.

    Say why if it cannot be raced. Raises Cancelled.
    """
    (arm,) = plan.arms
    options = asdict(arm) | {"temperature": plan.temperatures[0], "max_tokens": plan.max_tokens}
    messages: list[ChatMessage] = [{"role": "user", "content": plan.tasks[0].prompts[0][0]}]
    try:
        with stopping_on_interrupt(engine.stop) as is_stopped:
            race = run_race(
                engine, messages, options, lambda _: None, show_line, is_stopped, answerer.title
            )
        show_line()
        return [replace(race, benchmark=report.summary())]
    except Cancelled:
        raise
    except SpecchatError as error:
        say(f"{answerer.name} is not on the card: {error}")
        return []


def run_benchmark(engine: Engine, plan: BenchmarkPlan, kept: KeptRuns | None = None) -> Results:
    """Measure everything that was not kept; Ctrl+C ends it early, with incomplete results."""
    results = Results()
    engine.prepare(show_loading)
    with stopping_on_interrupt(engine.stop) as is_interrupted, suppress(KeyboardInterrupt):
        for results in measure(engine, plan, _show_measuring, kept):  # noqa: B007  # only the last one is used
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
    if arguments.spec_bench is None:
        if arguments.limit is not None:
            raise InvalidOption("--limit samples the prompts of --spec-bench FILE: name the file")
        tasks = [task for task in TASKS if not arguments.task or task.name in arguments.task]
        rounds = arguments.rounds or ROUNDS
        return BenchmarkPlan([arm], tasks, temperatures, rounds, arguments.max_tokens)
    for flag, value in (("--task", arguments.task), ("--rounds", arguments.rounds)):
        if value is not None:
            raise InvalidOption(f"--spec-bench asks all its tasks' prompts once: leave {flag} out")
    tasks = read_spec_bench(arguments.spec_bench, arguments.limit)
    temperatures = arguments.temperature or SPEC_BENCH_TEMPERATURES
    max_tokens = arguments.max_tokens
    return BenchmarkPlan([arm], tasks, temperatures, None, max_tokens, ends_answers=True)


def _kept(
    arguments: argparse.Namespace, answerer: Answerer, plan: BenchmarkPlan, target: str
) -> KeptRuns | None:
    """Return what was measured before in the same way, of the same files and prompts.

    Only for Spec-Bench, which takes hours: None otherwise.
    """
    if not arguments.spec_bench:
        return None
    subject: dict[str, Any] = {"version": __version__, "machine": machine_record()}
    subject |= {"arms": [asdict(arm) for arm in plan.arms], "max_tokens": plan.max_tokens}
    subject |= {"limit": arguments.limit, "temperatures": list(plan.temperatures)}
    files = [arguments.spec_bench]
    if answerer.pair is None:
        subject |= {"server": answerer.server, "target": target}
    else:
        (arm,) = plan.arms
        subject["loading"] = asdict(loading_of(arguments, answerer.pair, arm.drafter))
        files += [path for path in (answerer.pair.target, answerer.pair.draft) if path]
    subject["files"] = [(str(p.resolve()), p.stat().st_size, p.stat().st_mtime_ns) for p in files]
    kept = KeptRuns(subject, plan.all_arms)
    if num_known := len(kept.runs) // len(plan.all_arms):
        say(f"resuming after {num_known} comparisons; to begin anew, delete {kept.path}")
    return kept


@dataclass(frozen=True, slots=True)
class _Report:
    """The results of one arm against plain decoding, from at least one comparison."""

    pair: str
    facts: EngineFacts
    arm: Arm
    results: Results
    more_answers: str
    """How to have more answers for each task measured."""

    def lines(self) -> Iterator[str]:
        """Yield the lines of the table and the conclusions below it."""
        cells = self.results.ratios(self.arm)
        yield self._heading()
        yield ""
        yield from table_lines([HEADINGS, *(self._row(*cell) for cell in cells), self._overall()])
        yield ""
        yield from self._conclusions()

    def summary(self) -> str:
        """Return the result in one line."""
        found = self.results.speedup(self.arm)
        number = sum(1 for _ in self.results.of(self.arm))
        spread = speedup_range(found.low, found.high)
        interval = f" (95 %: {spread})" if found.low != found.high else ""
        answers = f"{number} answer{'s' * (number != 1)}"
        return f"whole benchmark, {answers}: {found.words()}{interval}"

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
            "tokens_per_step": {
                "all": self.results.totals(self.arm).tokens_per_step,
                "tasks": {
                    task: self.results.totals(self.arm, task).tokens_per_step for task in tasks
                },
            },
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
        rates = [self.results.decode_rate(arm, task, temperature) for arm in (PLAIN, self.arm)]
        found = self.results.speedup(self.arm, task, temperature)
        totals = self.results.totals(self.arm, task, temperature)
        return (task, f"{temperature:g}", *_figures(rates, found, totals))

    def _overall(self) -> tuple[str, ...]:
        rates = [self.results.mean_rate(arm) for arm in (PLAIN, self.arm)]
        found = self.results.speedup(self.arm)
        return (OVERALL, "", *_figures(rates, found, self.results.totals(self.arm)))

    def _conclusions(self) -> Iterator[str]:
        if max(map(len, self.results.ratios(self.arm).values())) == 1:
            yield f"a single answer has no interval: {self.more_answers}"
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


def _figures(rates: Iterable[float], found: Speedup, totals: AnswerTotals) -> tuple[str, ...]:
    """Return the cells that a task and all tasks together have."""
    return (
        *(f"{rate:.1f}" for rate in rates),
        found.words(),
        interval_text(found.low, found.high),
        percent(totals.acceptance_rate or 0.0),
        f"{totals.tokens_per_step or 0.0:.2f}",
    )
