"""Prompts of several lengths from this repository's documentation."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from specchat.engine.local_engine import LocalEngine

DOCS = Path(__file__).resolve().parents[2] / "specchat" / "docs"
DEPTHS = (20, 500, 60, 2800, 150, 800, 300, 1300, 600, 2000)
"""Tokens in a prompt, in turn; an answer of 200 tokens to the longest reaches 3000."""


def prompts(
    engine: LocalEngine, number: int, depths: Sequence[int] = DEPTHS
) -> Iterator[Sequence[int]]:
    """Yield prompts of several depths, each from another place of the documentation."""
    pages = sorted(DOCS.glob("*.md"))
    text = "\n".join(page.read_text("utf-8") for page in pages)
    vocabulary = engine.model.vocabulary
    try:
        tokens = vocabulary.tokenize(text, add_special=False, parse_special=False)
    except Exception:  # noqa: BLE001  # a tiny model without a tokenizer
        tokens = [1 + byte % (vocabulary.size - 1) for byte in text.encode()]
    for place in range(number):
        start = place * (len(tokens) - max(depths)) // number
        yield tokens[start : start + depths[place % len(depths)]]
