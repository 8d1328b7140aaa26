"""`specchat bench`: plain and speculative decoding side by side, on this machine and pair."""

import argparse
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path

from specchat.bench.measurement import BenchmarkPlan
from specchat.bench.results import PLAIN, Arm
from specchat.bench.tasks import TASKS
from specchat.cli.benchmark import Report, run_benchmark
from specchat.cli.engine_session import open_engine
from specchat.cli.exit_codes import DONE, INTERRUPTED
from specchat.cli.model_arguments import chosen_pair
from specchat.cli.terminal import print_json, say
from specchat.drafter_registry import may_use_model
from specchat.engine import GenerateOptions
from specchat.errors import InvalidOption, SpecchatError

TEMPERATURES = (0.0, 0.8)


def run(arguments: argparse.Namespace) -> int:
    """Measure the pair and print the results, also if interrupted after the first comparison."""
    arm = Arm(arguments.drafter, arguments.draft_length)
    plan = _plan(arguments, arm)
    if arguments.plot:
        _require_plot(arguments.plot)
    pair = chosen_pair(arguments)
    draft = pair.draft if may_use_model(arm.drafter) else None
    with open_engine(arguments, pair, draft) as engine:
        results = run_benchmark(engine, plan)
    if results.ratios(arm):
        _print_report(arguments, Report(pair.name, engine.facts, arm, results))
    elif results.is_complete:
        raise SpecchatError("nothing was measured: " + "; ".join(results.skipped))
    else:
        say("interrupted before anything was compared; a smaller --max-tokens takes less time")
    return DONE if results.is_complete else INTERRUPTED


def _plan(arguments: argparse.Namespace, arm: Arm) -> BenchmarkPlan:
    """Return what to measure; InvalidOption for what cannot be, before anything is loaded."""
    temperatures = arguments.temperature or TEMPERATURES
    for temperature in temperatures:
        options = asdict(arm) | {"temperature": temperature, "max_tokens": arguments.max_tokens}
        GenerateOptions.of(options)
    if arm.drafter == PLAIN.drafter:
        raise InvalidOption("plain decoding is always measured: choose another --drafter")
    tasks = [task for task in TASKS if not arguments.task or task.name in arguments.task]
    return BenchmarkPlan([arm], tasks, temperatures, arguments.rounds, arguments.max_tokens)


def _require_plot(path: Path) -> None:
    if path.suffix not in {".svg", ".png"}:
        raise InvalidOption(f"{path}: the name of the plot must end in .svg or .png")
    if path.suffix == ".png" and shutil.which("rsvg-convert") is None:
        raise InvalidOption(f"{path}: install rsvg-convert for PNG, or name a .svg file")
    if not path.absolute().parent.is_dir():
        raise InvalidOption(f"{path}: no folder {path.parent}; create it first")


def _print_report(arguments: argparse.Namespace, report: Report) -> None:
    """Print the table or the JSON object, and write the plot."""
    if arguments.json:
        print_json(report.as_record())
    else:
        print("\n".join(report.lines()))
    if arguments.plot:
        _write_plot(arguments.plot, report.plot())


def _write_plot(path: Path, svg: str) -> None:
    try:
        if path.suffix == ".svg":
            path.write_text(svg, "utf-8")
            return
        command = ["rsvg-convert", "--zoom", "2", "--output", str(path)]
        subprocess.run(command, input=svg.encode(), check=True, capture_output=True)
    except (OSError, subprocess.CalledProcessError) as error:
        raise SpecchatError(f"cannot write {path}: {error}") from None
