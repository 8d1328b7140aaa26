"""Measure several clients at once: specchat's answers in turns and together, and llama-server's.

    python scripts/measure/measure_clients.py [--pair demo | --target FILE [--draft FILE]]
        [--llama-server FILE] [--clients 1 2 4] [--rounds 3] [--tokens 100] [--prompt 900]
        [--long 4000] [--threads 2]

Two servers of specchat have the same pair, one with `--at-once` for as many answers as there are
clients. With --llama-server one more has as many slots, and with --draft another that drafts with
it, for the rows with drafts; without --draft these rows show the plain one again. Each round asks
all servers, one after the other, with the order swapped every time. Each client's prompt is another
part of the documentation, --prompt tokens long, and ends otherwise in every round, so that no
answer was given before; a round before the first has the servers read it. (In an empty context
llama-server gains by its flash attention, after a long prompt it loses.) Prints, for each number of
clients, the tokens per second of all together, their ratios round by round, and the longest time
between two parts of a stream; then what a prompt of --long tokens waits for that arrives while
three others write, and what these wait for. A server starts once the one before it has measured its
passes, and then waits idle.
"""

from __future__ import annotations

import argparse
import http.client
import json
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import psutil

from scripts.support.counts import positive
from scripts.support.documentation_prompts import DOCS
from scripts.support.llama_server import ask, running_server
from scripts.support.machine_line import machine_line
from scripts.support.server_process import ServerProcess

MOST_CLIENTS = 8
BEGINNINGS = ("How", "When", "Where", "Why", "What")
CHARACTERS = 3.5
"""Of a token of the documentation, roughly."""
SENTENCE = "The quick brown fox jumps over the lazy dog, and the dog sleeps. "
WRITERS = 3
"""The clients that write while a long prompt arrives."""
WRITTEN = 400
"""The tokens that each of them writes."""
CONTEXT = 8192
SECONDS_TO_MEASURE = 4
"""After so long an idle server has begun to measure its passes."""
IDLE_SHARE = 0.1
"""A server that takes less of a second of one core is idle."""

Runs = dict[str, list[list["Stream"]]]
"""The streams of each server, round by round."""


class Stream(NamedTuple):
    """What a client saw of a stream."""

    num_prompt: int
    num_tokens: int
    first_s: float
    longest_gap: float
    seconds: float


def main() -> None:
    """Print a line per number of clients and way of drafting, then one per server."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--llama-server", type=Path, metavar="FILE", help="the program, to compare")
    parser.add_argument("--clients", type=positive, nargs="*", default=[1, 2, 4])
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--tokens", type=positive, default=100)
    parser.add_argument("--prompt", type=positive, default=900, help="tokens before the answers")
    parser.add_argument("--long", type=int, default=4000, help="tokens of the long prompt, 0: none")
    parser.add_argument("--threads", type=positive, default=2)
    options = parser.parse_args()
    if options.llama_server and not options.target:
        parser.error("--llama-server needs --target")
    if max(options.clients, default=0) > MOST_CLIENTS:
        parser.error(f"at most {MOST_CLIENTS} clients")
    print(f"{machine_line()}; {options.target.name if options.target else options.pair}")
    with tempfile.TemporaryDirectory(prefix="specchat-measure-") as state:
        if options.clients:
            names = ["in turns", "together", *(["llama-server"] if options.llama_server else [])]
            cells = [*names, *(f"together / {name}" for name in names if name != "together")]
            cells += [f"longest gap {name}" for name in names]
            print(f"| clients | drafts | {' | '.join(cells)} |")
            print("| --- " * (len(cells) + 2) + "|", flush=True)
        for count in options.clients:
            with servers(Path(state), options, count) as addresses:
                for drafter in ("none", "auto"):
                    print(row(addresses[drafter], count, drafter, options), flush=True)
        if options.long:
            with servers(Path(state), options, WRITERS + 1) as addresses:
                print_beside(addresses["none"], options)


@contextmanager
def servers(
    state: Path, options: argparse.Namespace, count: int
) -> Iterator[dict[str, dict[str, str]]]:
    """Start the servers for so many clients; yield their addresses, without drafts and with."""
    words = ["--target", str(options.target)] if options.target else ["--pair", options.pair]
    words += ["--draft", str(options.draft)] if options.draft else []
    words += ["--ctx", str(CONTEXT), "--threads", str(options.threads)]
    with ExitStack() as stack:
        own = dict[str, str]()
        for name, at_once in (("in turns", 1), ("together", max(2, count))):
            server = ServerProcess(state, [*words, "--at-once", str(at_once)])
            own[name] = stack.enter_context(server).address
            wait_until_measured(server)
        both = {"none": dict(own), "auto": own}
        threads = str(options.threads)
        slots = ["-np", str(count), "-c", str(CONTEXT * count), "-t", threads, "-tb", threads]
        if options.llama_server:
            llama = running_server(options.llama_server, options.target, *slots)
            both["none"]["llama-server"] = stack.enter_context(llama)
            if options.draft:
                slots += ["-md", str(options.draft), "--spec-type", "draft-simple"]
                llama = running_server(options.llama_server, options.target, *slots)
                both["auto"]["llama-server"] = stack.enter_context(llama)
            else:
                both["auto"] = both["none"]
        yield both


def wait_until_measured(server: ServerProcess) -> None:
    """Wait until a server that nothing is asked of needs no time of the processor."""
    time.sleep(SECONDS_TO_MEASURE)
    before = -1.0
    while (now := processor_seconds(server)) - before > IDLE_SHARE:
        before = now
        time.sleep(1.0)


def processor_seconds(server: ServerProcess) -> float:
    """Return the processor time that a server and its processes have taken."""
    parent = psutil.Process(server.process.pid)
    times = [each.cpu_times() for each in (parent, *parent.children(recursive=True))]
    return sum(each.user + each.system for each in times)


def row(addresses: dict[str, str], count: int, drafter: str, options: argparse.Namespace) -> str:
    """Return the medians of all servers for so many clients."""
    runs: Runs = {name: [] for name in addresses}
    for number in range(options.rounds + 1):  # the first one warms up
        for name in addresses if number % 2 else reversed(addresses):
            streams = at_once(
                addresses[name], texts(count, options.prompt, number), options.tokens, drafter
            )
            if number:
                runs[name].append(streams)
    rates = {name: [rate(streams) for streams in done] for name, done in runs.items()}
    cells = [f"{median(each):.1f}" for each in rates.values()]
    for name in [each for each in rates if each != "together"]:
        ratios = [one / other for one, other in zip(rates["together"], rates[name], strict=True)]
        cells.append(f"{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})")
    cells += [f"{median(map(longest_gap, done)):.2f} s" for done in runs.values()]
    return f"| {count} | {drafter} | {' | '.join(cells)} |"


def texts(count: int, num_tokens: int, number: int) -> tuple[str, ...]:
    """Return so many parts of the documentation of roughly so many tokens, for a round."""
    pages = "\n".join(page.read_text("utf-8") for page in sorted(DOCS.glob("*.md")))
    length = int(num_tokens * CHARACTERS)
    if len(pages) < MOST_CLIENTS * length:
        sys.exit(f"the documentation has no {MOST_CLIENTS} parts of {num_tokens} tokens")
    parts = [pages[client * length : (client + 1) * length] for client in range(count)]
    return tuple(
        f"{part}\n\n## {number + 1}. {BEGINNINGS[number % len(BEGINNINGS)]}" for part in parts
    )


def rate(streams: list[Stream]) -> float:
    """Return the tokens per second of streams that began together."""
    return sum(each.num_tokens for each in streams) / max(each.seconds for each in streams)


def longest_gap(streams: list[Stream]) -> float:
    """Return the longest time between two parts of a stream."""
    return max(each.longest_gap for each in streams)


def print_beside(addresses: dict[str, str], options: argparse.Namespace) -> None:
    """Print what a long prompt waits for, and the streams beside it."""
    firsts: dict[str, list[float]] = {name: [] for name in addresses}
    gaps: dict[str, list[float]] = {name: [] for name in addresses}
    alone: dict[str, list[float]] = {name: [] for name in addresses}
    found = ask(next(iter(addresses.values())), "tokenize", content=SENTENCE * 100)
    repeated, num_prompt = options.long * 100 // len(found["tokens"]), 0
    for number in range(options.rounds):
        for name in addresses if number % 2 else reversed(addresses):
            written_on = texts(WRITERS, options.prompt, number)
            writing = at_once(addresses[name], written_on, WRITTEN, "none")
            alone[name].append(longest_gap(writing))
            begun: list[Stream] = []
            writers = threading.Thread(
                target=lambda address, texts, found: found.extend(
                    at_once(address, texts, WRITTEN, "none")
                ),
                args=(addresses[name], written_on, begun),
            )
            writers.start()
            time.sleep(1.0)
            text = f"Part {number}. {SENTENCE * repeated}"  # none that was read before
            (long,) = at_once(addresses[name], (text,), 4, "none")
            writers.join()
            firsts[name].append(long.first_s)
            gaps[name].append(longest_gap(begun))
            num_prompt = long.num_prompt
    print(f"\na prompt of {num_prompt} tokens beside {WRITERS} streams, medians:")
    print("| server | its first token | longest gap of the streams | without the prompt |")
    print("| --- | --- | --- | --- |")
    for name in addresses:
        cells = [f"{median(each[name]):.2f} s" for each in (firsts, gaps, alone)]
        print(f"| {name} | {' | '.join(cells)} |")


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
    first, longest, num_prompt, count = 0.0, 0.0, 0, 0
    for line in connection.getresponse():
        if not line.startswith(b"data: {"):
            continue
        part, now = json.loads(line[6:]), time.perf_counter()
        if usage := part.get("usage"):
            num_prompt, count = usage["prompt_tokens"], usage["completion_tokens"]
        if any(choice["text"] for choice in part["choices"]):
            longest = max(longest, now - latest) if first else 0.0
            first = first or now - began
            latest = now
    connection.close()
    return Stream(num_prompt, count, first, longest, latest - began)


if __name__ == "__main__":
    main()
