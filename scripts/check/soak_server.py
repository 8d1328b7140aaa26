"""Use `specchat serve` from several clients for some time, and check that nothing in it grows.

    python scripts/check/soak_server.py [--minutes 60] [--clients 4] [--seed 1] [--pair demo]
        [--at-once 4]

Each client has three conversations that grow, are edited and begin anew, by all APIs, streamed and
whole, with all drafters; one request of six is left before its reply is whole. Prints memory (of
each process alone, USS), files and threads in tenths of the time. Exits with 1 if memory grew by
5 % or more after the first fifth, a count grew at all, or a reply was wrong. Linux only.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import astuple
from pathlib import Path

from scripts.support.server_load import (
    Failed,
    Held,
    Talk,
    clients,
    held,
    require_no_gain,
    settled,
)
from scripts.support.server_process import ServerProcess

NUM_PARTS, NUM_SAMPLES = 10, 12
MOST_GROWTH = 0.05
NO_COPIES = ("--cache-ram", "0")
"""Copies of other conversations would grow up to their limit, a share of the free memory."""


def main() -> int:
    """Use the server and print what it holds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--minutes", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--at-once", type=int, default=4)
    arguments = parser.parse_args()
    words = ("--pair", arguments.pair, "--at-once", str(arguments.at_once))
    with (
        tempfile.TemporaryDirectory(prefix="specchat-soak-") as folder,
        ServerProcess(Path(folder), (*words, *NO_COPIES)) as server,
    ):
        try:
            growth = _soak(server, arguments.minutes * 60, arguments.clients, arguments.seed)
            return int(bool(server.end_and_report() or growth >= MOST_GROWTH))
        except Failed as problem:
            print(problem, file=sys.stderr)
            return 1


def _soak(server: ServerProcess, seconds: float, num_clients: int, seed: int) -> float:
    """Let clients work; return by how much memory grew, the larger share of both processes."""
    talks = Talk()
    parts: list[Held] = []
    server.chat(max_tokens=1)  # threads begin with the first request
    before = settled(server)
    print("| minutes | server MiB | engine MiB | files | threads | connections |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |", flush=True)
    began = time.monotonic()
    with clients(server, num_clients, seed, talks.request) as crowd:
        for _ in range(NUM_PARTS):
            samples = list[Held]()
            for _ in range(NUM_SAMPLES):
                time.sleep(seconds / NUM_PARTS / NUM_SAMPLES)
                crowd.require_none_failed()
                samples.append(held(server))
            parts.append(_median(samples))
            print(_row(time.monotonic() - began, parts[-1]), flush=True)
    after = settled(server)
    print(f"requests: {dict(crowd.ended)}\n  before {before}\n  after  {after}")
    require_no_gain(before, after)
    early, late = parts[1], parts[-1]
    growths = (late.server_mib / early.server_mib - 1, late.engine_mib / early.engine_mib - 1)
    print(f"after the first fifth: server {growths[0]:+.1%}, engine {growths[1]:+.1%}")
    return max(growths)


def _median(samples: Sequence[Held]) -> Held:
    return Held(*map(statistics.median, zip(*map(astuple, samples), strict=True)))


def _row(seconds: float, part: Held) -> str:
    values = f"{part.files + part.engine_files:.0f} | {part.threads + part.engine_threads:.0f}"
    memory = f"{part.server_mib:.1f} | {part.engine_mib:.1f}"
    return f"| {seconds / 60:.1f} | {memory} | {values} | {part.connections:.0f} |"


if __name__ == "__main__":
    sys.exit(main())
