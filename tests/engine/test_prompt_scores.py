"""What a model thinks of a given text, and that asking for it disturbs nothing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from conftest import WriteModel
from engine.test_heads import WriteHead, heads, opened  # noqa: F401  # a fixture
from engine.test_lossless import EXACT, PROMPT, tokens_of
from scripts.support.tiny_gguf import ARCHITECTURES
from specchat.decoding.chunk import Alternative
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.errors import Cancelled, ContextFull, InvalidOption
from tables import table

TEXT = [3 + (7 * place) % 240 for place in range(80)]
GREEDY: dict[str, Any] = {"temperature": 0.0, "max_tokens": 20}


@pytest.mark.slow
@table("architecture", ARCHITECTURES)
def test_scores_are_the_softmax_of_the_logits(shallow: WriteModel, architecture: str) -> None:
    """Of the whole vocabulary, for each token but the first; the answer afterwards is right."""
    with LocalEngine(Loading(shallow(architecture), shallow(architecture), **EXACT)) as engine:
        expected = tokens_of(engine, **GREEDY)
        found = engine.score(TEXT, 3)
        assert found[0] == ()
        assert [len(each) for each in found[1:]] == [
            3 + (token not in [one for one, *_ in each[:3]])
            for token, each in zip(TEXT[1:], found[1:], strict=True)
        ]
        rows = engine.rescore(TEXT[:1], TEXT[1:], 1)
        for row, token, each in zip(rows, TEXT[1:], found[1:], strict=True):
            shares = np.exp(row.astype(np.float64) - row.max())
            shares /= shares.sum()
            own = next(share for one, _, share in each if one == token)
            assert own == pytest.approx(shares[token], rel=0.05, abs=1e-6)
            assert each[0][2] == pytest.approx(shares.max(), rel=0.05)
        assert tokens_of(engine, **GREEDY) == expected


def test_a_head_drafts_as_before_after_scores(heads: WriteHead) -> None:  # noqa: F811
    """Its memory follows the target's."""
    options: dict[str, Any] = {**GREEDY, "drafter": "head", "draft_length": 3}
    with opened(heads("qwen35", noise=0.01, num_layers=2)) as engine:
        expected = tokens_of(engine, **options)
        accepted = engine.stats.accepted
        engine.score(TEXT, 1)
        engine.forget()
        assert tokens_of(engine, **options) == expected
        assert engine.stats.accepted == accepted > 0


def test_what_cannot_be_scored_is_refused(shallow: WriteModel) -> None:
    """Unknown tokens, a text beyond the context, and a stop in between."""
    with LocalEngine(Loading(shallow("llama"), **{**EXACT, "ctx": 256})) as engine:
        with pytest.raises(InvalidOption, match="not in the vocabulary"):
            engine.score([1, 10**6], 1)
        with pytest.raises(ContextFull, match="257 tokens"):
            engine.score([5] * 257, 1)
        expected = tokens_of(engine, PROMPT, **GREEDY)
        clear, engine._abort.clear = engine._abort.clear, engine._abort.set  # type: ignore[method-assign]
        with pytest.raises(Cancelled):
            engine.score(TEXT, 1)
        engine._abort.clear = clear  # type: ignore[method-assign]
        assert tokens_of(engine, PROMPT, **GREEDY) == expected


def test_a_text_is_scored_in_parts_between_others(shallow: WriteModel) -> None:
    """They are those of the whole text; each goes on where it ended, or reads the text again."""
    with LocalEngine(Loading(shallow("llama"), **{**EXACT, "ctx": 256})) as engine:
        whole, found = engine.score(TEXT, 3), list[tuple[Alternative, ...]]()
        expected = tokens_of(engine, PROMPT, **GREEDY)
        while len(found) < len(TEXT):
            part = engine.score(TEXT, 3, first=len(found), seconds=0)
            assert 0 < len(part) < len(TEXT)
            found += part
            assert tokens_of(engine, PROMPT, **GREEDY) == expected
        for one, other in zip(found, whole, strict=True):
            shares = {token: share for token, _, share in other}
            assert {token: share for token, _, share in one} == pytest.approx(shares, rel=0.01)


def test_scoring_ends_once_its_caller_wants_no_more(shallow: WriteModel) -> None:
    """After a pass at most."""
    asked = 0

    def is_stopped() -> bool:
        nonlocal asked
        asked += 1
        return asked == 2

    with LocalEngine(Loading(shallow("llama"), **{**EXACT, "ctx": 256})) as engine:
        with pytest.raises(Cancelled):
            engine.score(TEXT, 1, is_stopped=is_stopped)
        assert engine.context.length < len(TEXT) - 1
