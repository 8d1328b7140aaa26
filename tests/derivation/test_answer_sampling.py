"""Sampling a target's answers in the background: it ends at once, keeps what it has, and fits."""

from __future__ import annotations

import time
from pathlib import Path
from unittest.mock import patch

import pytest

from conftest import WriteModel
from derivation.changed_models import split_model
from derivation.made_answers import answers
from specchat.derivation import answer_sampling, answer_store
from specchat.derivation.answer_sampling import AnswerSampling, TrainingPrompts, num_sequences
from specchat.derivation.answer_store import AnswerStore
from specchat.derivation.example_prompts import Conversation, ExamplePrompts
from specchat.engine.api import Loading
from specchat.gguf.reader import read_header
from specchat.planning.memory import Sizes
from specchat.prompts.chat_text import tokenize_chat
from specchat.system.private_files import make_private

SECONDS, AT_ONCE = 60, 60


def sample(target: Path, work: Path, num_answers: int = 1) -> AnswerStore:
    """Sample answers of a target until there are some, and return the store."""
    make_private(work)
    store = AnswerStore(work)
    answered: list[str] = []
    learn = ExamplePrompts.learn

    def count(prompts: ExamplePrompts, asked: Conversation, answer: str) -> None:
        answered.append(answer)
        learn(prompts, asked, answer)

    wanted = TrainingPrompts(Loading(target, threads=1, ctx=512))
    sampling = AnswerSampling(wanted, work, store, threads=1)
    with patch.object(ExamplePrompts, "learn", count), sampling:
        until = time.monotonic() + SECONDS
        while len(answered) < num_answers and time.monotonic() < until:
            sampling.check()
            time.sleep(0.05)
        began = time.monotonic()
        sampling.stop()
        assert time.monotonic() - began < AT_ONCE
    sampling.check()
    store.refresh()
    return store


@pytest.mark.slow
@pytest.mark.parametrize("length", [0, 300, 600])
def test_a_template_may_begin_with_a_long_text(
    length: int, tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its answers are sampled as others are, and all that ended are kept when sampling does."""
    monkeypatch.setattr(
        answer_sampling, "tokenize_chat", lambda *asked: [5] * length + tokenize_chat(*asked)
    )
    store = sample(tiny("llama", num_layers=2), tmp_path / "work")

    assert store.training or store.held_out
    assert all(each.prompt > length for each in (*store.training, *store.held_out))


def test_sampling_ends_although_no_prompt_fits(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for one that does would go on for ever."""
    monkeypatch.setattr(answer_sampling, "LONGEST_PROMPT", 1)
    monkeypatch.setattr(answer_sampling, "more_room", lambda _: 0)
    monkeypatch.setattr(answer_sampling, "SELF_ASKED", 0.0)
    assert not sample(tiny("llama"), tmp_path / "work", num_answers=0).training


def test_nothing_is_sampled_where_there_is_no_room(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each run would otherwise write a file more than there is room for."""
    monkeypatch.setattr(answer_store, "LARGEST_STORE", 100)
    make_private(tmp_path / "work")
    store = AnswerStore(tmp_path / "work")
    store.add(answers(0, 50))
    before = sorted(tmp_path.rglob("*"))
    wanted = TrainingPrompts(Loading(tiny("llama"), threads=1, ctx=512))
    with AnswerSampling(wanted, tmp_path / "work", store, threads=1) as sampling:
        sampling._thread.join(SECONDS)
        assert not sampling._thread.is_alive()
    sampling.check()
    assert sampling.why_full.endswith(" of answers")
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.slow
def test_a_large_target_in_parts_is_not_copied(
    tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However small its first part is."""
    first = split_model(tiny("llama", width=64), tmp_path)
    monkeypatch.setattr(answer_sampling, "LARGEST_COPIED", first.stat().st_size)
    sample(first, tmp_path / "work")

    assert not (tmp_path / "work" / "target.gguf").exists()


def test_a_target_without_a_cache_has_the_most_sequences(
    tiny: WriteModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A header may say so of itself."""
    monkeypatch.setattr(Sizes, "cache", lambda *_: 0)
    assert num_sequences(Sizes(read_header(tiny("llama")))) == answer_sampling.MOST_SEQUENCES
