"""Sampled answers on disk, and the batches made of them."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from derivation.made_answers import answers
from specchat.derivation import answer_store
from specchat.derivation.answer_store import HELD_OUT, AnswerStore, collate
from specchat.llama.batch_sampling import LIKELIEST, SampledAnswer


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

    store = AnswerStore(tmp_path, inputs_width=1)
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
    assert AnswerStore(tmp_path, inputs_width=1).training == []
    place.unlink()
    assert AnswerStore(tmp_path, inputs_width=1).training == []


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


def with_inputs(kept: list[SampledAnswer], width: int) -> list[SampledAnswer]:
    """Return answers with what layers read at all tokens but the last."""
    for each in kept:
        each.inputs = [np.ones((len(each.prompt) + len(each.tokens) - 1, width), np.float16)]
    return kept


@pytest.mark.parametrize(
    "damaged",
    [
        b"",
        b"no array",
        b"\x93NUMPY\x01\x00\x02\x00(\n",
        np.zeros(()),
        np.zeros(406, np.float16),
        np.zeros((406, 5), np.float16),
        np.zeros((406, 6), np.float32),
        np.zeros((405, 6), np.float16),
    ],
    ids=["empty", "text", "header", "scalar", "one dimension", "narrow", "wrong type", "short"],
)
def test_answers_without_fitting_inputs_are_passed_over(
    damaged: bytes | NDArray[Any], tmp_path: Path
) -> None:
    """What layers read has a row for each token and the layers' width, or training would fail."""
    store = AnswerStore(tmp_path, inputs_width=6)
    store.add(with_inputs(answers(0, 50), 6))
    store.add(with_inputs(answers(50, 50), 6))
    second = tmp_path / "inputs-00001.npy"
    assert len(np.load(second)) == 406
    if isinstance(damaged, bytes):
        second.write_bytes(damaged)
    else:
        np.save(second, damaged)
    store.refresh()
    assert len(store.training) + len(store.held_out) == 50
    assert collate(store.training).inputs is not None


@pytest.mark.parametrize(
    ("name", "damaged"),
    [
        ("tokens", np.zeros(100, np.int32)),
        ("prompts", np.array(3, np.int32)),
        ("prompts", np.array([3], np.int32)),
        ("answers", np.array(["5"] * 50)),
        ("temperatures", np.zeros(49, np.float32)),
        ("likeliest", np.zeros(256, np.int32)),
        ("logs", np.zeros((256, LIKELIEST - 1), np.float16)),
        ("logs", np.zeros((256, LIKELIEST), np.float32)),
        ("logs", None),
    ],
)
def test_a_file_whose_arrays_do_not_fit_each_other_is_passed_over(
    name: str, damaged: NDArray[Any] | None, tmp_path: Path
) -> None:
    """All its answers are, and training goes on with those of other files."""
    store = AnswerStore(tmp_path)
    store.add(answers(0, 50))
    store.add(answers(50, 50))
    second = tmp_path / "answers-00001.npz"
    fields = dict(np.load(second))
    assert len(fields["logs"]) == 256
    if damaged is None:
        del fields[name]
    else:
        fields[name] = damaged
    np.savez(second, **fields)
    store.refresh()
    assert len(store.training) + len(store.held_out) == 50


@pytest.mark.parametrize("content", [b"", b"no archive", None], ids=["empty", "text", "an array"])
def test_a_file_that_is_not_an_archive_is_passed_over(
    content: bytes | None, tmp_path: Path
) -> None:
    """As a full disk or a crash may leave one."""
    with (tmp_path / "answers-00000.npz").open("wb") as file:
        if content is None:
            np.save(file, np.zeros((5, 5)))
        else:
            file.write(content)
    store = AnswerStore(tmp_path)
    store.add(answers(0, 50))
    store.refresh()
    assert len(store.training) + len(store.held_out) == 50


def test_an_archive_with_a_changed_header_is_passed_over(tmp_path: Path) -> None:
    """Its compression is said to be one that Python does not know."""
    AnswerStore(tmp_path).add(answers(0, 50))
    (place,) = tmp_path.iterdir()
    content = bytearray(place.read_bytes())
    content[content.index(b"PK\x01\x02") + 10] = 99
    place.write_bytes(content)
    assert AnswerStore(tmp_path).training == []


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
    following = batch.tokens.reshape(-1)[batch.positions + 1]
    assert following.tolist() == [5] * sum(len(each.logs) for each in chosen)
    assert len(batch.likeliest) == len(batch.logs) == len(batch.positions)
