"""Measure the time of decoding outside the models, with a vocabulary of 152 000 tokens.

The model is tiny, so nearly all time is specchat's own: choosing tokens from rows of logits,
verification, statistics and pacing. Prints medians in microseconds per drafted or verified token:
outside the drafter and the target passes (`overhead_s`), and outside llama.cpp altogether.

    python scripts/measure/measure_overhead.py
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Literal

from scripts.support.counts import positive
from scripts.support.tiny_gguf import write_big_vocabulary
from specchat import Engine
from specchat.llama.context import Context

SAMPLINGS: dict[str, dict[str, Any]] = {
    "temperature 0": {"temperature": 0.0},
    "temperature 1, top-k 40": {"temperature": 1.0, "top_k": 40, "top_p": 1.0, "min_p": 0.0},
    "the same with a seed": {
        "temperature": 1.0,
        "top_k": 40,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 1,
    },
    "temperature 1, no truncation": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0},
    "no truncation, with a seed": {
        "temperature": 1.0,
        "top_k": 0,
        "top_p": 1.0,
        "min_p": 0.0,
        "seed": 1,
    },
    "llama.cpp's defaults": {},
    "temperature 1, min-p 0.05": {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.05},
}


class Clock:
    """Adds up the seconds that llama.cpp's passes take."""

    def __init__(self) -> None:
        """Start timing the passes of every context."""
        self.seconds = 0.0
        inner = Context._decode  # noqa: SLF001  # wrapped in a clock

        def timed(context: Context, tokens: Sequence[int], num_rows: int) -> None:
            started = time.perf_counter()
            try:
                inner(context, tokens, num_rows)
            finally:
                self.seconds += time.perf_counter() - started

        Context._decode = timed  # type: ignore[method-assign,assignment]  # noqa: SLF001


def measure(
    engine: Engine, clock: Clock, sampling: dict[str, Any], length: int | Literal["auto"]
) -> list[float]:
    """Return microseconds per drafted or verified token, by both definitions of overhead."""
    drafter = "auto" if length == "auto" else "model"
    stream = engine.generate(
        [1, 2, 3], max_tokens=300, drafter=drafter, draft_length=length, ignore_end=True, **sampling
    )
    next(stream)
    clock.seconds, before = 0.0, engine.stats.decode_s
    for _ in stream:
        pass
    stats = engine.stats
    num_tokens = 2 * stats.drafted + stats.steps
    outside = stats.decode_s - before - clock.seconds
    return [1e6 * stats.overhead_s / num_tokens, 1e6 * outside / num_tokens]


def main() -> None:
    """Print a table with a row per way of sampling and draft length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=7)
    options = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        path = write_big_vocabulary(Path(folder) / "big.gguf")
        with Engine.load(path, path, ctx=1024, threads=1) as engine:
            engine.prepare()
            print("| sampling | draft length | overhead_s, us per token | outside llama.cpp |")
            print("| --- | --- | --- | --- |")
            for name, sampling in SAMPLINGS.items():
                for length in (3, "auto"):
                    rounds = [
                        measure(engine, clock, sampling, length) for _ in range(options.rounds)
                    ]
                    columns = zip(*rounds, strict=True)
                    cells = [f"{statistics.median(column):.0f}" for column in columns]
                    print(f"| {name} | {length} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
