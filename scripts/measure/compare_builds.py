"""Compare two builds of llama.cpp on one pair: speed, and texts at temperature 0.

A build is a folder of libraries, such as `llama_cpp/lib` of an unpacked wheel. Both decode the same
prompts in turns, in processes of their own, the order swapped every round. Printed is the median of
the first build's rate over the second's, round by round, and how many texts are the same. Where a
text differs, printed are the places where the tokens part: builds for other instruction sets may
round differently.

    python scripts/measure/compare_builds.py LIB LIB --target FILE --draft FILE
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import takewhile
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line

ROOT = Path(__file__).resolve().parents[2]
PROMPTS = (
    "Write a Python function that returns the prime numbers below n.",
    "Explain in a few sentences why the sky is blue.",
    "Tell a short story about a lighthouse keeper and a lost dog.",
    "List ten things to pack for a week in the mountains.",
    "Rewrite this politely: send me the report now, I have waited long enough.",
    "What is the difference between a list and a tuple?",
)
FILLER = "The river ran through the old town and under seven bridges of stone. "
MEASURES = ("prompt", "plain", "draft")


class Build:
    """One build with the pair loaded, in a process that decodes when asked."""

    def __init__(self, libraries: Path, options: argparse.Namespace, stack: ExitStack) -> None:
        """Load the pair; what is learned of it is kept in a folder of its own."""
        state = stack.enter_context(tempfile.TemporaryDirectory())
        draft = ["--draft", str(options.draft)] if options.draft else []
        self._process = subprocess.Popen(
            [
                *(sys.executable, __file__, "--serve", "--target", str(options.target), *draft),
                *("--threads", str(options.threads), "--exact", options.exact),
                *(["--cpu-time"] if options.cpu_time else []),
            ],
            env={
                **os.environ,
                "PYTHONPATH": str(ROOT),
                "XDG_STATE_HOME": state,
                "LLAMA_CPP_LIB_PATH": str(libraries.resolve()),
            },
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        stack.callback(self._process.communicate)
        self.name = self.answer({})["build"]

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Return what the process answers to a request."""
        requests, answers = self._process.stdin, self._process.stdout
        if requests is None or answers is None:
            raise RuntimeError("started without pipes")
        requests.write(json.dumps(request).encode() + b"\n")
        requests.flush()
        line = answers.readline()
        if not line:
            sys.exit("a build stopped answering; its error is above")
        answer: dict[str, Any] = json.loads(line)
        return answer


def serve(options: argparse.Namespace) -> None:
    """Decode what is asked for on standard input, a JSON object a line, and print the results."""
    from specchat import Engine
    from specchat.llama.library import build

    with Engine.load(
        options.target, options.draft, ctx=2048, threads=options.threads, exact=options.exact
    ) as engine:
        engine.prepare()
        for line in sys.stdin:
            request = json.loads(line)
            answer: dict[str, Any] = {"build": build()}
            if request:
                engine.forget()
                begun = time.process_time()
                tokens = [
                    token
                    for chunk in engine.generate(**request, temperature=0.0, ignore_end=True)
                    for token in chunk.tokens
                ]
                stats = engine.stats
                answer |= {
                    "tokens": tokens,
                    "prompt": stats.prompt_tokens / stats.prompt_s,
                    "rate": stats.tokens_per_second,
                }
                if options.cpu_time:
                    used = time.process_time() - begun
                    answer |= {"prompt": stats.prompt_tokens / used, "rate": len(tokens) / used}
            print(json.dumps(answer), flush=True)


def measure(builds: list[Build], options: argparse.Namespace) -> bool:
    """Print the table; return whether all texts are the same."""
    rates: dict[str, list[list[float]]] = {name: [[], []] for name in MEASURES}
    pairs: list[tuple[str, Sequence[int], Sequence[int]]] = []
    drafters = {"plain": "none"} | ({"draft": "auto"} if options.draft else {})
    for turn in range(options.rounds):
        order = [0, 1][:: -1 if turn % 2 else 1]
        prompt = PROMPTS[turn % len(PROMPTS)]
        for name, drafter in drafters.items():
            request = {"prompt": prompt, "drafter": drafter, "max_tokens": options.tokens}
            answers = {which: builds[which].answer(request) for which in order}
            for which, answer in answers.items():
                rates[name][which].append(answer["rate"])
            pairs.append((f"{name}, prompt {turn}", answers[0]["tokens"], answers[1]["tokens"]))
        long = {"prompt": FILLER * 60 + str(turn), "drafter": "none", "max_tokens": 2}
        for which in order:
            rates["prompt"][which].append(builds[which].answer(long)["prompt"])
    print("| measure | first, tokens/s | second, tokens/s | first / second |")
    print("| --- | --- | --- | --- |")
    for name, (first, second) in rates.items():
        if first:
            ratio = statistics.median(a / b for a, b in zip(first, second, strict=True))
            medians = f"{statistics.median(first):.1f} | {statistics.median(second):.1f}"
            print(f"| {name} | {medians} | {ratio:.3f} |")
    same = [first == second for _, first, second in pairs]
    print(f"\n{sum(same)} of {len(same)} texts of {options.tokens} tokens are the same")
    for name, one, other in pairs:
        if one != other:
            alike = (a == b for a, b in zip(one, other, strict=True))
            print(f"{name}: parts after {sum(takewhile(bool, alike))} tokens")
    return all(same)


def main() -> int:
    """Compare two builds; return 1 if a text differs."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("builds", type=Path, nargs="*", metavar="LIB", help="two folders")
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--rounds", type=positive, default=12)
    parser.add_argument("--tokens", type=positive, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--exact", choices=("on", "auto", "off"), default="auto")
    parser.add_argument(
        "--cpu-time",
        action="store_true",
        help="count the processor time of one thread, on a machine that others use, too",
    )
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.threads = 1 if options.cpu_time else options.threads  # several wait by spinning
    if options.serve:
        serve(options)
        return 0
    if len(options.builds) != 2:
        parser.error("give two folders of libraries")
    with ExitStack() as stack:
        builds = [Build(folder, options, stack) for folder in options.builds]
        print(machine_line())
        for which, build in zip(("first", "second"), builds, strict=True):
            print(f"{which}: {build.name}")
        return 0 if measure(builds, options) else 1


if __name__ == "__main__":
    sys.exit(main())
