"""Measure the suffix drafter: lookups in a long text, editing a given text, text without repeats.

For editing, a real pair's target makes every pass, but its logits are replaced so that the answer
is the given text with a few words changed, as if a model had been asked to edit it. In text without
repeats the target writes freely. Rounds are interleaved with plain decoding; medians are printed.

    python scripts/lab/make_pair.py FOLDER
    python scripts/measure/measure_suffix.py FOLDER
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line
from specchat.decoding.ports import Rows
from specchat.drafting.suffix import SuffixAutomaton
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.llama.context import Context

EDITING = ((40, 1), (40, 5), (100, 1))
"""One token in N is changed, in phrases of M: single words all over, a thorough revision, and the
correction of a few mistakes."""


class Script:
    """Makes a context write a given text: the passes are real, the logits are not."""

    def __init__(self, context: Context) -> None:
        """Replace the context's `evaluate`."""
        self.text: Sequence[int] = ()
        self._context = context
        self._evaluate = context.evaluate
        context.evaluate = self._scripted  # type: ignore[method-assign]

    def _scripted(self, tokens: Sequence[int], num_rows: int) -> Rows:
        rows = self._evaluate(tokens, num_rows)
        length = self._context.length
        for place in range(num_rows if self.text else 0):
            wanted = length - num_rows + 1 + place
            if wanted < len(self.text):
                rows[place][self.text[wanted]] = 1e4
        return rows


def lookup_microseconds(num_tokens: int) -> tuple[float, float]:
    """Return microseconds per appended token and per lookup in a text of `num_tokens` tokens."""
    random = np.random.default_rng(0)
    words = [random.integers(0, 3000, 12).tolist() for _ in range(400)]
    text = [token for place in random.integers(0, 400, num_tokens // 12) for token in words[place]]
    automaton = SuffixAutomaton()
    started = time.perf_counter()
    for token in text:
        automaton.append(token)
    appending = (time.perf_counter() - started) / len(text)
    looking = 0.0
    for token in text[:2000]:
        automaton.append(token)
        started = time.perf_counter()
        automaton.continuation(32)
        looking += time.perf_counter() - started
    return 1e6 * appending, 1e6 * looking / 2000


def edited(text: Sequence[int], every: int, phrase: int, seed: int) -> list[int]:
    """Return a text with one token in `every` changed, in phrases at random places."""
    random = np.random.default_rng([seed, 1])
    begins = random.random(len(text)) < 1.0 / (every * phrase)
    is_changed = np.convolve(begins, np.ones(phrase))[: len(text)] > 0
    others = random.integers(300, 8000, len(text))
    return [int(token) for token in np.where(is_changed, others, text)]


def speedups(
    engine: LocalEngine, script: Script, rounds: int, editing: tuple[int, int] | None
) -> tuple[float, list[float]]:
    """Return the tokens per target pass and the speedup of suffix lookup in each round.

    Without `editing` the target writes freely.
    """
    ratios: list[float] = []
    steps: list[float] = []
    for number in range(rounds):
        random = np.random.default_rng(number)
        given = random.integers(300, 8000, 600).tolist()
        prompt = [*given, 299]
        script.text = [*prompt, *edited(given, *editing, number)] if editing else ()
        rates = {}
        for drafter in ("none", "suffix") if number % 2 else ("suffix", "none"):
            engine.forget()
            for _ in engine.generate(
                prompt, drafter=drafter, temperature=0.0, max_tokens=500, ignore_end=True
            ):
                pass
            rates[drafter] = engine.stats.tokens_per_second
            if drafter == "suffix":
                steps.append(engine.stats.tokens_per_step)
        ratios.append(rates["suffix"] / rates["none"])
    return statistics.median(steps), ratios


def main() -> None:
    """Print a line for each kind of text."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("folder", type=Path, help="a pair made by make_pair.py")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print(machine_line())
    appending, looking = lookup_microseconds(100_000)
    print(f"100 000 tokens: {appending:.1f} us to append a token, {looking:.1f} us per lookup")
    target = options.folder / "target.gguf"
    with LocalEngine(Loading(target, ctx=4096, threads=options.threads)) as engine:
        engine.prepare()
        script = Script(engine.context)
        for editing in (*EDITING, None):
            name = "text without repeats"
            if editing:
                name = f"one token in {editing[0]} edited, {editing[1]} at a time"
            steps, ratios = speedups(engine, script, options.rounds, editing)
            print(
                f"{name}: speedup {statistics.median(ratios):.3f}"
                f" ({min(ratios):.3f} to {max(ratios):.3f}), {steps:.2f} tokens per target pass",
                flush=True,
            )


if __name__ == "__main__":
    main()
