"""Compare specchat with `llama-server` and `llama-bench` of the same llama.cpp on one real model.

Three comparisons, each interleaved by rounds so that drift of the machine affects all alike:
`plain` decodes without drafts, `prompt` reads a prompt of 512 tokens, and `drafters` decodes six
editing, JSON and code tasks with suffix lookup and with llama.cpp's n-gram drafters, at their
defaults and at n 4, m 16. All decode greedily, the same prompt tokens, with the same number of
threads and flash attention as each chooses. Both report their own tokens per second, and the
reader of the answer times its arrival; both stream.

    python scripts/lab/build_llama_tools.py --tools llama-server llama-bench
    python scripts/measure/compare_llama_server.py MODEL.gguf --tools FOLDER plain prompt drafters
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.llama_server import MeasuredServer, measured_server
from scripts.support.machine_line import machine_line
from specchat import Engine

STORY = "Once upon a time there was a small program that wanted to be fast."
NUM_PROMPT = 512
GREEDY: dict[str, Any] = {"temperature": 0.0, "ignore_end": True}
SHORT = {"simple-size-n": 4, "simple-size-m": 16, "map-k-size-n": 4, "map-k-size-m": 16}
MOD = {"mod-n-match": 4, "mod-n-min": 1, "mod-n-max": 16}
NGRAMS: dict[str, list[str]] = {
    f"{name}{', n 4, m 16' if options else ''}": [
        "--spec-type",
        name,
        *(word for key, value in options.items() for word in (f"--spec-ngram-{key}", str(value))),
    ]
    for name in ("ngram-simple", "ngram-map-k", "ngram-mod")
    for options in ({}, {k: v for k, v in (SHORT | MOD).items() if k.startswith(name[6:])})
}

FUNCTION = """def read_table(path, separator=","):
    rows = []
    with open(path, encoding="utf-8") as file:
        header = file.readline().strip().split(separator)
        for line in file:
            values = line.strip().split(separator)
            rows.append(dict(zip(header, values)))
    return rows


def write_table(path, rows, separator=","):
    header = list(rows[0])
    with open(path, "w", encoding="utf-8") as file:
        file.write(separator.join(header) + "\\n")
        for row in rows:
            file.write(separator.join(str(row[name]) for name in header) + "\\n")
"""
LETTER = """Dear Ms Miller, thank you for your letter of March 3. We are sorry that your parcel is
late. It was sent on February 20 and should have reached you by February 24. We have asked the
post office where it was kept, and we will write to you as soon as we know more. Until then we
would like to offer you a voucher of ten euros for your next order. Yours, Tom Baker"""
RECORDS = json.dumps(
    [
        {"id": number, "name": name, "city": city, "active": number % 2 == 0}
        for number, (name, city) in enumerate(
            [("Ann", "Bonn"), ("Ben", "Lyon"), ("Cleo", "Rome"), ("Dan", "Oslo"), ("Eve", "Bern")]
        )
    ],
    indent=1,
)
TASKS = {
    "edit: a name": f"Repeat this letter, but change Miller to Smith:\n\n{LETTER}",
    "edit: mistakes": f"Correct the spelling, and repeat the whole text:\n\n{LETTER}".replace(
        "would like", "wuold like"
    ),
    "JSON: copy": f"Repeat this JSON, with all of its records:\n\n{RECORDS}",
    "JSON: a field": f'Add the field "age": 30 to each record of this JSON:\n\n{RECORDS}',
    "code: rename": f"Rename the variable rows to records in this code:\n\n{FUNCTION}",
    "code: comments": f"Write this code again with a docstring in each function:\n\n{FUNCTION}",
}


@dataclass(frozen=True, slots=True)
class Run:
    """One answer: the tokens per second it reports, those that arrived, and seconds of Python.

    `overhead_us` is what specchat reports outside passes and drafts, per token.
    """

    reported: float
    arrived: float
    overhead_us: float = 0.0


Contestant = Callable[[Sequence[int]], Run]
"""Answers a prompt of token ids."""


@contextmanager
def servers(
    options: argparse.Namespace, kinds: dict[str, list[str]]
) -> Iterator[dict[str, MeasuredServer]]:
    """Start a server of each kind."""
    with ExitStack() as stack:
        running = {}
        for name, more in kinds.items():
            tool = options.tools / "llama-server"
            server = measured_server(tool, options.model, options.threads, more)
            running[name] = stack.enter_context(server)
        yield running


def ask_specchat(engine: Engine, prompt: Sequence[int], num_tokens: int, drafter: str) -> Run:
    """Stream one answer of an engine that has forgotten the ones before."""
    engine.forget()
    chunks = engine.generate(prompt, drafter=drafter, max_tokens=num_tokens, **GREEDY)
    next(chunks)
    first = time.perf_counter()
    arrived = sum(len(chunk.tokens) for chunk in chunks) / (time.perf_counter() - first)
    stats = engine.stats
    return Run(stats.tokens_per_second, arrived, 1e6 * stats.overhead_s / stats.generated_tokens)


def shares(runs: dict[str, list[Run]], ours: str, theirs: str, figure: str) -> list[float]:
    """Return one contestant's speed over another's in each round."""
    pairs = zip(runs[ours], runs[theirs], strict=True)
    return [getattr(one, figure) / getattr(other, figure) for one, other in pairs]


def described(values: list[float]) -> str:
    """Return a median with the range, as text."""
    return f"{statistics.median(values):.3f} ({min(values):.3f} to {max(values):.3f})"


def compare_plain(options: argparse.Namespace, engine: Engine) -> dict[str, list[Run]]:
    """Decode one prompt without drafts in turns."""
    runs: dict[str, list[Run]] = {"llama-server": [], "specchat": []}
    with servers(options, {"llama-server": []}) as running:
        server = running["llama-server"]
        prompt = server.tokens_of(STORY)
        contestants: dict[str, Contestant] = {
            "llama-server": lambda prompt: Run(*server.rates(prompt, options.tokens)),
            "specchat": lambda prompt: ask_specchat(engine, prompt, options.tokens, "none"),
        }
        for number in range(options.rounds + 1):
            order = sorted(contestants, reverse=bool(number % 2))
            found = {name: contestants[name](prompt) for name in order}
            for name, run in found.items() if number else ():  # the first round warms up
                runs[name].append(run)
    for name, done in runs.items():
        rates = [
            statistics.median(getattr(run, each) for run in done)
            for each in ("reported", "arrived")
        ]
        print(f"plain, {name}: {rates[0]:.1f} tokens/s reported, {rates[1]:.1f} arrived")
    for figure in ("reported", "arrived"):
        share = described(shares(runs, "specchat", "llama-server", figure))
        print(f"plain, specchat / llama-server, {figure}: {share}")
    overhead = statistics.median(run.overhead_us for run in runs["specchat"])
    print(f"plain, specchat outside passes: {overhead:.0f} us a token", flush=True)
    return runs


def compare_prompt(options: argparse.Namespace, engine: Engine) -> dict[str, list[Run]]:
    """Read a prompt of NUM_PROMPT tokens in turns."""
    runs: dict[str, list[Run]] = {"llama-bench": [], "specchat": []}
    words = (
        options.tools / "llama-bench", "-m", options.model, "-p", NUM_PROMPT, "-n", 0,
        "-t", options.threads, "-r", 1, "-o", "json",
    )  # fmt: skip
    prompt = [300 + place * 37 % 20000 for place in range(NUM_PROMPT + 1)]
    for number in range(options.rounds + 1):
        done = subprocess.run(list(map(str, words)), capture_output=True, check=True)
        theirs = json.loads(done.stdout)[0]["avg_ts"]
        ask_specchat(engine, prompt, 2, "none")
        ours = NUM_PROMPT / engine.stats.prompt_s
        if number:
            runs["llama-bench"].append(Run(theirs, theirs))
            runs["specchat"].append(Run(ours, ours))
    share = described(shares(runs, "specchat", "llama-bench", "reported"))
    rates = [statistics.median(run.reported for run in done) for done in runs.values()]
    print(
        f"prompt: llama-bench {rates[0]:.0f}, specchat {rates[1]:.0f} tokens/s: {share}", flush=True
    )
    return runs


def compare_drafters(
    options: argparse.Namespace, engine: Engine
) -> dict[str, dict[str, list[Run]]]:
    """Decode each task in turns; servers restart in each round, so they remember nothing."""
    names = ["plain", "suffix", *NGRAMS]
    runs: dict[str, dict[str, list[Run]]] = {task: {n: [] for n in names} for task in TASKS}
    for number in range(options.rounds):
        with servers(options, NGRAMS) as running:
            for task, question in TASKS.items():
                prompt = next(iter(running.values())).tokens_of(question)
                for name in names if number % 2 else reversed(names):
                    drafter = {"plain": "none", "suffix": "suffix"}.get(name)
                    run = (
                        ask_specchat(engine, prompt, options.tokens, drafter)
                        if drafter
                        else Run(*running[name].rates(prompt, options.tokens))
                    )
                    runs[task][name].append(run)
    print_drafters(runs)
    return runs


def print_drafters(runs: dict[str, dict[str, list[Run]]]) -> None:
    """Print a table of the speedups over specchat's plain decoding, and the mean of each."""
    names = list(next(iter(runs.values())))[1:]
    print(f"| task | plain | {' | '.join(names)} |\n| --- |{' --- |' * (len(names) + 1)}")
    means: dict[str, list[float]] = {name: [] for name in names}
    for task, done in runs.items():
        for name in names:
            means[name].append(statistics.median(shares(done, name, "plain", "reported")))
        rate = statistics.median(run.reported for run in done["plain"])
        cells = [f"{means[name][-1]:.2f}" for name in names]
        print(f"| {task} | {rate:.0f} | {' | '.join(cells)} |")
    mean = {name: statistics.mean(means[name]) for name in names}
    print(f"| mean | | {' | '.join(f'{mean[name]:.2f}' for name in names)} |")
    best = max(names[1:], key=lambda name: mean[name])
    share, least = mean["suffix"] / mean[best], min(means["suffix"])
    print(f"suffix / {best}: {share:.2f}; suffix / plain, lowest: {least:.2f}")


def main() -> None:
    """Make the comparisons that are asked for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("model", type=Path)
    parser.add_argument("parts", nargs="+", choices=("plain", "prompt", "drafters"))
    parser.add_argument("--tools", type=Path, required=True, help="folder of the llama.cpp tools")
    parser.add_argument("--rounds", type=positive, default=10)
    parser.add_argument("--tokens", type=int, default=192)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs to this file")
    options = parser.parse_args()
    print(
        f"{machine_line()}; {options.threads} threads, {options.tokens} tokens,"
        f" {options.rounds} rounds"
    )
    compare = {"plain": compare_plain, "prompt": compare_prompt, "drafters": compare_drafters}
    results: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state  # what is known of the model is learned here
        with Engine.load(options.model, process=True, ctx=2048, threads=options.threads) as engine:
            engine.prepare()
            for part in options.parts:
                results[part] = compare[part](options, engine)
    if options.json:
        options.json.write_text(json.dumps(results, default=asdict), "utf-8")


if __name__ == "__main__":
    main()
