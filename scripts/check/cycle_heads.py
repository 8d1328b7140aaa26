"""Close, switch and crash engines with prediction heads, and check that nothing is left behind.

    python scripts/check/cycle_heads.py [--rounds 200]

Every round switches to another pair as the chat does, in an engine process of its own: while an
answer is written or after it, or after the process was killed in it. Tiny models with heads in the
target's file and in their own are written for it. After each round only one engine is left, and at
the end none; the answers stay the same, and this process has gained no file, thread or memory.
Prints a table and exits with 1 if anything did not hold. Linux only.
"""

import argparse
import sys
import tempfile
from pathlib import Path

from scripts.support.chat_terminal import Failed
from scripts.support.counts import positive
from scripts.support.head_cycles import run


def main() -> int:
    """Run all rounds and print how they ended."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=positive, default=200)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="specchat-heads-") as folder:
        try:
            for way, count in run(arguments.rounds, Path(folder)).items():
                print(f"{count:5} {way}")
        except Failed as problem:
            print(problem, file=sys.stderr)
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
