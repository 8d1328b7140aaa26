"""Compare specchat with `llama-server --spec-type draft-mtp` on a model with a prediction head.

The model is written here: random weights in Q4_0, a trigram model whose head agrees as often as
`--noise` lets it (see scripts/support/tiny_gguf/heads.py). Both decode the same prompts with the
same draft length, threads and sampling, and report their own tokens per second; plain decoding,
automatic pacing and other draft lengths run beside them, in an order that changes from round to
round. Each
decodes some tokens untimed first: what ran before it has left the processor's caches full of its
own data, and a small model takes thirty passes to fill them again.
Several values of `--noise` make one model each, from a head that is nearly always right to one that
hardly ever is.

    python scripts/lab/build_llama_tools.py --tools llama-server
    python scripts/measure/compare_heads.py --tools FOLDER
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from scripts.support.counts import positive
from scripts.support.head_model import NUM_PROMPT, WHOLE, ask_specchat, write_pair
from scripts.support.llama_server import MeasuredServer, measured_server
from scripts.support.machine_line import machine_line
from specchat import Engine

WARM_UP = 32


def ask_server(
    server: MeasuredServer, prompt: Sequence[int], temperature: float, tokens: int
) -> Any:
    """Return llama-server's tokens per second and its share of accepted drafts."""
    sampling = {"temperature": temperature, "samplers": ["top_k", "temperature"], **WHOLE}
    timings = server.timings(prompt, tokens, **sampling)
    drafted = timings.get("draft_n", 0)
    return timings["predicted_per_second"], timings.get("draft_n_accepted", 0) / max(1, drafted)


def compare(options: argparse.Namespace, path: Path, temperature: float) -> None:
    """Decode in turns at one temperature, and print the medians and ratios of the rounds."""
    random = np.random.default_rng(0)
    length = options.draft_length
    shared: dict[str, Any] = {"temperature": temperature}
    fixed = {f"length {other}": other for other in options.lengths if other != length}
    arms: dict[str, list[tuple[float, float]]] = {
        name: [] for name in ("llama-server", "head", "plain", "auto", *fixed)
    }
    more = ["--spec-type", "draft-mtp", "--spec-draft-n-max", str(length)]
    load = partial(Engine.load, path, process=True, ctx=2048, threads=options.threads)
    tool = options.tools / "llama-server"
    with measured_server(tool, path, options.threads, more) as server, load() as engine:
        engine.prepare()
        for number in range(options.rounds + 1):
            prompt = [int(each) for each in random.integers(10, options.vocabulary, NUM_PROMPT)]
            ask = partial(ask_specchat, engine, prompt, **shared)
            calls = {
                "llama-server": partial(ask_server, server, prompt, temperature),
                "head": partial(ask, "head", draft_length=length),
                "plain": partial(ask, "none"),
                "auto": partial(ask, "auto"),
            } | {name: partial(ask, "head", draft_length=other) for name, other in fixed.items()}
            order = [str(name) for name in random.permutation(list(calls))]
            found = {}
            for name in order:
                calls[name](WARM_UP)
                found[name] = calls[name](options.tokens)
            for name in arms if number else ():  # the first round warms up
                arms[name].append(found[name])
    for name, runs in arms.items():
        rate, kept = (statistics.median(values) for values in zip(*runs, strict=True))
        print(f"temperature {temperature:g}, {name}: {rate:.1f} tokens/s, {kept:.0%} accepted")
    best = max(("head", *fixed), key=lambda name: statistics.median(rate for rate, _ in arms[name]))
    for ours, theirs in (("head", "llama-server"), ("auto", "plain"), ("auto", best)):
        ratios = [one[0] / other[0] for one, other in zip(arms[ours], arms[theirs], strict=True)]
        spread = f"{min(ratios):.2f} to {max(ratios):.2f}"
        print(f"temperature {temperature:g}, {ours} / {theirs}:"
              f" {statistics.median(ratios):.2f} ({spread})", flush=True)  # fmt: skip


def main() -> None:
    """Write the model, and compare at temperature 0 and 1."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tools", type=Path, required=True, help="folder of the llama.cpp tools")
    parser.add_argument("--draft-length", type=int, default=3)
    parser.add_argument("--lengths", type=int, nargs="*", default=[], help="other draft lengths")
    parser.add_argument("--noise", type=float, nargs="+", default=[0.05])
    parser.add_argument("--width", type=int, default=1024, help="of the model")
    parser.add_argument("--layers", type=int, default=16, help="of the model")
    parser.add_argument("--vocabulary", type=int, default=32_000, help="size of the model's")
    parser.add_argument("--rounds", type=positive, default=6)
    parser.add_argument("--tokens", type=int, default=96)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print(
        f"{machine_line()}; {options.threads} threads, draft length {options.draft_length}, width"
        f" {options.width}, {options.layers} layers, {options.vocabulary} tokens"
    )
    for noise in options.noise:
        print(f"noise {noise:g}")
        with tempfile.TemporaryDirectory() as folder:
            os.environ["XDG_STATE_HOME"] = folder
            path = write_pair(Path(folder), noise, options)
            for temperature in (0.0, 1.0):
                compare(options, path, temperature)


if __name__ == "__main__":
    main()
