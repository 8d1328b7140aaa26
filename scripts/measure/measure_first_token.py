"""Measure how long a new model takes to its first token, beside a plain load of a known one.

    python scripts/measure/measure_first_token.py --pair smollm2-135m [--rounds 3]

Both start an engine process and ask at once, as after F8 in the chat: "new" with an empty folder of
state and drafts, "plain" without drafts and with everything measured. Rounds are interleaved. It
prints seconds from the start of loading to the first token, and the ratio of the medians.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat import Engine
from specchat.catalogue.pairs import find_pair

QUESTION = "Name three rivers."


def main() -> None:
    """Print a row per round, and the ratio."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pair", default="smollm2-135m")
    parser.add_argument("--rounds", type=positive, default=3)
    options = parser.parse_args()
    pair = find_pair(options.pair)
    print(f"{machine_line()}; {pair.name}")
    with tempfile.TemporaryDirectory() as folder:
        known = Path(folder) / "known"
        use_state(known)
        with Engine.load(pair.target, process=True, head=False) as engine:
            engine.prepare()
        taken: dict[str, list[float]] = {"new": [], "plain": []}
        for number in range(options.rounds):
            use_state(Path(folder) / f"new {number}")
            taken["new"].append(seconds_to_first_token(pair.target, pair.draft))
            use_state(known)
            taken["plain"].append(seconds_to_first_token(pair.target, None, "none"))
            print(", ".join(f"{name} {seconds[-1]:.2f} s" for name, seconds in taken.items()))
    new, plain = (statistics.median(each) for each in taken.values())
    print(f"medians {new:.2f} s and {plain:.2f} s: {new / plain:.2f}x")


def use_state(folder: Path) -> None:
    """Keep what is learned in this folder, here and in processes started from now on."""
    os.environ["XDG_STATE_HOME"] = str(folder)


def seconds_to_first_token(target: Path, draft: Path | None, drafter: str = "auto") -> float:
    """Return the seconds from the start of loading to the first token of an answer."""
    began = time.perf_counter()
    with Engine.load(target, draft, process=True, head=drafter != "none") as engine:
        answer = engine.answer([{"role": "user", "content": QUESTION}], drafter=drafter)
        while not next(answer).tokens:
            pass
        return time.perf_counter() - began


if __name__ == "__main__":
    main()
