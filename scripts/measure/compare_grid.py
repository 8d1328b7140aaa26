"""Compare pacing with every fixed draft length, and with llama.cpp's best one, on many pairs.

Each folder holds a pair made by `make_pair.py`. On each pair and at temperatures 0 and 1 (top-k 40)
specchat decodes plainly, at fixed draft lengths and with `auto`; with --tool,
`llama-speculative-simple` of the same llama.cpp does at fixed draft lengths. All take turns round
by round. After the first round only the three best fixed lengths of each continue; the best is the
one with the best median of the rounds it was in, which favours fixed lengths a little. Nothing is
known of a pair when its first round begins. Decode rates exclude the prompt.

    python scripts/lab/make_pair.py FOLDER --agreement 0.7 --draft-layers 3 --layers 32 ...
    python scripts/lab/build_llama_tools.py
    python scripts/measure/compare_grid.py FOLDER... --tool PATH/llama-speculative-simple
"""

from __future__ import annotations

import argparse
import json
import os
import re
import statistics
import subprocess
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat import Engine

LENGTHS = (1, 2, 3, 4, 5, 7, 11, 16)
NUM_KEPT = 3
DECODED = re.compile(r"decoded\s+(\d+) tokens in\s+([\d.]+) seconds")
"""What `llama-speculative-simple` prints."""
PROMPTS = (
    "Once upon a time there was a small program that wanted to be fast.",
    "The river ran through the old town and under seven bridges of stone.",
    "In the first chapter the reader learns how the engine is put together.",
    "No one in the valley remembered who had built the road to the pass.",
    "A list of things to take along begins with water, bread and a map.",
    "What the machine could not do by day it tried to do by night.",
    "Three letters arrived on the same morning, and none of them was signed.",
)


@dataclass(slots=True)
class Cell:
    """One pair at one temperature: tokens per second by contestant, round by round."""

    folder: str
    temperature: float
    agreement: float
    cost: float
    plain: list[float] = field(default_factory=list)
    auto: list[float] = field(default_factory=list)
    fixed: dict[int, list[float]] = field(default_factory=dict)
    llama: dict[int, list[float]] = field(default_factory=dict)

    def best(self, runs: dict[int, list[float]]) -> int:
        """Return the fixed length with the best median among those that stayed to the end."""
        last = max(map(len, runs.values()))
        stayed = [length for length in runs if len(runs[length]) == last]
        return max(stayed, key=lambda length: statistics.median(runs[length]))

    def against(self, others: list[float]) -> float:
        """Return the median of `auto`'s speed over another's, round by round."""
        pairs = zip(self.auto, others, strict=True)
        return statistics.median(ours / theirs for ours, theirs in pairs)

    def against_best(self, runs: dict[int, list[float]]) -> str:
        """Return that for the best of several, and which that is."""
        if not runs:
            return "-"
        best = self.best(runs)
        return f"{self.against(runs[best]):.2f} ({best})"

    def row(self) -> str:
        """Return a line of the table."""
        cells = [
            f"{self.temperature:g}", f"{self.cost:.2f}", f"{self.agreement:.2f}",
            f"{self.against(self.plain):.2f}",
            self.against_best(self.fixed), self.against_best(self.llama),
        ]  # fmt: skip
        return f"| {' | '.join(cells)} |"


def run_specchat(
    engine: Engine,
    cell: Cell,
    options: argparse.Namespace,
    turn: int,
    length: int | Literal["auto"],
) -> float:
    """Decode one answer on a state that has not seen it; return tokens per second."""
    engine.forget()
    drafter = "none" if length == 0 else "auto" if length == "auto" else "model"
    chunks = engine.generate(
        PROMPTS[turn % len(PROMPTS)], drafter=drafter, draft_length=length,
        temperature=cell.temperature, top_k=40, top_p=1.0, min_p=0.0,
        max_tokens=options.tokens, ignore_end=True,
    )  # fmt: skip
    for _ in chunks:
        pass
    return engine.stats.tokens_per_second


def run_llama_cpp(cell: Cell, options: argparse.Namespace, turn: int, length: int) -> float:
    """Decode with llama.cpp's tool; return tokens per second."""
    folder, prompt = Path(cell.folder), PROMPTS[turn % len(PROMPTS)]
    words = (
        options.tool, "-m", folder / "target.gguf", "-md", folder / "draft.gguf",
        "--spec-type", "draft-simple", "--spec-draft-n-max", length, "--spec-draft-p-min", 0,
        "-p", prompt, "-n", options.tokens, "-c", 2048, "-t", options.threads,
        "-tb", options.threads, "-s", turn + 1, "--ignore-eos", "--temp", cell.temperature,
        "--top-k", 40, "--top-p", 1, "--min-p", 0, "--samplers", "top_k;temperature",
    )  # fmt: skip
    done = subprocess.run(list(map(str, words)), capture_output=True, check=True)
    printed = (done.stdout + done.stderr).decode("utf-8", "replace")
    decoded = DECODED.search(printed)
    if decoded is None:
        raise SystemExit(f"{options.tool} printed no decode rate:\n{printed[-2000:]}")
    return int(decoded[1]) / float(decoded[2])


def contenders(runs: dict[int, list[float]], lengths: list[int]) -> list[int]:
    """Return the lengths of the next round."""
    if not runs:
        return lengths
    if min(map(len, runs.values())) < max(map(len, runs.values())):
        last = max(map(len, runs.values()))
        return [length for length in runs if len(runs[length]) == last]
    return sorted(runs, key=lambda length: -runs[length][0])[:NUM_KEPT]


def measure(cell: Cell, options: argparse.Namespace) -> None:
    """Fill in a cell, all contestants in turn."""
    target, draft = Path(cell.folder) / "target.gguf", Path(cell.folder) / "draft.gguf"
    with Engine.load(target, draft, process=True, ctx=1024, threads=options.threads) as engine:
        engine.prepare()
        for turn in range(options.rounds):
            cell.plain.append(run_specchat(engine, cell, options, turn, 0))
            fixed = contenders(cell.fixed, options.lengths)
            llama = contenders(cell.llama, options.lengths) if options.tool else []
            for length in fixed:
                rate = run_specchat(engine, cell, options, turn, length)
                cell.fixed.setdefault(length, []).append(rate)
            cell.auto.append(run_specchat(engine, cell, options, turn, "auto"))
            for length in llama:
                rate = run_llama_cpp(cell, options, turn, length)
                cell.llama.setdefault(length, []).append(rate)


def summary(cells: list[Cell], temperature: float) -> str:
    """Return one line with the result of a temperature."""
    chosen = [cell for cell in cells if cell.temperature == temperature]
    fixed = [cell.against(cell.fixed[cell.best(cell.fixed)]) for cell in chosen]
    llama = [cell.against(cell.llama[cell.best(cell.llama)]) for cell in chosen if cell.llama]
    plain = [cell.against(cell.plain) for cell in chosen]
    parts = {"the best fixed length": fixed, "llama.cpp's best": llama, "plain decoding": plain}
    return f"temperature {temperature:g}: " + "; ".join(
        f"of {name} {statistics.mean(shares):.3f} on the mean, {min(shares):.2f} at least"
        for name, shares in parts.items()
        if shares
    )


def main() -> None:
    """Measure all cells, printing each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folders", type=Path, nargs="+", help="pairs made by make_pair.py")
    parser.add_argument("--tool", type=Path, help="llama-speculative-simple, to compare it too")
    parser.add_argument("--lengths", type=int, nargs="+", default=LENGTHS, help="fixed ones to try")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs here")
    options = parser.parse_args()
    cells: list[Cell] = []
    print(
        f"{machine_line()}; {options.tokens} tokens, {options.rounds} rounds\n\n"
        "| temperature | draft cost | agreement | auto / plain | auto / best fixed length"
        " | auto / best llama.cpp |\n| --- | --- | --- | --- | --- | --- |"
    )
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state  # what is known of these pairs is learned here
        for folder in options.folders:
            pair = json.loads((folder / "pair.json").read_text("utf-8"))
            for temperature in options.temperature:
                cell = Cell(str(folder), temperature, pair["agreement"], pair["cost_ratio"])
                measure(cell, options)
                cells.append(cell)
                print(cell.row(), flush=True)
                if options.json:
                    options.json.write_text(json.dumps([asdict(cell) for cell in cells]), "utf-8")
    print()
    for temperature in options.temperature:
        print(summary(cells, temperature))


if __name__ == "__main__":
    main()
