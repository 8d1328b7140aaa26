"""Measure which passes of a model give the bits of single tokens, and what that costs.

    python scripts/measure/measure_exactness.py MODEL.gguf [--types Q4_K_M Q6_K ...] [--rounds 3]

For each quantization of the model (it is converted first, into a temporary folder) and each way of
loading it prints the longest exact draft, and how many times as long passes take with exact kernels
as without, the median of rounds. Longer passes, such as those over prompts, do not change. Needs
llama.cpp as scripts/specchat builds it.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from scripts.support.quantised_model import quantised
from specchat.llama import tinyblas
from specchat.llama.context import Context
from specchat.llama.model import Model
from specchat.passes.exact_costs import TIMED_LENGTHS, costs_here
from specchat.passes.exact_passes import fill
from specchat.passes.exactness_measurement import ExactnessMeasurement
from specchat.planning.context_shape import ModelOptions

PATIENCE = 60.0


def main() -> None:
    """Print a table with a row per quantization and way of loading."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--types", nargs="*", default=[], metavar="TYPE")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--depths", nargs="*", type=int, default=[16, 500, 1500, 3500])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not tinyblas.is_optional():
        sys.exit("this build of llama.cpp has no switch: run scripts/specchat once to rebuild it")
    print(f"{machine_line()}; {options.threads} threads; time with exact kernels / without\n")
    columns = [f"{count} at {depth}" for depth in options.depths for count in TIMED_LENGTHS]
    print(f"| type | weights | longest exact draft | {' | '.join(columns)} |")
    print("| --- " * (3 + len(columns)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.types or [""]:
            path = quantised(options.model, name, Path(folder)) if name else options.model
            for is_repacked in (True, False):
                print(row(path, name, is_repacked, options), flush=True)


def row(path: Path, name: str, is_repacked: bool, options: argparse.Namespace) -> str:
    """Return one row of the table."""
    load: dict[str, Any] = {"ctx": 4096, "threads": options.threads, "gpu_layers": 0, "batch": 128}
    shape = ModelOptions(**load, rollback_length=32, flash_attention="off", is_repacked=is_repacked)
    with Model(path, shape) as model, Context(model, shape) as context:
        measurement = ExactnessMeasurement("on", most_seconds=PATIENCE)
        draft = measurement.run(context, tinyblas).longest - 1
        cells = [
            f"{statistics.median(cost):.2f}"
            for depth in options.depths
            for cost in zip(*(costs(context, depth) for _ in range(options.rounds)), strict=True)
        ]
    weights = "repacked" if is_repacked else "as in the file"
    exact = f"{draft}{'' if measurement.has_compared_all else ' or more'}"
    return f"| {name or path.stem} | {weights} | {exact} | {' | '.join(cells)} |"


def costs(context: Context, depth: int) -> list[float]:
    """Return the costs of passes at a depth."""
    fill(context, depth, math.inf)
    return list(costs_here(context, tinyblas, TIMED_LENGTHS, math.inf).values())


if __name__ == "__main__":
    main()
