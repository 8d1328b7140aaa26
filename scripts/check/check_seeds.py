"""Check that a seed gives one text with any drafter and draft length, with `--exact on`.

    python scripts/check/check_seeds.py TARGET.gguf [--draft DRAFT.gguf] [--seeds 100] [--lengths 8]

Each seed's answer is decoded at several temperatures without drafts, then with the draft model,
with suffix lookup and with both, at draft lengths from 1 to 8 and paced, and compared token for
token. `--lengths N` tries N of these nine for each seed and drafter, in turn. Prints a line per
temperature; the exit code is 1 if any text differs. Needs llama.cpp as scripts/specchat builds it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from scripts.support.documentation_prompts import prompts
from specchat.bench.measurement import machine_record
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine

TEMPERATURES, DRAFTERS = (0.3, 0.8, 1.5), ("model", "suffix", "auto")
LENGTHS: tuple[int | str, ...] = (1, 2, 3, 4, 5, 6, 7, 8, "auto")
DEPTH = 40
"""Tokens of the prompt, which is given twice: suffix lookup then finds some of it."""


def main() -> int:
    """Check all seeds; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--seeds", type=int, default=100)
    parser.add_argument("--tokens", type=int, default=16)
    parser.add_argument("--lengths", type=int, default=len(LENGTHS))
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    load: dict[str, Any] = {"ctx": 1024, "threads": options.threads, "gpu_layers": 0}
    draft = options.draft or options.target
    with LocalEngine(Loading(options.target, draft, exact="on", learn=False, **load)) as engine:
        engine.prepare()
        exact = engine.facts.exact_draft
        print(f"{machine_record()}; {options.seeds} seeds; exact up to drafts of {exact}")
        (passage,) = prompts(engine, 1, [DEPTH])
        wrong = [check(engine, [*passage, *passage], each, options) for each in TEMPERATURES]
    return 1 if any(wrong) or not exact else 0


def check(
    engine: LocalEngine, prompt: Sequence[int], temperature: float, options: argparse.Namespace
) -> int:
    """Compare all texts at one temperature, print a line, and return how many differ."""
    num_texts = num_wrong = drafted = accepted = 0
    different: set[tuple[int, ...]] = set()
    for seed in range(options.seeds):
        usual = {"temperature": temperature, "seed": seed, "max_tokens": options.tokens}
        plain = tokens_of(engine, prompt, drafter="none", **usual)
        different.add(tuple(plain))
        for drafter, length in drafts(seed, options.lengths):
            found = tokens_of(engine, prompt, drafter=drafter, draft_length=length, **usual)
            num_texts += 1
            num_wrong += found != plain
            drafted += engine.stats.drafted
            accepted += engine.stats.accepted
    print(
        f"temperature {temperature}: {num_texts} drafted texts, {num_wrong} differ from plain"
        f" decoding's; {len(different)} different texts; {drafted} drafted, {accepted} accepted",
        flush=True,
    )
    return num_wrong


def drafts(seed: int, num_lengths: int) -> Iterator[tuple[str, int | str]]:
    """Yield the drafters of a seed, each with several draft lengths."""
    for number, drafter in enumerate(DRAFTERS):
        for place in range(num_lengths):
            yield drafter, LENGTHS[(seed + 3 * number + place) % len(LENGTHS)]


def tokens_of(engine: LocalEngine, prompt: Sequence[int], **options: Any) -> list[int]:
    """Decode an answer and return its tokens."""
    chunks = engine.generate(prompt, ignore_end=True, **options)
    return [token for chunk in chunks for token in chunk.tokens]


if __name__ == "__main__":
    sys.exit(main())
