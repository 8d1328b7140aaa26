"""Damage JSON Schemas, regular expressions and grammars at random, and check how they are taken.

    python scripts/check/fuzz_schemas.py [--cases 10000] [--seed 1]

Each is enforced or refused with one line, its first mask within two seconds of a processor; a short
text is written with it. Memory is measured over each process of 500 cases. Prints a table; exits
with 1 if a case ended its process, raised anything else, took longer, or took more than 1 GiB.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter

from scripts.support.schema_fuzzing import case, run_range

CASES_EACH = 500
MOST_SECONDS = 2.0
MOST_MEMORY = 1024
"""In MiB."""


def main() -> int:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    counts: Counter[tuple[str, str]] = Counter()
    slowest, most_memory, num_bad = 0.0, 0, 0
    for first in range(0, options.cases, CASES_EACH):
        last = min(first + CASES_EACH, options.cases)
        for index, ended in run_range(options.seed, first, last).items():
            structure = case(options.seed, index)
            is_unexpected = ended.word.startswith("unexpected")
            counts[structure.kind, "unexpected" if is_unexpected else ended.word] += 1
            slowest, most_memory = max(slowest, ended.seconds), max(most_memory, ended.memory)
            if is_unexpected or ended.seconds > MOST_SECONDS or ended.memory > MOST_MEMORY:
                num_bad += 1
                print(f"case {index}: {ended}: {structure.source[:300]!r}", flush=True)
    print("| what | how it ended | cases |\n|---|---|---:|")
    for (kind, word), count in sorted(counts.items()):
        print(f"| {kind} | {word} | {count} |")
    print(
        f"\n{options.cases} cases, {num_bad} bad; the slowest took {slowest:.2f} s, the largest"
        f" process {most_memory} MiB."
    )
    return int(num_bad > 0)


if __name__ == "__main__":
    sys.exit(main())
