"""Check that `--exact on` decodes the text and the logits of plain decoding, on many prompts.

    python scripts/check/check_exactness.py TARGET.gguf [--draft DRAFT.gguf] [--types Q4_0 Q6_K ...]

Prompts are this repository's documentation, cut at several depths; models without a tokenizer of
words get its bytes. Each answer is decoded with and without drafts, with the draft model and suffix
lookup and with suffix lookup alone, and its logits are compared bit for bit (`specchat check` does
the same with four short prompts). Prints a line per type of weights and drafter; the exit code is 1
if anything differs. Needs llama.cpp as scripts/specchat builds it for exact drafts to be long.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

from scripts.support.documentation_prompts import prompts
from scripts.support.quantised_model import quantised
from specchat.bench.measurement import machine_record
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import CheckedSampling, check_prompt

CTX = 3400
LENGTHS = (32, 3, 8, 16, 5)
"""Draft lengths, in turn, as far as they are exact."""


def main() -> int:
    """Check each type and drafter; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("target", type=Path)
    parser.add_argument("--draft", type=Path)
    parser.add_argument("--types", nargs="*", default=[], metavar="TYPE")
    parser.add_argument("--drafters", nargs="*", choices=("model", "suffix"))
    parser.add_argument("--prompts", type=int, default=20)
    parser.add_argument("--tokens", type=int, default=200)
    parser.add_argument("--temperature", type=float, default=0.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    print(f"{machine_record()}; {options.prompts} prompts of {options.tokens} tokens")
    are_exact: list[bool] = []
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_STATE_HOME"] = folder
        for name in options.types or [""]:
            path = quantised(options.target, name, Path(folder)) if name else options.target
            drafters = options.drafters or ("model", "suffix")
            are_exact += [is_exact(path, drafter, options) for drafter in drafters]
    return 0 if all(are_exact) else 1


def is_exact(target: Path, drafter: str, options: argparse.Namespace) -> bool:
    """Check all prompts with one drafter, print a line, and return whether nothing differs."""
    draft = (options.draft or target) if drafter == "model" else None
    loading = Loading(target, draft, ctx=CTX, threads=options.threads, gpu_layers=0, exact="on")
    sampling = CheckedSampling(options.temperature, options.seed)
    parted = inexact = drafted = checked = 0
    rates: list[float] = []
    with LocalEngine(loading) as engine:
        engine.prepare()
        longest = engine.facts.exact_draft or 0
        for number, tokens in enumerate(prompts(engine, options.prompts) if longest else ()):
            length = min(LENGTHS[number % len(LENGTHS)], longest)
            found = check_prompt(engine, "", tokens, options.tokens, length, sampling)
            checked += found.num_tokens
            parted += found.parted_at is not None
            inexact += found.num_inexact
            drafted += found.drafted
            if found.drafted:
                rates.append(found.acceptance_rate)
            differs = found.parted_at is not None or found.num_inexact > 0
            print(f"{number + 1}: {'differs' if differs else 'identical'}", file=sys.stderr)
    mean = sum(rates) / len(rates) if rates else 0.0
    print(
        f"{target.stem} with {drafter} drafts: exact up to {longest}; {checked} tokens,"
        f" {drafted} drafted, {mean:.0%} accepted; {parted} of {options.prompts} texts differ,"
        f" {inexact} rows of logits differ",
        flush=True,
    )
    return bool(longest and drafted and not parted and not inexact)


if __name__ == "__main__":
    sys.exit(main())
