"""Compare specchat with llama.cpp's own `llama-speculative-simple` on one pair.

Both run the same prompt, the same number of tokens, the same threads and draft length, in fresh
processes, interleaved by rounds so that drift of the machine affects both alike. Prints the medians
over the rounds and the ratios of the rounds. Decode rates exclude the prompt on both sides.

    python scripts/lab/make_pair.py FOLDER
    python scripts/lab/build_llama_tools.py
    python scripts/measure/compare_llama_cpp.py FOLDER --tool PATH/llama-speculative-simple
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.llama_speculative import Run, run_llama_cpp
from scripts.support.machine_line import machine_line

ROOT = Path(__file__).resolve().parents[2]
PROMPT = "Once upon a time there was a small program that wanted to be fast."
RUN_SPECCHAT = """
import json, sys, time
from specchat import Engine
target, draft, prompt, drafter, length, temperature, tokens, threads, seed = sys.argv[1:]
with Engine.load(target, draft, process=True, ctx=2048, threads=int(threads)) as engine:
    engine.prepare()
    chunks = engine.generate(
        prompt, drafter=drafter, draft_length=int(length), temperature=float(temperature),
        top_k=40, top_p=1.0, min_p=0.0, max_tokens=int(tokens), seed=int(seed), ignore_end=True,
    )
    next(chunks)
    started = time.perf_counter()
    arrived = sum(len(chunk.tokens) for chunk in chunks)
    rate = arrived / (time.perf_counter() - started)
    print(json.dumps(engine.stats.as_dict() | {"arrived_per_second": rate}))
"""


def run_specchat(options: argparse.Namespace, drafter: str, temperature: float, seed: int) -> Run:
    """Decode with specchat in a fresh process, timed by the reader of the answer."""
    words = (
        options.folder / "target.gguf", options.folder / "draft.gguf", PROMPT, drafter,
        options.draft_length, temperature, options.tokens, options.threads, seed,
    )  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", RUN_SPECCHAT, *map(str, words)],
        capture_output=True, text=True, check=True, cwd=ROOT,
    )  # fmt: skip
    stats = json.loads(done.stdout)
    overhead = stats["overhead_s"] / stats["decode_s"]
    return Run(stats["arrived_per_second"], stats["acceptance_rate"], overhead)


def compare(options: argparse.Namespace, temperature: float) -> dict[str, list[Run]]:
    """Run plain decoding, llama.cpp and specchat in every round."""
    runs: dict[str, list[Run]] = {"plain": [], "llama.cpp": [], "specchat": []}
    for seed in range(1, options.rounds + 1):
        runs["plain"].append(run_specchat(options, "none", temperature, seed))
        runs["llama.cpp"].append(run_llama_cpp(options, PROMPT, temperature, seed))
        runs["specchat"].append(run_specchat(options, "model", temperature, seed))
        rates = "  ".join(f"{name} {done[-1].tokens_per_second:.1f}" for name, done in runs.items())
        print(f"temperature {temperature}, round {seed}: {rates}", file=sys.stderr)
    return runs


def median_ratio(runs: dict[str, list[Run]], other: str) -> tuple[float, float, float]:
    """Return the median, least and greatest ratio of specchat's speed to another's, by round."""
    pairs = zip(runs["specchat"], runs[other], strict=True)
    ratios = sorted(ours.tokens_per_second / theirs.tokens_per_second for ours, theirs in pairs)
    return statistics.median(ratios), ratios[0], ratios[-1]


def row(temperature: float, runs: dict[str, list[Run]]) -> str:
    """Return one line of the table."""
    rates = [statistics.median(run.tokens_per_second for run in done) for done in runs.values()]
    accepted = [statistics.median(run.acceptance_rate for run in runs[name]) for name in runs]
    ratios = [
        "{:.2f} ({:.2f} to {:.2f})".format(*median_ratio(runs, n)) for n in ("llama.cpp", "plain")
    ]
    overhead = statistics.median(run.overhead_share for run in runs["specchat"])
    cells = [
        f"{temperature:g}", *(f"{rate:.1f}" for rate in rates),
        f"{accepted[1]:.0%} / {accepted[2]:.0%}", *ratios, f"{overhead:.1%}",
    ]  # fmt: skip
    return f"| {' | '.join(cells)} |"


def main() -> None:
    """Compare at temperature 0 and at temperature 1 with top-k 40."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a folder with target.gguf and draft.gguf")
    parser.add_argument("--tool", type=Path, required=True, help="llama-speculative-simple")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--draft-length", type=int, default=3)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all runs to this file")
    options = parser.parse_args()
    results = {temperature: compare(options, temperature) for temperature in (0.0, 1.0)}
    if options.json:
        everything = {
            str(t): {n: [asdict(run) for run in done] for n, done in runs.items()}
            for t, runs in results.items()
        }
        options.json.write_text(
            json.dumps({"machine": machine_line(), "runs": everything}), "utf-8"
        )
    print(
        f"{machine_line()}; draft length {options.draft_length}, {options.tokens} tokens,"
        f" {options.rounds} rounds, tokens per second\n\n"
        "| temperature | plain | llama.cpp | specchat | accepted (llama.cpp / specchat)"
        " | specchat / llama.cpp | specchat / plain | overhead |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |"
    )
    for temperature, runs in results.items():
        print(row(temperature, runs))


if __name__ == "__main__":
    main()
