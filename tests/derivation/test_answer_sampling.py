"""Sampling a target's answers in the background."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from specchat.catalogue.pairs import load_pairs
from specchat.derivation import answer_sampling
from specchat.derivation.answer_sampling import (
    AnswerSampling,
    TrainingPrompts,
    num_sequences,
    shared_beginning,
)
from specchat.derivation.answer_store import AnswerStore
from specchat.derivation.example_prompts import ExamplePrompts
from specchat.engine.api import Loading
from specchat.errors import EngineFailed
from specchat.gguf.reader import read_header
from specchat.llama.model import Model
from specchat.planning.context_shape import ContextShape, ModelOptions
from specchat.planning.memory import Sizes

DEMO = load_pairs()["demo"].target


def test_answers_arrive_while_others_work(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The store fills, also with the user's questions; the thread ends with the block."""
    monkeypatch.setattr(answer_sampling, "PER_FILE", 10)
    wanted = TrainingPrompts(Loading(DEMO, threads=1, ctx=512), questions=["Count to four."])
    store = AnswerStore(tmp_path)
    with AnswerSampling(wanted, tmp_path, store, threads=1) as sampling:
        deadline = time.monotonic() + 60
        while len(store.training) < 40 and time.monotonic() < deadline:
            sampling.check()
            time.sleep(0.05)
            store.refresh()
    assert len(store.training) >= 40
    assert {round(each.temperature, 1) for each in store.training} == {0.0, 0.8}
    assert all(len(each.tokens) <= answer_sampling.LENGTH for each in store.training)
    asked = {each.tokens[: each.prompt].tobytes() for each in store.training}
    assert len(asked) < len(store.training)


def test_the_target_asks_questions_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it writes where its template expects the user becomes a prompt, and is answered."""
    monkeypatch.setattr(answer_sampling, "PER_FILE", 10)
    monkeypatch.setattr(answer_sampling, "SELF_ASKED", 0.5)
    asked: list[str] = []
    monkeypatch.setattr(ExamplePrompts, "ask", lambda _, question: asked.append(question))
    store = AnswerStore(tmp_path)
    with AnswerSampling(TrainingPrompts(Loading(DEMO)), tmp_path, store, threads=1) as sampling:
        deadline = time.monotonic() + 60
        while len(store.training) < 20 and time.monotonic() < deadline:
            sampling.check()
            time.sleep(0.05)
            store.refresh()
    assert len(set(asked)) > 5
    assert all(asked)
    with Model(DEMO, ModelOptions(threads=1)) as model:
        beginning = shared_beginning(model)
    assert len(beginning) > 1
    assert all(each.prompt > len(beginning) for each in store.training)


def test_what_ends_the_sampling_is_raised_where_training_waits(tmp_path: Path) -> None:
    """A target that cannot be loaded ends the wait."""
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(DEMO.read_bytes()[:-5000])
    wanted = TrainingPrompts(Loading(damaged))
    with (
        AnswerSampling(wanted, tmp_path, AnswerStore(tmp_path), threads=1) as sampling,
        pytest.raises(EngineFailed, match="corrupted or incomplete"),
    ):
        wait_for_the_end_of(sampling)


def wait_for_the_end_of(sampling: AnswerSampling) -> None:
    """Wait a minute at most."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        sampling.check()
        time.sleep(0.05)


def test_fewer_texts_at_a_time_where_each_takes_more_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Within bounds, the cache of all texts decides."""
    sizes = Sizes(read_header(DEMO))
    assert num_sequences(sizes) == 64
    each = sizes.cache(ContextShape(answer_sampling.LENGTH))
    monkeypatch.setattr(answer_sampling, "LARGEST_CACHE", 10 * each)
    assert num_sequences(sizes) == 10
    monkeypatch.setattr(answer_sampling, "LARGEST_CACHE", each)
    assert num_sequences(sizes) == 4
