"""Measure speculation with a target on a worker behind a slow network: `auto` beside plain.

Each round trip of `--latency` milliseconds is added by a proxy before a worker that this script
starts. Rounds are interleaved; the medians of tokens/s, their ratio to plain decoding, the
acceptance rate and the tokens per target pass are printed. `--latency 0` is without the proxy.

    python scripts/measure/measure_worker.py TARGET --draft DRAFT [--latency 2] [--latency 10]
"""

from __future__ import annotations

import argparse
import statistics
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.held_out_prompts import held_out_prompts
from scripts.support.machine_line import machine_line
from scripts.support.slow_network import SlowNetwork
from scripts.support.worker_process import WorkerProcess, free_ports
from specchat.decoding.statistics import Statistics
from specchat.engine import Engine, Loading
from specchat.sharing.process_engine import ProcessEngine

MILLISECOND = 1e-3
PROMPTS = [prompt for prompts in held_out_prompts().values() for prompt in prompts]


def measure(given: argparse.Namespace, latency: float) -> None:
    """Measure one latency."""
    with ExitStack() as stack:
        worker = stack.enter_context(WorkerProcess())
        address = worker.address
        if latency:
            slow = SlowNetwork(address, free_ports(), latency * MILLISECOND)
            address = stack.enter_context(slow).address
        loading = Loading(
            given.target,
            given.draft,
            workers=(str(address),),
            ctx=2048,
            threads=given.threads,
            head=given.drafter != "model",
        )
        engine = stack.enter_context(ProcessEngine(loading))
        engine.prepare()
        compare(engine, given, latency)


def compare(engine: Engine, given: argparse.Namespace, latency: float) -> None:
    """Interleave plain decoding and `auto`; print both."""
    cases = ("none", given.drafter)
    run(engine, given, 0, "none")  # the first answer warms up
    rates: dict[str, list[float]] = {name: [] for name in cases}
    drafted = accepted = steps = tokens = 0
    for number in range(given.rounds):
        for name in cases if number % 2 else cases[::-1]:
            stats = run(engine, given, number, name)
            rates[name].append(stats.tokens_per_second)
            if name != "none":
                drafted += stats.drafted
                accepted += stats.accepted
                steps += stats.steps
                tokens += stats.generated_tokens
    plain, fast = (statistics.median(rates[name]) for name in cases)
    ratio = statistics.median(b / a for a, b in zip(*rates.values(), strict=True))
    share = accepted / drafted if drafted else 0.0
    print(
        f"{latency:5.1f} ms: plain {plain:6.1f} tokens/s, {given.drafter} {fast:6.1f} tokens/s,"
        f" {ratio:.2f}x, accepted {share:.0%}, {tokens / max(1, steps):.2f} tokens a pass"
    )


def run(engine: Engine, given: argparse.Namespace, number: int, drafter: str) -> Statistics:
    """Answer one prompt, and return the statistics."""
    options: dict[str, Any] = {
        "temperature": given.temperature,
        "seed": number,
        "max_tokens": given.tokens,
        "ignore_end": True,
        "drafter": drafter,
    }
    prompt = PROMPTS[number % len(PROMPTS)]
    if engine.facts.has_chat_template:
        answer = engine.chat([{"role": "user", "content": prompt}], **options)
    else:
        answer = engine.generate(prompt, **options)
    for _ in answer:
        pass
    return engine.stats


def main() -> None:
    """Measure each latency."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--drafter", default="auto")
    parser.add_argument("--latency", type=float, action="append", metavar="MS")
    parser.add_argument("--rounds", type=positive, default=6)
    parser.add_argument("--tokens", type=positive, default=128)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--threads", type=positive, default=1)
    given = parser.parse_args()
    print(machine_line())
    for latency in given.latency or (2.0, 10.0):
        measure(given, latency)


if __name__ == "__main__":
    main()
