"""Measure the time of decoding outside the models, with a vocabulary of 152 000 tokens.

The model is tiny, so nearly all time is specchat's own: choosing tokens from rows of logits,
verification, statistics and pacing. Prints medians in microseconds per drafted or verified token:
outside the drafter and the target passes (`overhead_s`), and outside llama.cpp altogether. Between
the passes of a real model, whose weights evict everything else from the processor's caches, the
same takes longer: `--target` decodes with one, plainly.

    python scripts/measure/measure_overhead.py [--target FILE]
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.tiny_gguf import write_big_vocabulary
from specchat import Engine
from specchat.llama import native_context

SAMPLINGS: dict[str, dict[str, Any]] = {
    "temperature 0": {"temperature": 0.0},
    "temperature 0.8, top-k 40": {"temperature": 0.8, "top_k": 40, "top_p": 1.0, "min_p": 0.0},
    "the same with a seed": {
        "temperature": 0.8,
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
    """Adds up the seconds that llama.cpp's passes take, the wait for their logits included."""

    def __init__(self) -> None:
        """Start timing the passes of every context."""
        self.seconds = 0.0
        library: Any = native_context  # wrapped in a clock
        library.api.llama_decode = self._timed(library.api.llama_decode)
        library.logits_address = self._timed(library.logits_address)

    def _timed(self, function: Any) -> Any:
        def timed(*arguments: Any) -> Any:
            started = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                self.seconds += time.perf_counter() - started

        return timed


def measure(
    engine: Engine, clock: Clock, sampling: dict[str, Any], drafter: str, length: int | str
) -> list[float]:
    """Return microseconds per drafted or verified token, by both definitions of overhead."""
    options = {"drafter": drafter, "draft_length": length, "ignore_end": True, **sampling}
    stream = engine.generate([1, 2, 3], max_tokens=300, **options)
    next(stream)
    counted = engine.stats.overhead_s
    clock.seconds, began = 0.0, time.perf_counter()
    for _ in stream:
        pass
    outside = time.perf_counter() - began - clock.seconds
    stats = engine.stats
    num_tokens = 2 * stats.drafted + stats.steps - 1
    return [1e6 * (stats.overhead_s - counted) / num_tokens, 1e6 * outside / num_tokens]


def main() -> None:
    """Print a table with a row per way of sampling and draft length."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--target", type=Path, help="decode plainly with this model instead")
    options = parser.parse_args()
    clock = Clock()
    with tempfile.TemporaryDirectory() as folder:
        ways: list[tuple[str, int | str]] = [("none", "auto")]
        if options.target:
            files = [options.target]
        else:
            files = [write_big_vocabulary(Path(folder) / "big.gguf")] * 2
            ways += [("model", 3), ("auto", "auto")]
        threads = None if options.target else 1
        with Engine.load(*files, ctx=1024, threads=threads) as engine:
            engine.prepare()
            print("| sampling | draft length | overhead_s, us per token | outside llama.cpp |")
            print("| --- | --- | --- | --- |")
            for name, sampling in SAMPLINGS.items():
                for drafter, length in ways:
                    rounds = [
                        measure(engine, clock, sampling, drafter, length)
                        for _ in range(options.rounds)
                    ]
                    columns = zip(*rounds, strict=True)
                    cells = [f"{statistics.median(column):.0f}" for column in columns]
                    label = "plain" if drafter == "none" else length
                    print(f"| {name} | {label} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
