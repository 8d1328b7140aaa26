"""Inject faults into specchat at random moments, and check what must hold after each.

    python scripts/check/inject_faults.py [--rounds 500] [--seed 1] [--output table.md]

One round in 17 runs the real chat in a terminal, one in four ends the engine's process through
the library, the rest concern the history's file. After each: stored text is still there, no process
and no temporary file is left, the next start is clean, and a message says what happened. Prints a
table, and exits with 1 if anything did not hold. Linux only.
"""

import argparse
import sys
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.faults.rounds import all_held, run, table


def main() -> int:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=500)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path)
    arguments = parser.parse_args()
    tallies = run(arguments.rounds, arguments.seed)
    print(table(tallies))
    if arguments.output:
        arguments.output.write_text(table(tallies) + "\n", "utf-8")
    return int(not all_held(tallies))


if __name__ == "__main__":
    sys.exit(main())
