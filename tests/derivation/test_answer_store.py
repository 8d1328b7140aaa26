"""Sampled answers on disk, and the batches made of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import numpy as np
import pytest

from derivation.made_answers import answers
from specchat.derivation import answer_store
from specchat.derivation.answer_store import HELD_OUT, AnswerStore, collate
from specchat.llama.batch_sampling import LIKELIEST


def test_answers_are_read_back_as_they_were(tmp_path: Path) -> None:
    """Tokens, temperatures and likeliest tokens come back; one in forty is held out."""
    AnswerStore(tmp_path).add(answers(0, 100))
    store = AnswerStore(tmp_path)
    assert len(store.held_out) == 100 // HELD_OUT + 1
    found = {int(each.tokens[0]): each for each in (*store.training, *store.held_out)}
    assert sorted(found) == list(range(100))
    example = found[57]
    assert example.tokens.tolist() == [57, 1, 2, 5, 5, 5, 5]
    assert (example.prompt, round(example.temperature, 3)) == (3, 0.8)
    assert example.likeliest.shape == example.logs.shape == (4, LIKELIEST)
    assert example.likeliest[0, 0] == 57
    assert abs(float(example.logs[2, 3]) + 0.57) < 1e-3


def test_what_layers_read_stays_in_its_file_until_used(tmp_path: Path) -> None:
    """Batches have it at each token but the last, which was never evaluated; some lack it."""
    kept = answers(0, 60)
    for each in kept:
        rows = np.arange(len(each.prompt) + len(each.tokens) - 1, dtype=np.float16)
        each.inputs = [rows[:2, None], rows[2:, None]]
    AnswerStore(tmp_path).add(kept)
    AnswerStore(tmp_path).add(answers(60, 60))

    store = AnswerStore(tmp_path, with_inputs=True)
    assert all(file.stat().st_mode & 0o077 == 0 for file in tmp_path.iterdir())
    assert len(store.training) + len(store.held_out) == 60
    batch = collate(store.training[5:8])
    assert batch.inputs is not None
    assert batch.inputs.shape == (*batch.tokens.shape, 1)
    for row, example in enumerate(store.training[5:8]):
        count = len(example.tokens)
        expected = [*range(count - 1), *[0] * (batch.tokens.shape[1] - count + 1)]
        assert batch.inputs[row, :, 0].tolist() == expected
    assert collate(AnswerStore(tmp_path).training).inputs is None

    (place,) = tmp_path.glob("inputs-*.npy")
    place.write_bytes(place.read_bytes()[:-4])
    assert AnswerStore(tmp_path, with_inputs=True).training == []
    place.unlink()
    assert AnswerStore(tmp_path, with_inputs=True).training == []


def test_no_more_answers_are_kept_than_the_disk_has_room_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The reason is said: the folder is large, or little is free."""
    store = AnswerStore(tmp_path)
    store.add(answers(0, 60))
    assert store.why_full == ""
    monkeypatch.setattr(answer_store, "LEAST_FREE", 1e18)
    assert store.why_full == "the disk is nearly full"
    monkeypatch.setattr(answer_store, "LARGEST_STORE", 100)
    assert store.why_full.endswith(" has 0 GB of answers")


def test_files_are_private_and_a_damaged_one_is_passed_over(tmp_path: Path) -> None:
    """Answers may quote the user's texts; a file that cannot be read costs only itself."""
    store = AnswerStore(tmp_path)
    store.add(answers(0, 50))
    store.add(answers(50, 50))
    first, second = sorted(tmp_path.glob("*.npz"))
    assert first.stat().st_mode & 0o077 == 0
    second.write_bytes(second.read_bytes()[:200])
    found = AnswerStore(tmp_path)
    assert len(found.training) + len(found.held_out) == 50


def test_batches_hold_every_example_once_an_epoch(tmp_path: Path) -> None:
    """Batches stay within their size, and new files join."""
    store = AnswerStore(tmp_path)
    store.add(answers(0, 60))
    seen: list[int] = []
    batches = store.batches(64, seed=1)
    while len(seen) < len(store.training) or not seen:
        batch = next(batches)
        assert batch.tokens.size <= 64
        seen += batch.tokens[:, 0].tolist()
    assert sorted(seen) == sorted(int(each.tokens[0]) for each in store.training)
    store.add(answers(60, 30))
    later = {
        token for batch in itertools.islice(batches, 60) for token in batch.tokens[:, 0].tolist()
    }
    assert max(later) == 89


def test_a_store_without_answers_has_no_batches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking for answers again and again would take a whole core."""
    store, looks = AnswerStore(tmp_path), iter(range(9))
    monkeypatch.setattr(store, "refresh", lambda: next(looks))
    assert list(store.batches(64, seed=1)) == []


def test_places_are_those_before_the_answers_tokens(tmp_path: Path) -> None:
    """Each place is the position whose logits predict a token of the answer."""
    AnswerStore(tmp_path).add(answers(0, 50))
    chosen = AnswerStore(tmp_path).training[5:8]
    batch = collate(chosen)
    following = batch.tokens.reshape(-1)[batch.places + 1]
    assert following.tolist() == [5] * sum(len(each.logs) for each in chosen)
    assert len(batch.likeliest) == len(batch.logs) == len(batch.places)
