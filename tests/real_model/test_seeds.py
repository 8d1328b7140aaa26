"""Seeds on a real model: with exact passes, one text for each, whatever drafts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specchat.engine import pair_pacing
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.formats.chat_message import ChatMessage
from specchat.passes import exactness_measurement

pytestmark = pytest.mark.slow

LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, "auto")
QUESTION: list[ChatMessage] = [
    {"role": "user", "content": "Repeat: the fox ran over the hill, the fox ran over the hill, the"}
]


@pytest.fixture(scope="module")
def exact_pair(smollm2: Path) -> Iterator[LocalEngine]:
    """The model as its own draft model, compared at length; what passes cost is of no interest."""
    loading = Loading(smollm2, smollm2, ctx=512, threads=2, exact="on", learn=False, gpu_layers=0)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(pair_pacing, "MOST_SECONDS", 0.1)
        patched.setattr(exactness_measurement, "MOST_SECONDS_OF_COSTS", 0.0)
        loaded = LocalEngine(loading)
    with loaded:
        yield loaded


@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.5])
def test_a_seed_has_one_text(exact_pair: LocalEngine, temperature: float) -> None:
    """As its own draft model, by suffix lookup and both, at draft lengths in turn.

    `scripts/check/check_seeds.py` does the same with 100 seeds. Without exact passes nothing is
    drafted.
    """
    drafted = 0
    exact_pair.forget()
    can_draft = not exact_pair.facts.speculation_off_reason
    names = ("model", "suffix", "auto") if can_draft else ("auto",)
    for seed in range(2):
        options: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": 20}
        plain = tokens_of(exact_pair, drafter="none", **options)
        for number, name in enumerate(names):
            length = LENGTHS[(4 * seed + 3 * number) % len(LENGTHS)]
            assert tokens_of(exact_pair, drafter=name, draft_length=length, **options) == plain
            drafted += exact_pair.stats.drafted
    assert (drafted > 0) == can_draft


def tokens_of(engine: LocalEngine, **options: Any) -> list[int]:
    """Decode an answer and return its tokens."""
    return [token for chunk in engine.chat(QUESTION, **options) for token in chunk.tokens]
