"""Draft models with another vocabulary on real llama.cpp: lossless, and accepted where common."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from engine.test_lossless import EXACT, PROMPT, WHOLE, first_tokens, homogeneity, tokens_of
from other_vocabulary import write_copy
from scripts.support.tiny_gguf import Vocabulary
from specchat import Engine
from specchat.catalogue.pairs import find_pair
from specchat.engine.api import Loading
from specchat.engine.local_engine import LocalEngine
from specchat.engine.losslessness import check_prompt
from specchat.errors import IncompatibleDraft

ARCHITECTURES = ["llama", "gemma3", "mamba", "lfm2"]
"""With a KV cache, a sliding window, checkpoints and snapshots."""
GREEDY_AND_SEEDED: list[dict[str, Any]] = [
    {"temperature": 0.0, "max_tokens": 60},
    {**WHOLE, "seed": 3, "max_tokens": 60},
]
QUESTIONS = (
    "What is speculative decoding?",
    "Tell me a story about a fox.",
    "How do I start?",
    "What is a draft model?",
    "Explain the context.",
    "Write a list of fruits.",
    "What is a token?",
    "Why is it fast?",
)
"""The demo pair answers them."""
CUT = {"share": 0.05}
"""Replace the rarest 5 %: all tokens that merges make."""


def other(path: Path, folder: Path, **options: Any) -> Path:
    """Write a copy of a model with another vocabulary."""
    copy = folder / f"other {path.name}"
    write_copy(path, copy, **{"share": 0.0, **options})
    return copy


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_a_model_in_other_ids_is_its_own_draft(
    shallow: WriteModel, tmp_path: Path, architecture: str
) -> None:
    """Every token is drafted rightly: at temperature 0, sampled, and with a seed."""
    path = shallow(architecture)
    with Engine.load(path, other(path, tmp_path), **EXACT) as engine:
        assert engine.facts.common_tokens == 1.0
        for options in ({"temperature": 0.0}, {**WHOLE, "top_k": 40}, {**WHOLE, "seed": 3}):
            tokens_of(engine, drafter="model", draft_length=3, max_tokens=90, **options)
            assert engine.stats.acceptance_rate > 0.99


@pytest.mark.slow
@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_greedy_and_seeded_tokens_are_plain_decodings(
    shallow: WriteModel, tmp_path: Path, architecture: str
) -> None:
    """With a part of the vocabulary replaced, at every draft length and in one answer or more."""
    target, draft = (
        shallow(architecture),
        other(shallow(architecture, "half right"), tmp_path, **CUT),
    )
    with Engine.load(target, draft, **EXACT) as engine:
        assert 0.9 < (engine.facts.common_tokens or 0.0) < 1.0
        for options in GREEDY_AND_SEEDED:
            plain = tokens_of(engine, drafter="none", **options)
            for length in (1, 3, 16):
                for drafter in ("model", "auto"):
                    given = {**options, "drafter": drafter, "draft_length": length}
                    assert tokens_of(engine, **given) == plain
            assert tokens_of(engine, **options) == plain
            assert engine.stats.generated_tokens == 60


@pytest.mark.slow
def test_sentencepiece_drafts_for_byte_pairs(shallow: WriteModel) -> None:
    """Bytes and words are common, whatever stands for a space or for a byte in the files."""
    target, draft = shallow("llama"), shallow("llama", vocabulary=Vocabulary(sentencepiece=True))
    with Engine.load(target, draft, **EXACT) as engine:
        assert engine.facts.common_tokens == 1.0  # of the draft's tokens, which are fewer
        for prompt in (PROMPT, [0, 1, 264, 319, 5, 2]):
            for options in GREEDY_AND_SEEDED:
                plain = tokens_of(engine, prompt, drafter="none", **options)
                assert tokens_of(engine, prompt, draft_length=4, **options) == plain
                assert engine.stats.drafted > 50


@pytest.mark.slow
def test_sampled_text_is_distributed_as_plain_sampling(shallow: WriteModel, tmp_path: Path) -> None:
    """The first tokens of many answers fit (false alarm 1e-4)."""
    target, draft = shallow("llama"), other(shallow("llama", "half right"), tmp_path, **CUT)
    with Engine.load(target, draft, **EXACT) as engine:
        plain, _ = first_tokens(engine, "none", 1000, seed=10_000)
        for seed in (None, 50_000):
            drafted, num_drafted = first_tokens(engine, "model", 1000, seed)
            assert homogeneity(plain, drafted) > 1e-4
            assert num_drafted > 1000


@pytest.mark.slow
def test_a_conversation_goes_on_and_back_and_stops(shallow: WriteModel, tmp_path: Path) -> None:
    """Two turns, the second one anew, one that is closed early, and another subject."""
    target, draft = shallow("llama"), other(shallow("llama", "half right"), tmp_path, **CUT)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 40}
    first: list[Any] = [{"role": "user", "content": "where is the end of it?"}]
    with Engine.load(target, draft, **EXACT) as engine:

        def answer(messages: list[Any], **more: Any) -> str:
            return "".join(chunk.text for chunk in engine.chat(messages, **options, **more))

        second = [*first, {"role": "assistant", "content": answer(first)}, *first]
        asked = [first, second, second, [{"role": "user", "content": "héllo 😀"}], first]
        plain = [answer(messages, drafter="none") for messages in asked]
        for length in (3, 7):
            stream = engine.chat(second, **options, draft_length=length)
            next(stream)
            stream.close()  # type: ignore[attr-defined]  # a generator
            assert [answer(messages, draft_length=length) for messages in asked] == plain
            assert engine.stats.drafted


@pytest.mark.slow
def test_the_context_is_filled_to_its_end(shallow: WriteModel, tmp_path: Path) -> None:
    """The draft model needs more tokens for the same text, and starts anew in time."""
    target, draft = shallow("llama"), other(shallow("llama"), tmp_path, **CUT)
    options: dict[str, Any] = {"temperature": 0.0, "max_tokens": 600}
    with Engine.load(target, draft, **EXACT) as engine:
        prompt = [264, 319, 310, 300] * 60  # words that the draft model spells
        plain = tokens_of(engine, prompt, drafter="none", **options)
        assert tokens_of(engine, prompt, drafter="model", draft_length=3, **options) == plain
        assert engine.stats.drafted
        assert len(prompt) + len(plain) > 500


def test_check_finds_nothing_with_such_a_draft(shallow: WriteModel, tmp_path: Path) -> None:
    """`specchat check` compares and rescores as with any draft."""
    draft = other(shallow("llama", "half right"), tmp_path, **CUT)
    with LocalEngine(Loading(shallow("llama"), draft, **EXACT)) as engine:
        finding = check_prompt(engine, "a prompt", PROMPT, 60, 3)

    assert finding.is_lossless
    assert finding.drafted
    assert finding.parted_at is None


def test_too_little_in_common_is_refused_with_the_reason(shallow: WriteModel) -> None:
    """Both reasons, and what to do."""
    many = {"vocabulary": Vocabulary(size=900)}
    draft = shallow("llama", vocabulary=Vocabulary(size=900, endings=("x",)))
    message = (
        r"does not fit the target: token 276 is .* in it and .* in the target, and they have only"
        r" 30 % of the smaller vocabulary in common; choose .* or --drafter none"
    )
    with pytest.raises(IncompatibleDraft, match=message):
        Engine.load(shallow("llama", **many), draft, **EXACT)


@pytest.mark.slow
def test_of_real_drafts_at_least_four_fifths_are_still_accepted(tmp_path: Path) -> None:
    """Of the demo pair's with an equal vocabulary, with the rarest tenth of the tokens replaced."""
    pair = find_pair("demo")
    assert pair.draft is not None
    rates: list[float] = []
    for draft in (pair.draft, other(pair.draft, tmp_path, share=0.1)):
        drafted = accepted = 0
        with Engine.load(pair.target, draft, **EXACT) as engine:
            for seed, question in enumerate(QUESTIONS):
                asked: list[Any] = [{"role": "user", "content": question}]
                for options in ({"temperature": 0.0}, {"seed": seed}):
                    given: dict[str, Any] = {"drafter": "model", "draft_length": 4, **options}
                    for _ in engine.chat(asked, max_tokens=80, **given):
                        pass
                    drafted += engine.stats.drafted
                    accepted += engine.stats.accepted
        rates.append(accepted / drafted)

    assert rates[1] > 0.8 * rates[0] > 0.6
