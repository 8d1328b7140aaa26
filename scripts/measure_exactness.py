"""Measure which passes of a model give the bits of single tokens, and what that costs.

    python scripts/measure_exactness.py MODEL.gguf [--types Q4_K_M Q6_K ...] [--rounds 3]

For each quantization of the model (it is converted first, into a temporary folder) and each way of
loading it prints the longest exact draft, and the time of passes and prompts with exact kernels
over that without, as medians of interleaved rounds. Needs llama.cpp as scripts/specchat builds it.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "scripts")]

from llama_cpp import llama_cpp as api  # noqa: E402

from compare_llama_cpp import machine  # noqa: E402
from specchat.llama.context import Context  # noqa: E402
from specchat.llama.exact_passes import (  # noqa: E402  # noqa: E402
    LONGEST_PASS,
    NUM_COPIED,
    has_choice,
    longest_exact_pass,
    without_tinyblas,
)
from specchat.llama.model import Model  # noqa: E402
from specchat.planning.context_shape import ModelOptions  # noqa: E402

PASSES, DEPTHS, PROMPT = (1, 2, 4, 8, 16), (16, 500, 1500, 3500), 512
REPEATS = 4
PATIENCE = 60.0


def main() -> None:
    """Print a table with a row per quantization and way of loading."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("--types", nargs="*", default=[], metavar="TYPE")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    if not has_choice():
        sys.exit("this build of llama.cpp has no switch: run scripts/specchat once to rebuild it")
    print(f"{machine()}; {options.threads} threads; time with exact kernels / without\n")
    columns = [f"{count} at {depth}" for depth in DEPTHS for count in PASSES]
    print(f"| type | weights | longest exact draft | prompt | {' | '.join(columns)} |")
    print("| --- " * (4 + len(columns)) + "|")
    with tempfile.TemporaryDirectory() as folder:
        for name in options.types or [""]:
            path = quantised(options.model, name, Path(folder)) if name else options.model
            for is_repacked in (True, False):
                print(row(path, name, is_repacked, options), flush=True)


def quantised(model: Path, name: str, folder: Path) -> Path:
    """Convert a model to another type."""
    parameters = api.llama_model_quantize_default_params()
    parameters.ftype = getattr(api, f"LLAMA_FTYPE_MOSTLY_{name}")
    parameters.allow_requantize = True
    path = folder / f"{name}.gguf"
    if api.llama_model_quantize(str(model).encode(), str(path).encode(), parameters):
        sys.exit(f"llama.cpp cannot convert {model} to {name}")
    return path


def row(path: Path, name: str, is_repacked: bool, options: argparse.Namespace) -> str:
    """Return one row of the table."""
    load: dict[str, Any] = {"ctx": 4096, "threads": options.threads, "gpu_layers": 0, "batch": 128}
    shape = ModelOptions(**load, rollback_length=32, flash_attention="off", is_repacked=is_repacked)
    taken: dict[str, dict[str, list[float]]] = {"on": {}, "off": {}}
    with Model(path, shape) as model, Context(model, shape) as context:
        with without_tinyblas(LONGEST_PASS):
            longest = longest_exact_pass(context, PATIENCE)[0] - 1
        for number in range(options.rounds):
            for exact in ("on", "off") if number % 2 else ("off", "on"):
                with without_tinyblas(LONGEST_PASS if exact == "on" else 1):
                    for key, seconds in timed(context):
                        taken[exact].setdefault(key, []).append(seconds)
    ratios = [
        statistics.median(taken["on"][key]) / statistics.median(taken["off"][key])
        for key in taken["on"]
    ]
    weights = "repacked" if is_repacked else "as in the file"
    cells = " | ".join(f"{ratio:.2f}" for ratio in ratios)
    return f"| {name or path.stem} | {weights} | {longest} | {cells} |"


def timed(context: Context) -> Iterator[tuple[str, float]]:
    """Yield the seconds of a prompt, and of each pass at each depth."""
    tokens = [1 + 7919 * place % (context.model.vocabulary.size - 1) for place in range(PROMPT)]
    context.prefill([])
    began = perf_counter()
    context.prefill(tokens)
    yield "prompt", perf_counter() - began
    for depth in DEPTHS:
        context.prefill([])
        context.prefill(tokens[: min(depth, NUM_COPIED)])
        context.rollback_kind.repeat(max(1, depth // NUM_COPIED))
        base = context.length
        for count in PASSES:
            yield f"{count} at {depth}", statistics.median_low(passes(context, base, count))


def passes(context: Context, base: int, count: int) -> Iterator[float]:
    """Yield the seconds of a few passes after the first `base` tokens."""
    for _ in range(REPEATS):
        context.rollback(base)
        began = perf_counter()
        context.evaluate(list(range(100, 100 + count)), count)
        yield perf_counter() - began


if __name__ == "__main__":
    main()
