"""Measure several clients of `specchat serve` at once: decoded together, and in turns.

    python scripts/measure/measure_clients.py [--pair demo | --target FILE [--draft FILE]]
        [--clients 1 2 4] [--rounds 3] [--tokens 100] [--threads 2]

Two servers have the same pair, one with `--at-once` for as many answers as there are clients. Each
round asks both, one after the other, with the order swapped every time, with drafts and without.
Prints, for each number of clients, the tokens per second of all together, and the longest time
between two parts of a stream; then what a long prompt does to the streams beside it.
"""

from __future__ import annotations

import argparse
import http.client
import json
import statistics
import tempfile
import threading
import time
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from scripts.support.server_process import ServerProcess

TEXTS = (
    "Once upon a time there was a fox who",
    "The history of the city begins",
    "In the year 1912 the ship",
    "A recipe for bread needs",
    "My dear friend, I write",
    "The five largest rivers",
    "How a clock works:",
    "Rain fell on the",
)
LONG = "The quick brown fox jumps over the lazy dog, and the dog sleeps. " * 250


class Stream(NamedTuple):
    """What a client saw of a stream."""

    num_tokens: int
    first_s: float
    longest_gap: float
    text: str


def main() -> None:
    """Print a line per number of clients and way."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--clients", type=positive, nargs="+", default=[1, 2, 4])
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--tokens", type=positive, default=100)
    parser.add_argument("--threads", type=positive, default=2)
    options = parser.parse_args()
    words = ["--pair", options.pair]
    if options.target:
        words = ["--target", str(options.target)]
        words += ["--draft", str(options.draft)] if options.draft else []
    words += ["--ctx", "8192", "--threads", str(options.threads)]
    print(f"{machine_line()}; {options.target.name if options.target else options.pair}")
    print("| clients | drafts | in turns | together | ratio | longest gap in turns | together |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory(prefix="specchat-measure-") as folder:
        for count in options.clients:
            with ExitStack() as stack:
                servers = {
                    name: stack.enter_context(
                        ServerProcess(Path(folder), [*words, "--at-once", str(at_once)])
                    )
                    for name, at_once in (("turns", 1), ("together", max(2, count)))
                }
                for drafter in ("none", "auto"):
                    print(row(servers, count, drafter, options), flush=True)
                if count == options.clients[-1]:
                    for name, server in servers.items():
                        print(f"a long prompt beside {count - 1} streams, {name}: {beside(server)}")


def row(
    servers: dict[str, ServerProcess], count: int, drafter: str, options: argparse.Namespace
) -> str:
    """Return the medians of both ways for so many clients."""
    rates: dict[str, list[float]] = {name: [] for name in servers}
    gaps: dict[str, list[float]] = {name: [] for name in servers}
    for number in range(options.rounds + 1):  # the first one warms up
        for name in servers if number % 2 else reversed(servers):
            began = time.perf_counter()
            streams = at_once(servers[name].address, TEXTS[:count], options.tokens, drafter)
            seconds = time.perf_counter() - began
            if number:
                rates[name].append(sum(each.num_tokens for each in streams) / seconds)
                gaps[name].append(max(each.longest_gap for each in streams))
    ratio = statistics.median(
        one / other for one, other in zip(rates["together"], rates["turns"], strict=True)
    )
    turns, together = (statistics.median(rates[name]) for name in servers)
    waits = " | ".join(f"{statistics.median(gaps[name]):.2f} s" for name in servers)
    return f"| {count} | {drafter} | {turns:.1f} | {together:.1f} | {ratio:.2f} | {waits} |"


def beside(server: ServerProcess) -> str:
    """Return what a long prompt waits for, and the streams beside it."""
    found: list[list[Stream]] = []
    writing = threading.Thread(
        target=lambda: found.append(at_once(server.address, TEXTS[:3], 300, "none"))
    )
    writing.start()
    time.sleep(1.0)
    (long,) = at_once(server.address, (LONG,), 4, "none")
    writing.join()
    gap = max(each.longest_gap for each in found[0])
    return f"first token after {long.first_s:.2f} s, longest gap of the others {gap:.2f} s"


def at_once(address: str, texts: tuple[str, ...], tokens: int, drafter: str) -> list[Stream]:
    """Return the streams of clients that ask at the same time."""
    streams: list[Stream | None] = [None] * len(texts)

    def ask(number: int) -> None:
        streams[number] = stream_of(address, texts[number], tokens, drafter)

    threads = [threading.Thread(target=ask, args=(number,)) for number in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [each for each in streams if each]


def stream_of(address: str, text: str, tokens: int, drafter: str) -> Stream:
    """Return what a client sees of one stream."""
    body: dict[str, Any] = {
        "prompt": text, "max_tokens": tokens, "temperature": 0, "stream": True,
        "ignore_eos": True, "drafter": drafter, "stream_options": {"include_usage": True},
    }  # fmt: skip
    connection = http.client.HTTPConnection(urlsplit(address).netloc, timeout=600)
    began = latest = time.perf_counter()
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    first, longest, count, said = 0.0, 0.0, 0, ""
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        part, now = json.loads(line[6:]), time.perf_counter()
        if usage := part.get("usage"):
            count = usage["completion_tokens"]
        if any(choice["text"] for choice in part["choices"]):
            longest = max(longest, now - latest) if first else 0.0
            first = first or now - began
            latest = now
            said += "".join(choice["text"] for choice in part["choices"])
    connection.close()
    return Stream(count, first, longest, said)


if __name__ == "__main__":
    main()
