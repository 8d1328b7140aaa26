"""Models with a table of absolute positions: llama.cpp ends the process beyond its end."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import WriteModel
from specchat import Engine
from specchat.errors import ContextFull

FIXED: dict[str, Any] = {"threads": 1, "learn": False}
PROMPT = [20 + place % 200 for place in range(100)]


def text_of(engine: Engine, prompt: list[int], **options: Any) -> list[int]:
    """Return the tokens of an answer at temperature 0."""
    answer = engine.generate(prompt, temperature=0.0, ignore_end=True, **options)
    return [token for chunk in answer for token in chunk.tokens]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("architecture", "ctx"), [("gpt2", 0), ("gpt2", 64), ("starcoder", 100_000)]
)
def test_a_context_ends_with_the_table_of_positions(
    tiny: WriteModel, architecture: str, ctx: int
) -> None:
    """A longer one is refused with a notice; a longer prompt does not fit."""
    target = tiny(architecture, context_length=64)
    with Engine.load(target, ctx=ctx, **FIXED) as engine:
        assert engine.facts.context == 64
        assert any("64" in notice for notice in engine.facts.notices) is (ctx > 64)
        with pytest.raises(ContextFull):
            text_of(engine, PROMPT)
        assert len(text_of(engine, PROMPT[:20], drafter="none")) == 45


@pytest.mark.slow
def test_a_draft_with_fewer_positions_drafts_on_beyond_them(
    tiny: WriteModel,
) -> None:
    """From the last tokens of the text, which it reads anew; the text is the target's own."""
    target, draft = tiny("gpt2", context_length=512), tiny("gpt2", context_length=64)
    options: dict[str, Any] = {"max_tokens": 200, "drafter": "model"}
    with Engine.load(target, **FIXED) as engine:
        expected = text_of(engine, PROMPT, max_tokens=200)
    with Engine.load(target, draft, **FIXED) as engine:
        assert engine.facts.context == 512
        for length in (1, 5, "auto"):
            options["draft_length"] = length
            for prompt, plain in ((PROMPT, expected), (PROMPT + expected[:50], expected[50:])):
                assert text_of(engine, prompt, **options)[: len(plain)] == plain
                if length != "auto":
                    assert engine.stats.drafted > 100


@pytest.mark.slow
def test_a_target_with_fewer_positions_than_its_draft_stops_first(tiny: WriteModel) -> None:
    """Passes with drafts never go beyond the end of the table."""
    target = tiny("gpt2", context_length=64)
    draft = tiny("gpt2", context_length=512)
    with Engine.load(target, draft, process=True, ctx=256, **FIXED) as engine:
        for length in (1, 7, 32):
            answer = text_of(engine, PROMPT[:30], drafter="model", draft_length=length)
            assert len(answer) == 35
