"""Seeds on llama.cpp: one text for each seed, whatever drafts, at any pace."""

from __future__ import annotations

from typing import Any

import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT, PROMPT, slow_down, tokens_of
from specchat import Engine
from specchat.decoding.request import Request
from specchat.decoding.verification import verify_by_block
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import CheckedSampling, PromptCheck, check_prompt

NUM_SEEDS = 40
LENGTHS = (1, 2, 3, 4, 5, 6, 7, 8, "auto")


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("temperature", [0.3, 0.8, 1.5])
def test_a_seed_has_one_text(
    shallow: WriteModel, temperature: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """40 seeds: the same tokens from every drafter, at draft lengths in turn and paced ones.

    The tiny model's weights are F32, and so is its memory: passes over several tokens differ from
    single ones by rounding of about 1e-7, which decides no token here.
    """
    drafted = dict.fromkeys(("model", "suffix", "auto"), 0)
    texts = set()
    with LocalEngine(Loading(shallow("llama"), shallow("llama", "half right"), **EXACT)) as engine:
        slow_down(engine, monkeypatch)
        for seed in range(NUM_SEEDS):
            options: dict[str, Any] = {"temperature": temperature, "seed": seed, "max_tokens": 12}
            plain = tokens_of(engine, PROMPT * 2, drafter="none", **options)
            texts.add(tuple(plain))
            for number, name in enumerate(drafted):
                options["draft_length"] = LENGTHS[(seed + 3 * number) % len(LENGTHS)]
                assert tokens_of(engine, PROMPT * 2, drafter=name, **options) == plain
                drafted[name] += engine.stats.drafted

    assert len(texts) > 0.2 * NUM_SEEDS
    assert all(drafted.values())


@pytest.mark.usefixtures("full_measurement")
def test_pacing_runs_freely_with_a_seed(
    shallow: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With a useless draft, few tokens are drafted; with a perfect one, more at a time than 3."""
    options: dict[str, Any] = {"temperature": 0.8, "seed": 3, "max_tokens": 200, "drafter": "model"}
    drafted = {}
    for kind in ("wrong", "right"):
        with LocalEngine(Loading(shallow("llama"), shallow("llama", kind), **EXACT)) as engine:
            slow_down(engine, monkeypatch)
            tokens_of(engine, **options)
            drafted[kind] = engine.stats.drafted_per_step
            assert engine.stats.draft_length == "auto"

    assert drafted["wrong"] < 1.0
    assert drafted["right"] > 3.0


@pytest.mark.parametrize("architecture", ["mamba", "gemma3"])
def test_rolling_back_to_a_saved_state_keeps_the_text(
    shallow: WriteModel, architecture: str
) -> None:
    """Places are counted in the answer, also where rejected tokens are decoded again."""
    with Engine.load(shallow(architecture), shallow(architecture, "half right"), **EXACT) as engine:
        for seed in range(4):
            options: dict[str, Any] = {"temperature": 0.8, "seed": seed, "max_tokens": 60}
            plain = tokens_of(engine, drafter="none", **options)
            assert tokens_of(engine, drafter="auto", draft_length=5, **options) == plain
            assert engine.stats.drafted > 0


def test_the_same_conversation_has_the_same_answer_again(shallow: WriteModel) -> None:
    """What the engine remembers of earlier answers does not matter."""
    options: dict[str, Any] = {"temperature": 0.8, "seed": 11, "max_tokens": 48}
    with Engine.load(shallow("llama"), shallow("llama", "half right"), **EXACT) as engine:
        first = tokens_of(engine, **options)
        tokens_of(engine, first, temperature=0.8, max_tokens=48)
        assert tokens_of(engine, **options) == first
        engine.forget()
        assert tokens_of(engine, **options) == first
        assert tokens_of(engine, **options | {"seed": 12}) != first


def check(shallow: WriteModel) -> PromptCheck:
    """Check the text of a seed."""
    with LocalEngine(Loading(shallow("llama"), shallow("llama", "half right"), **EXACT)) as engine:
        return check_prompt(engine, "p", PROMPT, 60, 3, CheckedSampling(0.8, seed=5))


@pytest.mark.slow
def test_check_proves_a_seeds_text(shallow: WriteModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rescored with the noise, every token is the target's own; other verification is caught."""
    finding = check(shallow)
    assert finding.is_lossless
    assert (finding.parted_at, finding.num_rescored_off) == (None, 0)
    assert 0 < finding.acceptance_rate < 1

    monkeypatch.setattr(Request, "verifier_at", lambda *_: verify_by_block)
    assert not check(shallow).is_lossless
