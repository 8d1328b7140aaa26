"""Measure `auto` beside constant draft lengths as people use it: a process an answer.

Each round asks once plainly, once with each constant length and once with `auto`, in turn, forwards
and backwards, so that what slows the machine slows all. `auto` keeps what it learns in a folder of
its own, which is empty at first; the others know nothing. A ratio says nothing without what passes
cost on this machine, so that is printed first.

    python scripts/measure/measure_pacing.py TARGET [--draft DRAFT] [--answers 12] ...
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine

PROMPTS = (
    "Once upon a time there was a fox who",
    "The history of the city begins",
    "In the year 1912 the ship",
    "A recipe for bread needs",
)
AUTO, PLAIN = "auto", 0
SHOWN = (2, 3, 4, 5, 8, 16)
"""The passes whose costs are printed, in passes over one token."""


def stair(options: argparse.Namespace) -> str:
    """Return what passes cost, as measured now."""
    loading = Loading(options.target, options.draft, ctx=2048, threads=options.threads, learn=False)
    with LocalEngine(loading) as engine:
        if not engine.prepare() or not engine.facts.knows_costs:
            return "what passes cost could not be measured: this machine is busy"
        row = engine.pacing.knowledge.target.row(0)
    costs = ", ".join(f"{count}: {row[count] / row[1]:.2f}" for count in SHOWN)
    return f"one token takes {row[1] * 1000:.1f} ms; passes in those: {costs}"


def rate(options: argparse.Namespace, length: int | str, prompt: str, state: str) -> float:
    """Return the tokens per second of one answer, decoded by a process of its own."""
    how = ["--drafter", "none"] if length == PLAIN else ["--draft-length", str(length)]
    how += [] if length == AUTO else ["--no-learn"]  # nor measure anything after the answer
    pair = ["--target", str(options.target)]
    pair += ["--draft", str(options.draft)] if options.draft else []
    how += ["--seed", str(options.seed)] if options.seed is not None else []
    command = [
        sys.executable, "-P", "-m", "specchat", "ask", "--no-stdin", "--raw", "--json", *pair, *how,
        "--temperature", str(options.temperature), "--top-k", "40", "--ctx", "2048",
        "--max-tokens", str(options.tokens), "--threads", str(options.threads), prompt,
    ]  # fmt: skip
    environment = {**os.environ, "XDG_STATE_HOME": state, "XDG_CONFIG_HOME": state}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    if done.returncode:
        raise SystemExit(done.stderr)
    return float(json.loads(done.stdout)["stats"]["tokens_per_second"])


@contextlib.contextmanager
def busy_machine(num_processes: int) -> Iterator[None]:
    """Keep processors busy, as compilers do."""
    endless = [sys.executable, "-c", "while True: sum(range(10_000))"]
    busy = [subprocess.Popen(endless) for _ in range(num_processes)]
    try:
        yield
    finally:
        for process in busy:
            process.kill()
            process.wait()


def main() -> None:
    """Print the machine, its stair, each round and the ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path, help="a draft model or head; none for a head within")
    parser.add_argument("--lengths", type=positive, nargs="+", default=[1, 2, 3])
    parser.add_argument("--answers", type=positive, default=12)
    parser.add_argument("--tokens", type=positive, default=128)
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, help="of each answer; by default none")
    parser.add_argument(
        "--busy", type=int, default=0, help="how many answers run beside two busy processes first"
    )
    options = parser.parse_args()
    if not 0 <= options.busy < options.answers:
        parser.error("--busy must be less than --answers")
    print(f"{machine_line()}; {options.target.name}, temperature {options.temperature:g}")
    print(stair(options), flush=True)
    contestants: list[int | str] = [PLAIN, *options.lengths, AUTO]
    rates: dict[int | str, list[float]] = {length: [] for length in contestants}
    with tempfile.TemporaryDirectory() as kept:
        for number in range(options.answers):
            prompt = PROMPTS[number % len(PROMPTS)]
            for length in contestants[:: 1 if number % 2 else -1]:
                with (
                    tempfile.TemporaryDirectory() as empty,
                    busy_machine(2 if number < options.busy else 0),
                ):
                    state = kept if length == AUTO else empty
                    rates[length].append(rate(options, length, prompt, state))
            row = ", ".join(f"{length}: {measured[-1]:.1f}" for length, measured in rates.items())
            print(f"answer {number + 1}: {row}", flush=True)
    quiet = slice(options.busy, None)
    rates = {length: measured[quiet] for length, measured in rates.items()}
    best = max([PLAIN, *options.lengths], key=lambda length: statistics.median(rates[length]))
    ratios = [own / other for own, other in zip(rates[AUTO], rates[best], strict=True)]
    later = ratios[1:] or ratios
    first = "first quiet answer" if options.busy else "first answer"
    print(
        f"best constant {best} ({statistics.median(rates[best]):.1f} tokens/s, plain"
        f" {statistics.median(rates[PLAIN]):.1f}); auto / best: {first} {ratios[0]:.2f},"
        f" others {statistics.mean(later):.3f} ({min(later):.2f} to {max(later):.2f})"
    )


if __name__ == "__main__":
    main()
