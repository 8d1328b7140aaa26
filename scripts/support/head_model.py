"""A model with a prediction head and random weights, written to be measured, and its answers.

It is a trigram model in Q4_0 (scripts/support/tiny_gguf/heads.py).
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from scripts.support.tiny_gguf import write_with_head
from specchat import Engine

NUM_PROMPT = 64
WHOLE: dict[str, Any] = {"top_k": 40, "top_p": 1.0, "min_p": 0.0}


def write_pair(folder: Path, noise: float, options: argparse.Namespace) -> Path:
    """Write a model with a head; with the usual sizes it has 156 MB."""
    sizes: dict[str, Any] = {
        "vocabulary": options.vocabulary, "num_layers": options.layers, "width": options.width,
        "feed_forward": 3 * options.width, "head_width": 64,
    }  # fmt: skip
    return write_with_head(folder / "qwen35.gguf", quantisation="q4_0", noise=noise, **sizes)


def ask_specchat(
    engine: Engine, prompt: Sequence[int], drafter: str, tokens: int, **options: Any
) -> Any:
    """Return specchat's tokens per second and its share of accepted drafts."""
    engine.forget()
    options |= {"drafter": drafter, "max_tokens": tokens, "ignore_end": True}
    for _ in engine.generate(prompt, **WHOLE, **options):
        pass
    return engine.stats.tokens_per_second, engine.stats.acceptance_rate
