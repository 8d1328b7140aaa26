"""Measure a stream of `specchat serve` at its client, beside the engine without a server.

    python scripts/measure/measure_server.py [--pair demo] [--rounds 5] [--tokens 200] [--threads N]

The pair is loaded twice, each time into an engine process of its own: by `specchat serve`, and by
this script, as `specchat ask` does. Both answer the same questions with the same seeds in turns,
the order swapped every time, and must give the same text. Prints the median tokens per second after
the first one, the median time to the first one, the median of the ratios, and the processor time
that the server's process takes for a token, with reading the engine's messages.
"""

from __future__ import annotations

import argparse
import http.client
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias
from urllib.parse import urlsplit

import psutil

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from scripts.support.server_process import ServerProcess
from specchat import Engine
from specchat.catalogue.pairs import find_pair

QUESTIONS = (
    "What is speculative decoding?",
    "Name three rivers and say where they begin.",
    "Write a short story about a fox and a lamp.",
    "How does a compiler read a program?",
    "List five uses of a piece of string.",
)


Ways: TypeAlias = dict[str, Callable[[dict[str, Any]], "Answer"]]


class Answer(NamedTuple):
    """An answer as its reader sees it."""

    rate: float
    """Tokens per second after the first step."""
    first_s: float
    text: str


def main() -> None:
    """Print a line per round, and the medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--pair", default="demo")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--tokens", type=positive, default=200)
    parser.add_argument("--threads", type=positive, default=os.cpu_count() or 1)
    parser.add_argument("--drafter", default="auto")
    options = parser.parse_args()
    pair = find_pair(options.pair)
    print(f"{machine_line()}; {pair.name}, {options.threads} threads, drafter {options.drafter}")
    words = ("--pair", pair.name, "--threads", str(options.threads))
    with tempfile.TemporaryDirectory(prefix="specchat-measure-") as folder:
        os.environ["XDG_STATE_HOME"] = folder
        loaded = Engine.load(pair.target, pair.draft, process=True, threads=options.threads)
        with loaded as engine:
            engine.prepare()  # so that both know the pair, and the server measures nothing
            with ServerProcess(Path(folder), words) as server:
                ways: Ways = {
                    "engine": lambda asked: of_engine(engine, asked),
                    "server": lambda asked: of_server(server.address, asked),
                }
                before = cpu_s(server)
                count = compare(ways, options.rounds, options.tokens, options.drafter)
                spent = (cpu_s(server) - before) / count
                print(f"the server's own processor time: {1000 * spent:.3f} ms a token")
                server.end()


def cpu_s(server: ServerProcess) -> float:
    """Return the processor time of the server's process, without the engine's."""
    times = psutil.Process(server.process.pid).cpu_times()
    return float(times.user + times.system)


def compare(ways: Ways, rounds: int, tokens: int, drafter: str) -> int:
    """Ask both in turns and print the medians; return how many tokens each has given.

    The first round warms up.
    """
    found: dict[str, list[Answer]] = {name: [] for name in ways}
    for number in range(rounds + 1):
        for seed, question in enumerate(QUESTIONS):
            asked = {
                "messages": [{"role": "user", "content": question}],
                "max_tokens": tokens,
                "temperature": 0.7,
                "seed": seed,
                "drafter": drafter,
            }
            order = [*ways] if (number + seed) % 2 else [*reversed(ways)]
            both = {name: ways[name](asked) for name in order}
            texts = {each.text for each in both.values()}
            if len(texts) > 1:
                print(f"other text for {question!r}: {texts}")
            if number:
                for name, answer in both.items():
                    found[name].append(answer)
        if number:
            rates = {name: median_rate(each[-len(QUESTIONS) :]) for name, each in found.items()}
            shown = ", ".join(f"{name} {rate:.1f}" for name, rate in rates.items())
            print(f"round {number}: {shown} tokens/s", flush=True)
    pairs = list(zip(found["server"], found["engine"], strict=True))
    for name, answers in found.items():
        first = statistics.median(each.first_s for each in answers)
        print(f"{name}: {median_rate(answers):.1f} tokens/s, first token {1000 * first:.1f} ms")
    print(f"ratio {statistics.median(one.rate / other.rate for one, other in pairs):.3f}")
    later = statistics.median(one.first_s - other.first_s for one, other in pairs)
    print(f"first token {1000 * later:+.1f} ms")
    return tokens * len(QUESTIONS) * (rounds + 1)


def median_rate(answers: list[Answer]) -> float:
    """Return the median tokens per second."""
    return statistics.median(each.rate for each in answers)


def of_engine(engine: Engine, asked: dict[str, Any]) -> Answer:
    """Return an answer of the engine in a process of its own."""
    began = time.perf_counter()
    first_at, count, text = 0.0, 0, ""
    for chunk in engine.chat(ignore_end=True, **asked):
        if chunk.text:
            first_at = first_at or time.perf_counter()
            text += chunk.text
        count += len(chunk.tokens)
    ended = time.perf_counter()
    return Answer((count - 1) / (ended - first_at), first_at - began, text)


def of_server(address: str, asked: dict[str, Any]) -> Answer:
    """Return an answer of the server, read from its stream as it comes."""
    body = {**asked, "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection(urlsplit(address).netloc)
    began = time.perf_counter()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/v1/chat/completions", json.dumps(body), headers)
    first_at, count, text = 0.0, 0, ""
    with connection.getresponse() as reply:
        for line in reply:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            for choice in event["choices"]:
                if part := choice["delta"].get("content"):
                    first_at = first_at or time.perf_counter()
                    text += part
            if usage := event.get("usage"):
                count = usage["completion_tokens"]
    ended = time.perf_counter()
    connection.close()
    return Answer((count - 1) / (ended - first_at), first_at - began, text)


if __name__ == "__main__":
    main()
