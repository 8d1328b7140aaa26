"""`specchat bench`: plain and speculative decoding side by side, on this machine and pair."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specchat.bench.measuring import PLAIN, Arm, Bench, interval, measure
from specchat.bench.plot import Bar, draw
from specchat.bench.tasks import TASKS
from specchat.catalogue.pairs import Pair
from specchat.cli.loading import chosen_pair, loading_options, tell_on_terminal
from specchat.cli.progress import show_line, show_progress, wipe_progress
from specchat.engine import Engine, GenerateOptions
from specchat.errors import InvalidOption, SpecchatError

__all__ = ["run"]

INTERRUPTED = 130
TEMPERATURES = (0.0, 0.8)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and tell what was measured, all of it or as far as it went."""
    arm = Arm(arguments.drafter, arguments.draft_length)
    _require(arguments, arm)
    pair = chosen_pair(arguments)
    temperatures = arguments.temperature or TEMPERATURES
    tasks = [task for task in TASKS if task.name in (arguments.task or {t.name for t in TASKS})]
    with Engine.load(
        pair.target, pair.draft, process=True, tell=tell_on_terminal, **loading_options(arguments)
    ) as engine:
        with _interruptible() as is_interrupted:
            bench = _measured(
                measure(
                    engine, [arm], tasks, temperatures,
                    rounds=arguments.rounds, max_tokens=arguments.max_tokens, tell=show_progress,
                ),
                is_interrupted,
            )  # fmt: skip
        wipe_progress()
        _report(arguments, pair, engine, bench, arm)
    return 0 if bench.is_whole else INTERRUPTED


def _measured(states: Iterator[Bench], is_over: Callable[[], bool]) -> Bench:
    """Return what was measured up to the end, or to where it is over."""
    bench = Bench()
    for bench in states:  # noqa: B007  # the last state is the result
        if is_over():
            break
    return bench


def _require(arguments: argparse.Namespace, arm: Arm) -> None:
    """Refuse what cannot be measured before anything is loaded."""
    for temperature in arguments.temperature or TEMPERATURES:
        GenerateOptions(
            drafter=arm.drafter,
            draft_length=arm.draft_length,  # type: ignore[arg-type]  # a word or a number
            temperature=temperature,
            max_tokens=arguments.max_tokens,
        )
    if arguments.rounds < 1:
        raise InvalidOption(f"rounds must be 1 or more, not {arguments.rounds}")
    if arm.drafter == "none":
        raise InvalidOption("plain decoding is measured anyway: choose another --drafter")
    plot = arguments.plot
    if plot is None:
        return
    if plot.suffix not in {".svg", ".png"}:
        raise InvalidOption(f"{plot}: the picture's name must end with .svg or .png")
    if plot.suffix == ".png" and shutil.which("rsvg-convert") is None:
        raise InvalidOption(f"{plot}: for PNG install rsvg-convert, or name a .svg file")
    if not plot.absolute().parent.is_dir():
        raise InvalidOption(f"{plot}: there is no folder {plot.parent}")


@contextmanager
def _interruptible() -> Iterator[Any]:
    """Let the first Ctrl+C end the measuring after the answer in progress, the second at once."""
    interrupted = False

    def note(number: int, frame: object) -> None:
        del number, frame
        nonlocal interrupted
        interrupted = True
        signal.signal(signal.SIGINT, before)
        show_line("stopping after this answer; Ctrl+C again to stop at once")

    before = signal.signal(signal.SIGINT, note)
    try:
        yield lambda: interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def _report(
    arguments: argparse.Namespace, pair: Pair, engine: Engine, bench: Bench, arm: Arm
) -> None:
    """Print the table or the object, and write the picture."""
    if not bench.ratios(arm):
        raise SpecchatError("nothing was measured: " + ("; ".join(bench.skipped) or "stopped"))
    if arguments.json:
        print(json.dumps(_as_json(engine, bench, arm), ensure_ascii=False))
    else:
        print("\n".join(_table(pair, bench, arm)))
    if arguments.plot:
        _write_plot(arguments.plot, _picture(pair, bench, arm))


def _table(pair: Pair, bench: Bench, arm: Arm) -> Iterator[str]:
    """Yield the lines of the table."""
    yield f"{pair.name} on {_machine()['processor']}, drafter {arm.name}"
    yield ""
    yield f"{'task':<10} {'temp':>4} {'plain t/s':>9} {'spec t/s':>9} {'speedup':>8}  accepted"
    for task, temperature in bench.ratios(arm):
        speedup, low, high = interval(bench.ratios(arm, task, temperature))
        plain, spec = (_rate(bench, each, task, temperature) for each in (PLAIN, arm))
        yield (
            f"{task:<10} {temperature:>4g} {plain:>9.1f} {spec:>9.1f} {speedup:>7.2f}x"
            f"  {_accepted(bench, arm, task, temperature):>7.0%}"
        )
    yield ""
    speedup, low, high = interval(bench.ratios(arm))
    yield f"speedup {speedup:.2f} (95 % interval {low:.2f} to {high:.2f}) over all tasks"
    yield _speculation(bench, arm)
    if different := bench.num_different(arm):
        yield f"{different} answers at temperature 0 differ from plain decoding's: near ties, or"
        yield "a fault; specchat check tells which"
    yield from (f"skipped: {reason}" for reason in dict.fromkeys(bench.skipped))
    if not bench.is_whole:
        yield "stopped before the end: these figures are of what was measured until then"


def _speculation(bench: Bench, arm: Arm) -> str:
    """Say what was used, and why not more."""
    last = [run for run in bench.runs if run.arm == arm][-1]
    said = last.stats["speculation"]
    if not said["on"]:
        return f"speculation is off: {said['off']}"
    words = f"speculation by {said['drafter'].replace('+', ' and ')} ({said['draft_length']})"
    return f"{words}; {said['draft_off']}" if said["draft_off"] else words


def _as_json(engine: Engine, bench: Bench, arm: Arm) -> dict[str, Any]:
    speedup, low, high = interval(bench.ratios(arm))
    return {
        "machine": _machine(),
        "model": {"target": engine.facts.target, "draft": engine.facts.draft},
        "runs": [_run_as_json(bench, run) for run in bench.runs],
        "speedup": {"all": speedup, "low": low, "high": high},
        "different_at_temperature_0": bench.num_different(arm),
        "skipped": bench.skipped,
        "complete": bench.is_whole,
    }


def _run_as_json(bench: Bench, run: Any) -> dict[str, Any]:
    plain = _rate(bench, PLAIN, run.task, run.temperature, run.number)
    return {
        **asdict(run.arm),
        "temperature": run.temperature,
        "task": run.task,
        "round": run.number,
        "prompt": run.prompt,
        "speedup": run.tokens_per_second / plain if plain else None,
        **run.stats,
    }


def _chosen(bench: Bench, arm: Arm, task: str, temperature: float) -> list[Any]:
    return [
        run
        for run in bench.runs
        if (run.arm, run.task, run.temperature) == (arm, task, temperature)
    ]


def _rate(
    bench: Bench, arm: Arm, task: str, temperature: float, number: int | None = None
) -> float:
    """Return the median of tokens per second, or those of one round; 0 for none."""
    rates = sorted(
        run.tokens_per_second
        for run in _chosen(bench, arm, task, temperature)
        if number in {None, run.number}
    )
    return float(rates[len(rates) // 2]) if rates else 0.0


def _accepted(bench: Bench, arm: Arm, task: str, temperature: float) -> float:
    runs = _chosen(bench, arm, task, temperature)
    drafted = sum(run.stats["drafted"] for run in runs)
    return sum(run.stats["accepted"] for run in runs) / drafted if drafted else 0.0


def _picture(pair: Pair, bench: Bench, arm: Arm) -> str:
    """Return the picture of what was measured."""
    speedups = []
    for task in dict.fromkeys(task for task, _ in bench.ratios(arm)):
        value, low, high = interval(bench.ratios(arm, task))
        speedups.append(Bar(task, value, low, high))
    costs = next((run.pass_costs for run in reversed(bench.runs) if run.pass_costs), {})
    shown = [count for count in (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32) if count in costs]
    return draw(
        f"{pair.name} on {_machine()['processor']}, drafter {arm.name}",
        speedups,
        [Bar(str(place + 1), share) for place, share in enumerate(_by_position(bench, arm))],
        [Bar(str(count), costs[count] / costs[1]) for count in shown],
    )


def _by_position(bench: Bench, arm: Arm) -> list[float]:
    """Return the share of tokens kept at each draft position, over all answers."""
    kept: list[int] = []
    drafted: list[float] = []
    for run in bench.runs:
        if run.arm != arm:
            continue
        histogram = run.stats["acceptance_histogram"]
        for place, share in enumerate(run.stats["accepted_by_position"]):
            if place == len(kept):
                kept.append(0)
                drafted.append(0.0)
            here = sum(histogram[place + 1 :])
            kept[place] += here
            drafted[place] += here / share if share else 0.0
    return [k / d if d else 0.0 for k, d in zip(kept, drafted, strict=True)][:12]


def _write_plot(path: Path, svg: str) -> None:
    try:
        if path.suffix == ".svg":
            path.write_text(svg, "utf-8")
            return
        subprocess.run(
            ["rsvg-convert", "--zoom", "2", "--output", str(path)],
            input=svg.encode(), check=True, capture_output=True,
        )  # fmt: skip
    except (OSError, subprocess.CalledProcessError) as error:
        raise SpecchatError(f"{path} could not be written ({error})") from None


def _machine() -> dict[str, Any]:
    """Say what this ran on."""
    processor = platform.processor() or platform.machine()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = info.read_text("utf-8", "replace").splitlines()
        names = [line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")]
        processor = names[0] if names else processor
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": processor,
        "cores": os.cpu_count(),
        "python": platform.python_version(),
    }
