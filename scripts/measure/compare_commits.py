"""Compare this checkout's speed with another checkout's, in one interleaved run.

Of `auto`, or of a fixed draft length.

Each folder holds a pair made by `make_pair.py`. Both checkouts load each pair into processes of
their own and decode the same prompts in turns, the order swapped every round; both start without
any knowledge of the pair. Decode rates exclude the prompt. The result is the median of this
checkout's rate over the other's, round by round, for every pair and temperature.

    git worktree add ../before COMMIT
    python scripts/measure/compare_commits.py ../before FOLDER...
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self

ROOT = Path(__file__).resolve().parents[2]

PROMPTS = (
    "Once upon a time there was a small program that wanted to be fast.",
    "The river ran through the old town and under seven bridges of stone.",
    "In the first chapter the reader learns how the engine is put together.",
    "A list of things to take along begins with water, bread and a map.",
    "Three letters arrived on the same morning, and none of them was signed.",
)


class Contestant:
    """One checkout with one pair loaded, in a process that decodes when asked."""

    def __init__(self, checkout: Path, folder: Path, threads: int) -> None:
        """Load the pair; what is learned of it is kept in a folder of its own."""
        self._state = tempfile.TemporaryDirectory()
        environment = {
            **os.environ,
            "PYTHONPATH": str(checkout.resolve()),
            "XDG_STATE_HOME": self._state.name,
        }
        self._process = subprocess.Popen(
            [sys.executable, __file__, "--serve", str(folder), "--threads", str(threads)],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def rate(self, request: dict[str, Any]) -> float:
        """Return the tokens per second of one answer."""
        requests, rates = self._process.stdin, self._process.stdout
        if requests is None or rates is None:
            raise RuntimeError("started without pipes")
        requests.write(json.dumps(request).encode() + b"\n")
        requests.flush()
        line = rates.readline()
        if not line:
            sys.exit("a checkout stopped answering; its error is above")
        return float(line)

    def __enter__(self) -> Self:
        """Use it in a with statement."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End its process."""
        self._process.communicate()
        self._state.cleanup()


def serve(folder: Path, threads: int) -> None:
    """Decode what is asked for on standard input, a JSON object a line, and print the rates."""
    from specchat import Engine

    target, draft = folder / "target.gguf", folder / "draft.gguf"
    with Engine.load(target, draft, process=True, ctx=1024, threads=threads) as engine:
        if hasattr(engine, "prepare"):  # the other checkout may be older
            engine.prepare()
        for line in sys.stdin:
            request = json.loads(line)
            engine.forget()
            chunks = engine.generate(
                request["prompt"], drafter=request["drafter"], max_tokens=request["tokens"],
                temperature=request["temperature"], top_k=40, top_p=1.0, min_p=0.0,
                draft_length=request["draft_length"], ignore_end=True,
            )  # fmt: skip
            for _ in chunks:
                pass
            print(engine.stats.tokens_per_second, flush=True)


def draft_length(text: str) -> int | Literal["auto"]:
    """Return a draft length as Engine.generate takes it."""
    return "auto" if text == "auto" else int(text)


def compare(folder: Path, temperature: float, options: argparse.Namespace) -> dict[str, Any]:
    """Return one pair's ratios at one temperature, round by round."""
    speeds: dict[str, list[float]] = {"here": [], "other": [], "plain": []}
    with ExitStack() as stack:
        here = stack.enter_context(Contestant(ROOT, folder, options.threads))
        other = stack.enter_context(Contestant(options.other, folder, options.threads))
        for turn in range(options.rounds):
            request = {
                "prompt": PROMPTS[turn % len(PROMPTS)],
                "drafter": "auto",
                "tokens": options.tokens,
                "temperature": temperature,
                "draft_length": options.draft_length,
            }
            order = [("here", here), ("other", other)][:: -1 if turn % 2 else 1]
            for name, contestant in order:
                speeds[name].append(contestant.rate(request))
            speeds["plain"].append(here.rate(request | {"drafter": "none"}))
    return {"folder": folder.name, "temperature": temperature, **speeds}


def ratio(cell: dict[str, Any], one: str, other: str) -> float:
    """Return the median of one speed over another, round by round."""
    pairs = zip(cell[one], cell[other], strict=True)
    return float(statistics.median(first / second for first, second in pairs))


def main() -> None:
    """Compare all pairs at all temperatures, printing each as it is done."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("other", type=Path, nargs="?", help="the other checkout")
    parser.add_argument("folders", type=Path, nargs="*", help="pairs made by make_pair.py")
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--temperature", type=float, nargs="+", default=[0.0, 1.0])
    parser.add_argument("--draft-length", type=draft_length, default="auto")
    parser.add_argument("--serve", type=Path, metavar="FOLDER", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.serve, options.threads)
        return
    if not options.folders:
        parser.error("give the other checkout and at least one pair")
    if options.rounds < 1:
        parser.error("--rounds: at least 1 is needed")
    print("| pair | temperature | here / other | here / plain |\n| --- | --- | --- | --- |")
    ratios = []
    for folder in options.folders:
        for temperature in options.temperature:
            cell = compare(folder, temperature, options)
            ratios.append(ratio(cell, "here", "other"))
            print(
                f"| {cell['folder']} | {temperature:g} | {ratios[-1]:.3f}"
                f" | {ratio(cell, 'here', 'plain'):.3f} |",
                flush=True,
            )
    print(f"\nhere / other: {statistics.mean(ratios):.3f} on average, {min(ratios):.3f} at least")


if __name__ == "__main__":
    main()
