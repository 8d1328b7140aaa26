"""`specchat bench`: plain and speculative decoding side by side, on this machine and pair."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from specchat.bench.measurement import PLAIN, Arm, Bench, Run, interval, measure
from specchat.bench.plot import Bar, draw
from specchat.bench.summary import (
    accepted_by_position,
    accepted_share,
    decode_rate,
    prompt_rate,
    relative_costs,
    task_speedups,
)
from specchat.bench.tasks import TASKS
from specchat.catalogue.pairs import Pair
from specchat.cli.engine_session import open_engine, stopping_on_interrupt
from specchat.cli.exit_codes import INTERRUPTED
from specchat.cli.model_arguments import chosen_pair
from specchat.cli.progress_line import show_measuring, wipe_progress
from specchat.cli.terminal import print_json, say
from specchat.drafters import may_use_model
from specchat.engine import Engine, GenerateOptions
from specchat.errors import InvalidOption, SpecchatError

__all__ = ["run"]

TEMPERATURES = (0.0, 0.8)
MOST_POSITIONS = 12
PASS_LENGTHS = (1, 2, 3, 4, 5, 6, 8, 12, 16, 24, 32)


def run(arguments: argparse.Namespace) -> int:
    """Measure, and tell what was measured, all of it or as far as it went."""
    arm = Arm(arguments.drafter, arguments.draft_length)
    _require(arguments, arm)
    pair = chosen_pair(arguments)
    draft = pair.draft if may_use_model(arm.drafter) else None
    with open_engine(arguments, pair, draft) as engine:
        bench = _measured(arguments, engine, arm)
        wipe_progress()
        if bench.is_whole or bench.ratios(arm):
            _report(arguments, pair, engine, bench, arm)
        else:
            say("interrupted before anything could be compared")
    return 0 if bench.is_whole else INTERRUPTED


def _measured(arguments: argparse.Namespace, engine: Engine, arm: Arm) -> Bench:
    """Return what was measured, to the end or up to an interrupt."""
    tasks = [task for task in TASKS if not arguments.task or task.name in arguments.task]
    bench = Bench()
    with stopping_on_interrupt(engine) as is_interrupted, suppress(KeyboardInterrupt):
        states = measure(
            engine, [arm], tasks, arguments.temperature or TEMPERATURES,
            rounds=arguments.rounds, max_tokens=arguments.max_tokens, tell=show_measuring,
        )  # fmt: skip
        for bench in states:  # noqa: B007  # the last state is the result
            if is_interrupted():
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
    if arm.drafter == PLAIN.drafter:
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


def _report(
    arguments: argparse.Namespace, pair: Pair, engine: Engine, bench: Bench, arm: Arm
) -> None:
    """Print the table or the object, and write the picture."""
    if not bench.ratios(arm):
        raise SpecchatError("nothing was measured: " + ("; ".join(bench.skipped) or "stopped"))
    if arguments.json:
        print_json(_as_json(engine, bench, arm))
    else:
        print("\n".join(_table(pair, bench, arm)))
    if arguments.plot:
        _write_plot(arguments.plot, _picture(pair, bench, arm))


def _table(pair: Pair, bench: Bench, arm: Arm) -> Iterator[str]:
    """Yield the lines of the table."""
    yield _heading(pair, arm)
    yield ""
    yield (
        f"{'task':<10} {'temp':>4} {'plain t/s':>9} {'spec t/s':>9} {'speedup':>8}"
        f"  {'95 % interval':<14} {'accepted':>8}"
    )
    for task, temperature in bench.ratios(arm):
        speedup, low, high = interval(bench.ratios(arm, task, temperature))
        plain, spec = (decode_rate(bench, each, task, temperature) for each in (PLAIN, arm))
        yield (
            f"{task:<10} {temperature:>4g} {plain:>9.1f} {spec:>9.1f} {speedup:>7.2f}x"
            f"  {f'{low:.2f} to {high:.2f}':<14}"
            f" {accepted_share(bench, arm, task, temperature):>8.0%}"
        )
    yield ""
    yield from _conclusions(bench, arm)


def _conclusions(bench: Bench, arm: Arm) -> Iterator[str]:
    """Yield the lines below the table."""
    speedup, low, high = interval(bench.ratios(arm))
    yield f"speedup {speedup:.2f} (95 % interval {low:.2f} to {high:.2f}) over all tasks"
    if max(map(len, bench.ratios(arm).values())) == 1:
        yield "one round tells nothing of its spread: the interval needs --rounds 2 or more"
    yield f"prompts, not counted above, were read at {prompt_rate(bench):.1f} tokens/s"
    yield _speculation(bench, arm)
    if compared := bench.num_compared(arm):
        different = bench.num_different(arm)
        yield f"temperature 0: {different} of {compared} answers differ from plain decoding's"
        if different:
            yield "they part at near ties, or by a fault: specchat check tells which"
    yield from (f"skipped: {reason}" for reason in bench.skipped)
    if not bench.is_whole:
        yield "stopped before the end: these figures are of what was measured until then"


def _heading(pair: Pair, arm: Arm) -> str:
    return f"{pair.name} on {_machine()['processor']}, drafter {arm.name}"


def _speculation(bench: Bench, arm: Arm) -> str:
    """Say what was used, and why not more."""
    last = [run for run in bench.runs if run.arm == arm][-1]
    said = last.stats["speculation"]
    if not said["on"]:
        return f"speculation is off: {said['off']}"
    words = f"speculation by {said['drafter'].replace('+', ' and ')} ({said['draft_length']})"
    return f"{words}; {said['draft_off']}" if said["draft_off"] else words


def _as_json(engine: Engine, bench: Bench, arm: Arm) -> dict[str, Any]:
    return {
        "machine": _machine(),
        "model": {"target": engine.facts.target, "draft": engine.facts.draft},
        "runs": [_run_as_json(bench, run) for run in bench.runs],
        "speedup": {
            **_named(interval(bench.ratios(arm)), "all"),
            "tasks": {task: _named(found) for task, found in task_speedups(bench, arm).items()},
        },
        "accepted_by_position": accepted_by_position(bench, arm),
        "relative_pass_costs": relative_costs(bench),
        "compared_at_temperature_0": bench.num_compared(arm),
        "different_at_temperature_0": bench.num_different(arm),
        "skipped": bench.skipped,
        "complete": bench.is_whole,
    }


def _named(found: tuple[float, float, float], name: str = "speedup") -> dict[str, float]:
    return dict(zip((name, "low", "high"), found, strict=True))


def _run_as_json(bench: Bench, run: Run) -> dict[str, Any]:
    """Return one answer's record, its speed set against plain decoding's of the same round."""
    plain = next(
        (
            each.tokens_per_second
            for each in bench.runs
            if (each.arm, each.task, each.temperature, each.number)
            == (PLAIN, run.task, run.temperature, run.number)
        ),
        0.0,
    )
    return {
        **asdict(run.arm),
        "temperature": run.temperature,
        "task": run.task,
        "round": run.number,
        "prompt": run.prompt,
        "speedup": run.tokens_per_second / plain if plain else None,
        **run.stats,
    }


def _picture(pair: Pair, bench: Bench, arm: Arm) -> str:
    """Return the picture of what was measured."""
    shares = accepted_by_position(bench, arm)[:MOST_POSITIONS]
    costs = relative_costs(bench)
    return draw(
        _heading(pair, arm) + ("" if bench.is_whole else " (stopped before the end)"),
        [Bar(task, *found) for task, found in task_speedups(bench, arm).items()],
        [Bar(str(place + 1), share) for place, share in enumerate(shares)],
        [Bar(str(count), costs[count]) for count in PASS_LENGTHS if count in costs],
    )


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
