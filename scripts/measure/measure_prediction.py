"""Measure predicted outputs: the exact answer, an edited one and a foreign text as prediction.

Rounds are interleaved with plain decoding on one target; the medians of tokens/s, their ratio to
plain decoding and the tokens per pass are printed, with what passes of several tokens cost here.

    python scripts/measure/measure_prediction.py TARGET [--draft DRAFT]
"""

from __future__ import annotations

import argparse
import statistics
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine

QUESTION = "Write a short story about a lighthouse keeper who finds a letter in a bottle."
FOREIGN = "def parse(line: str) -> list[str]:\n    return line.split(',')\n\n" * 20
EVERY = 40
"""One token in this many is another one in the edited prediction."""
SHOWN = (1, 2, 4, 8, 16)


def answered(engine: LocalEngine, count: int, **options: object) -> list[int]:
    """Answer the question greedily; return the tokens."""
    asked = [{"role": "user", "content": QUESTION}]
    chosen = {"temperature": 0.0, "max_tokens": count, "ignore_end": True, **options}
    steps = engine.chat(asked, **chosen)  # type: ignore[arg-type]
    return [token for step in steps for token in step.tokens]


def main() -> None:
    """Measure one target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--tokens", type=positive, default=256)
    parser.add_argument("--drafter", default="suffix")
    given = parser.parse_args()
    with LocalEngine(Loading(given.target, given.draft)) as engine:
        engine.prepare()
        plain = answered(engine, given.tokens, drafter="none")
        edited = [7 if place % EVERY == EVERY - 1 else each for place, each in enumerate(plain)]
        cases: dict[str, dict[str, object]] = {
            "plain": {"drafter": "none"},
            f"{given.drafter} alone": {"drafter": given.drafter},
            "the exact answer": {"drafter": given.drafter, "prediction": plain},
            f"1 token in {EVERY} changed": {"drafter": given.drafter, "prediction": edited},
            "a foreign text": {"drafter": given.drafter, "prediction": FOREIGN},
        }
        costs = engine.pacing.pass_costs(100)
        print(machine_line())
        shown = ", ".join(f"{each}: {costs[each] / costs[1]:.2f}" for each in SHOWN)
        print(f"a pass over N tokens costs, in single passes: {shown}")
        rates: dict[str, list[float]] = {name: [] for name in cases}
        per_pass: dict[str, float] = {}
        for _ in range(given.rounds):
            for name, options in cases.items():
                answered(engine, given.tokens, **options)
                rates[name].append(engine.stats.tokens_per_second)
                per_pass[name] = engine.stats.tokens_per_step
        base = rates["plain"]
        for name, found in rates.items():
            ratio = statistics.median(a / b for a, b in zip(found, base, strict=True))
            speed = statistics.median(found)
            print(f"{name:24} {speed:7.1f} tokens/s  {ratio:5.2f}x  {per_pass[name]:.2f} a pass")


if __name__ == "__main__":
    main()
