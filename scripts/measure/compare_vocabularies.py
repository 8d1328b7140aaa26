"""Compare the acceptance of drafts for one target: with its own vocabulary, and with another.

    scripts/measure/compare_vocabularies.py TARGET DRAFT OTHER...

Each draft model answers the same prompts, at temperature 0 and above, without a seed and with one.
Printed are its acceptance rate, as a share of the first one's too, that of the first tokens alone,
and the tokens per target pass.
"""

from __future__ import annotations

import argparse
from collections import Counter
from pathlib import Path

from scripts.support.demo_questions import QUESTIONS
from specchat.bench.tasks import TASKS
from specchat.engine import Engine

COUNTED = ("drafted", "accepted", "generated_tokens", "steps")
PROMPTS = (*QUESTIONS, *(prompt for task in TASKS for prompt in task.prompts))
SETTINGS = {"greedy": (0.0, None), "sampled": (0.8, None), "seeded": (0.8, 1)}


def measure(draft: Path, options: argparse.Namespace) -> dict[str, tuple[float, float, float]]:
    """Return the acceptance of all tokens and of first ones, and tokens per pass, by setting."""
    found: dict[str, tuple[float, float, float]] = {}
    with Engine.load(target=options.target, draft=draft, ctx=2048, learn=False) as engine:
        engine.prepare()
        print(f"{draft.name}: {engine.facts.common_tokens or 1.0:.4f} in common", flush=True)
        for name, (temperature, seed) in SETTINGS.items():
            counts: Counter[str] = Counter()
            for prompt in PROMPTS[: options.prompts]:
                engine.forget()
                for _ in engine.chat(
                    [{"role": "user", "content": prompt}],
                    drafter="model",
                    draft_length=options.draft_length,
                    temperature=temperature,
                    seed=seed,
                    max_tokens=options.max_tokens,
                ):
                    pass
                counts.update({name: getattr(engine.stats, name) for name in COUNTED})
                histogram = engine.stats.acceptance_histogram
                counts["first"] += sum(histogram[1:])
            rate = counts["accepted"] / counts["drafted"]
            per_pass = counts["generated_tokens"] / counts["steps"]
            found[name] = rate, counts["first"] / counts["steps"], per_pass
    return found


def main() -> None:
    """Measure each draft and print a table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("target", type=Path)
    parser.add_argument("drafts", type=Path, nargs="+")
    parser.add_argument("--draft-length", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=200)
    parser.add_argument("--prompts", type=int, default=len(PROMPTS))
    options = parser.parse_args()
    found = {str(draft): measure(draft, options) for draft in options.drafts}
    first = found[str(options.drafts[0])]
    for draft, results in found.items():
        for name, (rate, of_first, per_pass) in results.items():
            share = rate / first[name][0]
            words = f"{rate:.3f} ({share:.3f} of the first draft's), first tokens {of_first:.3f}"
            print(f"{Path(draft).name:24} {name:8} {words}, {per_pass:.2f} tokens per pass")


if __name__ == "__main__":
    main()
