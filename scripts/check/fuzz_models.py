"""Damage GGUF files and chat templates at random, and check how specchat takes them.

    python scripts/check/fuzz_models.py MODEL.gguf [--headers 100000] [--templates 2000]
        [--loads 2000] [--heads 10000] [--keep FOLDER]

Headers are read in this process: only specchat's own errors may be raised, within ten seconds.
Templates are rendered as the chat does: text or TemplateError, within ten seconds. Whole files are
loaded by llama.cpp, and decoded with, in child processes, which may end but not hang. The model
should be small. Prediction heads of each kind are tiny ones that the tests write: a damaged one is
refused, or drafts and does not change the text; the child process must not end. `--keep` names a
folder for those that did harm. Prints a table, and exits with 1 if anything did not hold.
"""

import argparse
import random
import sys
import tempfile
from pathlib import Path

from scripts.support.fuzzing import (
    ENDED,
    HEADS,
    fuzz_headers,
    fuzz_heads,
    fuzz_loads,
    fuzz_templates,
)


def main() -> int:
    """Run all cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("--headers", type=int, default=100_000)
    parser.add_argument("--templates", type=int, default=2_000)
    parser.add_argument("--loads", type=int, default=2_000)
    parser.add_argument("--heads", type=int, default=10_000, help="of each kind")
    parser.add_argument("--kinds", nargs="+", default=[*HEADS], choices=[*HEADS])
    parser.add_argument("--keep", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    model, chance = arguments.model.read_bytes(), random.Random(arguments.seed)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        results = {
            "headers": fuzz_headers(model, arguments.headers, folder, chance),
            "templates": fuzz_templates(arguments.templates, chance),
            "loads": fuzz_loads(model, arguments.loads, folder, chance),
        }
        heads = {
            kind: fuzz_heads(kind, arguments.heads, folder, chance, arguments.keep)
            for kind in arguments.kinds
        }
    print("| what | cases | how they ended |\n| --- | ---: | --- |")
    for what, counts in (results | heads).items():
        ends = ", ".join(f"{count} {end}" for end, count in counts.most_common())
        print(f"| {what} | {counts.total()} | {ends} |")
    bad = ("unexpected", "slow", "a secret")
    has_ended = any(counts[ENDED] for counts in heads.values())
    found = [end for counts in (results | heads).values() for end in counts]
    return int(has_ended or any(end.startswith(bad) for end in found))


if __name__ == "__main__":
    sys.exit(main())
