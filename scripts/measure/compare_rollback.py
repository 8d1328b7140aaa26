"""Compare native rollback of a hybrid model's memory with checkpoints and replay.

A hybrid model of random weights (alternating gated delta nets and attention, as in Qwen3.5) decodes
with a draft made of its first layers: once with native rollback (llama.cpp's `n_rs_seq`) and once
with saved states, as for models that cannot roll back. Rounds are interleaved, tokens the same, and
medians are printed. The suffix drafter runs on a prompt that repeats itself.

    python scripts/measure/compare_rollback.py
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
from pathlib import Path
from typing import Any

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from scripts.support.tiny_gguf import write_model
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama import context as contexts
from specchat.llama.rollback import Rollback

SHAPE: dict[str, Any] = {
    "vocabulary": 8000, "num_layers": 12, "width": 1024, "feed_forward": 2816, "head_width": 128,
    "state": 128, "quantisation": "q4_0", "context_length": 4096,
}  # fmt: skip
PROMPT = [300 + (7 * place) % 613 for place in range(60)] * 2


def load(target: Path, draft: Path, threads: int, *, natively: bool) -> LocalEngine:
    """Load the pair; without `natively` it only uses saved states."""
    names = vars(contexts)
    choose = names["choose_rollback"]
    if not natively:
        names["choose_rollback"] = lambda handle, *_: Rollback(handle, "checkpoint")
    try:
        engine = LocalEngine(Loading(target, draft, ctx=2048, threads=threads))
        engine.prepare()
        return engine
    finally:
        names["choose_rollback"] = choose


def rate(engine: LocalEngine, drafter: str, num_tokens: int) -> tuple[float, float]:
    """Decode one answer and return its tokens per second and acceptance rate."""
    engine.forget()
    options: dict[str, Any] = {"draft_length": 0 if drafter == "none" else 3, "temperature": 0.0}
    for _ in engine.generate(
        PROMPT, drafter=drafter, max_tokens=num_tokens, ignore_end=True, **options
    ):
        pass
    return engine.stats.tokens_per_second, engine.stats.acceptance_rate


def main() -> None:
    """Print a table with a row per drafter."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=positive, default=7)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print(f"{machine_line()}; draft length 3, {options.tokens} tokens, {options.rounds} rounds\n")
    print("| drafter | accepted | plain | checkpoints | natively | natively / checkpoints |")
    print("| --- | --- | --- | --- | --- | --- |")
    with tempfile.TemporaryDirectory() as folder:
        target = write_model(Path(folder) / "target.gguf", "qwen35", **SHAPE)
        draft = write_model(Path(folder) / "draft.gguf", "qwen35", num_kept_layers=2, **SHAPE)
        with (
            load(target, draft, options.threads, natively=True) as native,
            load(target, draft, options.threads, natively=False) as saved,
        ):
            for drafter in ("model", "suffix"):
                print(row(native, saved, drafter, options), flush=True)


def row(native: LocalEngine, saved: LocalEngine, drafter: str, options: argparse.Namespace) -> str:
    """Measure one drafter in interleaved rounds and return its row of the table."""
    rounds = [
        (
            rate(native, "none", options.tokens)[0],
            rate(saved, drafter, options.tokens)[0],
            *rate(native, drafter, options.tokens),
        )
        for _ in range(options.rounds)
    ]
    plain, checkpoints, natively, accepted = map(statistics.median, zip(*rounds, strict=True))
    gain = statistics.median(done[2] / done[1] for done in rounds)
    return (
        f"| {drafter} | {accepted:.0%} | {plain:.1f} | {checkpoints:.1f} | {natively:.1f}"
        f" | {gain:.2f} |"
    )


if __name__ == "__main__":
    main()
