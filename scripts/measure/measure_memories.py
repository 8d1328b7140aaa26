"""Measure texts that take turns and texts on disk: what is read again, and what that takes.

Two conversations with long prompts alternate, with and without memory for texts set aside; then a
long conversation is reopened in a new engine, from disk and read again.

    python scripts/measure/measure_memories.py TARGET [--draft DRAFT]
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat.chat.memory_folder import memory_folder
from specchat.engine import Loading
from specchat.engine.local_engine import LocalEngine

ROUNDS = 10
GREEDY = {"temperature": 0.0, "max_tokens": 8, "ignore_end": True, "drafter": "none"}


def text_of(engine: LocalEngine, num_tokens: int, salt: int) -> list[int]:
    """Return a text of plain words as tokens."""
    words = " ".join(f"{salt + place} bottles" for place in range(num_tokens))
    return engine.tokenize(words)[:num_tokens]


def answered(engine: LocalEngine, prompt: list[int]) -> list[int]:
    """Continue a text by a few tokens."""
    steps = engine.generate(prompt, **GREEDY)  # type: ignore[arg-type]
    return [token for step in steps for token in step.tokens]


def take_turns(loading: Loading, num_tokens: int) -> None:
    """Alternate two conversations, and print what was read of their prompts."""
    with LocalEngine(loading) as engine:
        prompts = [text_of(engine, num_tokens, salt) for salt in (1, 100_000)]
        first, later, num_read = 0.0, 0.0, 0
        for number in range(2 * ROUNDS):
            prompt = prompts[number % 2]
            answer = answered(engine, prompt)
            num_read += engine.stats.prompt_tokens - engine.stats.cached_tokens
            if number < 2:
                first += engine.stats.prompt_s / 2
            else:
                later += engine.stats.prompt_s / (2 * ROUNDS - 2)
            prompt += [*answer, *engine.tokenize(" And then?", begins=False)]
        kept = f"{engine.parked.num_bytes / 2**20:.0f} MiB set aside"
    how = "with" if loading.cache_ram != 0 else "without"
    print(
        f"{how} texts set aside: {num_read} prompt tokens read in {ROUNDS} rounds of two;"
        f" {first:.2f} s for the first reading, {1000 * later:.0f} ms for each later one; {kept}"
    )


def reopen(loading: Loading, num_tokens: int) -> None:
    """Reopen a long text in a new engine, and print what that takes."""
    with LocalEngine(loading) as engine:
        prompt = text_of(engine, num_tokens, 7)
        answered(engine, prompt)
        took = engine.stats.prompt_s
        began = time.perf_counter()
        engine.keep()
        wrote = time.perf_counter() - began
    size = sum(each.stat().st_size for each in memory_folder().glob("*.memory"))
    with LocalEngine(loading) as engine:
        answered(engine, [*prompt, *prompt[5:9]])
        print(
            f"a text of {num_tokens} tokens: read in {took:.2f} s; written in {wrote:.2f} s as"
            f" {size / 2**20:.0f} MiB; reopened in {engine.stats.prompt_s:.2f} s, with"
            f" {engine.stats.cached_tokens} of {engine.stats.prompt_tokens} tokens not read again"
        )


def main() -> None:
    """Measure one target."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--tokens", type=positive, default=4000)
    given = parser.parse_args()
    print(machine_line())
    ctx = 2 * given.tokens + 256
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_CACHE_HOME"] = folder
        for limit in (None, 0):
            take_turns(Loading(given.target, given.draft, ctx=ctx, cache_ram=limit), given.tokens)
        reopen(Loading(given.target, given.draft, ctx=ctx, cache_disk=4096), 2 * given.tokens)


if __name__ == "__main__":
    main()
