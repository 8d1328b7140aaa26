"""Compare how much coupling accepts, which seeds use, with block verification, which others use.

    python scripts/measure/compare_verifiers.py                          # the demo pair
    python scripts/measure/compare_verifiers.py TARGET.gguf DRAFT.gguf

Answers the same questions with and without a seed at one temperature, in turn, and prints the
acceptance rate and the tokens per target pass of each, at a fixed draft length and with pacing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Literal

from scripts.support.counts import positive
from scripts.support.demo_questions import QUESTIONS
from specchat import Engine
from specchat.catalogue.pairs import find_pair
from specchat.formats.chat_message import ChatMessage


def measure(
    engine: Engine, seed: int | None, length: int | Literal["auto"], options: argparse.Namespace
) -> tuple[int, int, int, int]:
    """Return tokens drafted, accepted and emitted, and target passes, of all questions."""
    sums = [0, 0, 0, 0]
    for question in QUESTIONS:
        engine.forget()
        message: ChatMessage = {"role": "user", "content": question}
        chunks = engine.chat(
            [message], drafter="model", draft_length=length, temperature=options.temperature,
            seed=seed, max_tokens=options.tokens,
        )  # fmt: skip
        for _ in chunks:
            pass
        stats = engine.stats
        counts = (stats.drafted, stats.accepted, stats.generated_tokens, stats.steps)
        sums = [known + more for known, more in zip(sums, counts, strict=True)]
    return sums[0], sums[1], sums[2], sums[3]


def main() -> None:
    """Compare at a fixed length and with pacing."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("models", type=Path, nargs="*", metavar="MODEL", help="target and draft")
    parser.add_argument("--rounds", type=positive, default=12)
    parser.add_argument("--tokens", type=int, default=80)
    parser.add_argument("--temperature", type=float, default=0.8)
    options = parser.parse_args()
    demo = find_pair("demo")
    target, draft = options.models or (demo.target, demo.draft)
    lengths: tuple[int | Literal["auto"], ...] = (3, "auto")
    print(
        "| draft length | | acceptance rate | tokens per target pass |\n| --- | --- | --- | --- |"
    )
    with Engine.load(target, draft, ctx=1024, threads=1, learn=False) as engine:
        engine.prepare()
        for length in lengths:
            found: dict[str, list[int]] = {"coupling": [0] * 4, "block verification": [0] * 4}
            for number in range(options.rounds):
                for name, sums in found.items():
                    seed = number if name == "coupling" else None
                    more = measure(engine, seed, length, options)
                    sums[:] = [known + new for known, new in zip(sums, more, strict=True)]
            for name, (drafted, accepted, emitted, steps) in found.items():
                rates = f"{accepted / drafted:.3f} | {emitted / steps:.2f}"
                print(f"| {length} | {name} | {rates} |", flush=True)


if __name__ == "__main__":
    main()
