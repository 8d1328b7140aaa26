"""Records the step times of first answers on a machine that runs other things: data of the tests.

Each start is that of a stranger: nothing is known of the pair yet, other programs come and go, and
one question is answered. The tests check what is said of the speedup then.
"""

import argparse
import json
import multiprocessing
import os
import random
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from specchat.catalogue.pairs import find_pair
from specchat.decoding.step_times import StepTimes
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine

QUESTION = "Tell me about prime numbers, and count to fifty."
DIGITS = 7
"""Of seconds: a tenth of a microsecond."""


def main() -> None:
    """Record some starts into a file."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--starts", type=int, default=20)
    parser.add_argument("--busy", type=int, default=os.cpu_count(), help="programs beside it")
    parser.add_argument("--max-tokens", type=int, default=300)
    parser.add_argument("--drafter", default="auto")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    starts = []
    for number in range(options.starts):
        beside = [
            context.Process(target=come_and_go, args=(number * 100 + place,), daemon=True)
            for place in range(options.busy)
        ]
        for process in beside:
            process.start()
        with context.Pool(1) as pool:
            steps = pool.apply(first_answer, (options.pair, options.max_tokens, options.drafter))
        for process in beside:
            process.kill()
        starts.append(steps)
        times = StepTimes()
        for step in steps:
            times.add(*step)
        gain = times.gain()
        print(f"{number}: {len(steps)} steps, {times.seconds:.2f} s, {gain}", file=sys.stderr)
    options.output.write_text(json.dumps(starts, separators=(",", ":")).replace("],[", "],\n["))


def come_and_go(seed: int) -> None:
    """Use a processor for a while, again and again."""
    chance = random.Random(seed)  # no secret
    while True:
        end = time.monotonic() + chance.expovariate(2.0)
        while time.monotonic() < end:
            pass
        time.sleep(chance.expovariate(2.0))


def first_answer(pair: str, max_tokens: int, drafter: str) -> list[tuple[Any, ...]]:
    """Return the arguments of `StepTimes.add` for each step of a first answer."""
    steps: list[tuple[Any, ...]] = []
    add = StepTimes.add

    def record(times: StepTimes, *step: Any) -> None:
        steps.append(tuple(round(each, DIGITS) for each in step))
        add(times, *step)

    StepTimes.add = record  # type: ignore[method-assign, assignment]
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        found = find_pair(pair)
        loading = Loading(found.target, found.draft)
        with LocalEngine(loading) as engine:
            asked = [{"role": "user", "content": QUESTION}]
            given = {"max_tokens": max_tokens, "ignore_end": True, "drafter": drafter}
            for _ in engine.chat(asked, **given):  # type: ignore[arg-type]
                pass
    return steps


if __name__ == "__main__":
    main()
