"""Measure decoding with long and short thread waits beside a program that wants a processor.

The other program works for some milliseconds and sleeps for others, in turn, or never sleeps. The
model has random weights and a prediction head, 70 MB in all; it is decoded greedily with drafts of
three tokens and plainly, with both waits in an order that changes from round to round. Printed are
median tokens per second, and how many processors other programs used meanwhile: what
specchat/llama/thread_waits.py goes by. Where the environment says how threads wait, only that is
measured.

    python scripts/measure/measure_thread_waits.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections import defaultdict
from contextlib import closing
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any
from unittest.mock import patch

import numpy as np

from scripts.support.counts import positive
from scripts.support.head_model import NUM_PROMPT, ask_specchat, write_pair
from scripts.support.machine_line import machine_line
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama.thread_waits import ThreadWaits
from specchat.planning.host_resources import affinity, seconds_of_others

VOCABULARY = 16_000
OTHERS = {(0, 1000): "never", (5, 20): "20 %", (10, 10): "50 %", (100, 100): "50 %",
          (20, 5): "80 %", (1, 0): "always"}  # fmt: skip
"""Milliseconds of work and of sleep of the other program."""
PROGRAM = """
import sys, time
work, sleep = (float(each) / 1000 for each in sys.argv[1:])
while True:
    until = time.perf_counter() + work
    while time.perf_counter() < until:
        pass
    if sleep:
        time.sleep(sleep)
"""


def measure(engine: LocalEngine, options: argparse.Namespace) -> dict[str, list[Any]]:
    """Return tokens per second and the processors others used, of each round by kind of waits."""
    random, found = np.random.default_rng(0), defaultdict[str, list[Any]](list)
    processors = affinity()
    is_set = not os.environ.keys().isdisjoint({"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
    kinds = ["as set"] if is_set else ["long", "short"]
    for _ in range(options.rounds):
        prompt = [int(each) for each in random.integers(10, VOCABULARY, NUM_PROMPT)]
        ask = partial(ask_specchat, engine, prompt, tokens=options.tokens, temperature=0.0)
        for kind in map(str, random.permutation(kinds)):
            with closing(ThreadWaits(options.threads)) as waits:
                if kind == "short":
                    waits.shorten()
                for name, drafter in (("drafts", "head"), ("plain", "none")):
                    began, used = perf_counter(), seconds_of_others(processors)
                    rate, _ = ask(drafter, draft_length=3)
                    used = (seconds_of_others(processors) - used) / (perf_counter() - began)
                    found[f"{kind}, {name}"].append((rate, used))
    return found


def main() -> None:
    """Measure beside each program in turn."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=len(affinity()))
    options = parser.parse_args()
    options.width, options.layers, options.vocabulary = 1024, 8, VOCABULARY
    print(f"{machine_line()}; {options.threads} threads")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        path = write_pair(Path(folder), 0.05, options)
        loading = Loading(target=path, ctx=2048, threads=options.threads)
        with LocalEngine(loading) as engine, patch.object(ThreadWaits, "follow", lambda _: None):
            engine.prepare()
            for (work, sleep), share in OTHERS.items():
                program = [sys.executable, "-c", PROGRAM, str(work), str(sleep)]
                with subprocess.Popen(program) as other:
                    try:
                        found = measure(engine, options)
                    finally:
                        other.kill()
                for name, runs in sorted(found.items()):
                    rate, used = (statistics.median(each) for each in zip(*runs, strict=True))
                    print(f"another program {share} ({work} ms, then {sleep} asleep), {name}:"
                          f" {rate:.0f} tokens/s, others used {used:.2f}", flush=True)  # fmt: skip


if __name__ == "__main__":
    main()
