"""Use the chat for thousands of turns, and check that nothing in it grows or drifts.

    python scripts/check/soak.py [--turns 3000] [--seed 1] [--output soak.md] [--samples soak.csv]

The whole chat runs, drawn for a screen of 80 x 24 but not written to a terminal, with its history
on the disk and the demo pair in an engine process. Of ten turns six ask, one edits a question, one
regenerates an answer (every third time turning to the version before and back), one stops an answer
and one continues it; every five turns a new conversation begins. In the first half the pair is
switched ten times, which starts another engine process; in the second half one process answers all.
At temperature 0 the same questions are asked first and last.

Prints memory (of the process alone, USS), descriptors and threads of both processes, and exits with
1 if a figure grew by 5 % or more after the first tenth, or an answer changed. Linux only.
"""

import argparse
import asyncio
import csv
import os
import sys
import tempfile
import time
from dataclasses import astuple, fields
from pathlib import Path
from typing import Any

from scripts.support.chat_soak import MOST_GROWTH, Sample, growths, run


def main() -> int:
    """Run all turns, print the table and return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--turns", type=int, default=3000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    parser.add_argument("--samples", type=Path)
    arguments = parser.parse_args()
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="specchat-soak-") as folder:
        for name in ("DATA", "STATE", "CONFIG", "CACHE"):
            os.environ[f"XDG_{name}_HOME"] = folder
        soak = asyncio.run(run(arguments.turns, arguments.seed, Path(folder)))
    found = list(growths(soak.samples))
    table = ["| figure | after the warm-up | at the end | growth |", "| --- | ---: | ---: | ---: |"]
    table += [f"| {name} | {a:.1f} | {b:.1f} | {growth:+.1%} |" for name, a, b, growth in found]
    print("\n".join(table))
    print(f"{soak.turn} turns in {(time.monotonic() - began) / 60:.0f} minutes: {soak.counts}")
    if arguments.output:
        arguments.output.write_text("\n".join(table) + "\n", "utf-8")
    if arguments.samples:
        with arguments.samples.open("w", newline="") as file:
            rows: Any = csv.writer(file)
            rows.writerow([each.name for each in fields(Sample)])
            rows.writerows(map(astuple, soak.samples))
    return int(any(growth >= MOST_GROWTH for *_, growth in found))


if __name__ == "__main__":
    sys.exit(main())
