"""Origins: a derived draft names its target, and another one is told of it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from conftest import WriteModel
from derivation.changed_models import fine_tune, scale_layer, split_model
from scripts.support.quantised_model import quantised
from scripts.support.tiny_gguf import write_model, write_with_head
from specchat import Engine
from specchat.errors import EngineFailed
from specchat.gguf.origin import DraftOrigin, fingerprints, origin_of
from specchat.gguf.reader import read_header
from specchat.llama.model_copies import Copy, write_copy
from tables import table

NOTICE = "draft.gguf was made for other weights, the target: the first answers show whether it fits"


def answer(target: Path, draft: Path | None) -> list[int]:
    """Return what a target answers at temperature 0, with three drafted tokens or none a step."""
    options: dict[str, Any] = {"draft_length": 3} if draft else {"drafter": "none"}
    with Engine.load(target=target, draft=draft, learn=False) as engine:
        chunks = engine.generate("abc", max_tokens=24, temperature=0, **options)
        return [token for chunk in chunks for token in chunk.tokens]


def derive(target: Path, draft: Path, **changes: str) -> DraftOrigin:
    """Write a draft with its origin, and return that."""
    sha256 = fingerprints(read_header(target)).model
    origin = DraftOrigin(sha256, "the target", "skip", "own answers", "1.2")
    write_copy(Copy(str(target), str(draft), metadata={**origin.metadata, **changes}))
    return origin


def test_a_draft_records_its_origin(tiny: WriteModel, tmp_path: Path) -> None:
    """What is recorded is read back, and the rest of the file stays as it was."""
    target, draft = tiny("llama"), tmp_path / "draft.gguf"
    origin = derive(target, draft)
    header = read_header(draft)

    assert origin_of(header) == origin
    assert origin.is_predicted_to_gain
    assert origin_of(read_header(target)) is None
    assert header.chat_template == read_header(target).chat_template
    assert draft.stat().st_mode & 0o777 == 0o600


def test_long_texts_are_cut_to_what_fits(tiny: WriteModel, tmp_path: Path) -> None:
    """llama.cpp takes up to 127 bytes; a letter is never cut in half, a number may be missing."""
    origin, draft = DraftOrigin("0" * 64, "ö" * 100, "skip", "", "much"), tmp_path / "draft.gguf"
    write_copy(Copy(str(tiny("llama")), str(draft), metadata=origin.metadata))

    assert origin_of(read_header(draft)) == replace(origin, target="ö" * 63)
    assert not origin.is_predicted_to_gain


def test_fingerprints_are_those_of_the_weights(tmp_path: Path) -> None:
    """Another template or a split changes nothing; a vocabulary and training change both.

    What is changed in matrices alone, as by an adapter, is seen only in the file's.
    """
    model = write_model(tmp_path / "a.gguf", "llama")
    other = write_model(tmp_path / "b.gguf", "llama", metadata={"general.name": "renamed"})
    known = fingerprints(read_header(model))

    assert fingerprints(read_header(other)) == known
    assert fingerprints(read_header(split_model(model, tmp_path))) == known
    scale_layer(other, 2, 1.01)
    adapted = fingerprints(read_header(other))
    assert (adapted.model == known.model, adapted.file == known.file) == (True, False)
    fine_tune(other)
    assert set(fingerprints(read_header(other))).isdisjoint({*known, *adapted})
    larger = write_model(tmp_path / "c.gguf", "llama", vocabulary=321)
    assert set(fingerprints(read_header(larger))).isdisjoint(known)


@table("architecture", ["llama", "qwen3", "gemma3", "qwen3moe", "mamba", "lfm2"])
def test_quantization_changes_only_the_file(architecture: str, tmp_path: Path) -> None:
    """Norms and biases stay as they are; the matrices of this width can have any of the types."""
    model = write_model(tmp_path / "model.gguf", architecture, width=64)
    files = [model, *(quantised(model, name, tmp_path) for name in ("F16", "Q8_0", "Q4_0"))]
    found = [fingerprints(read_header(path)) for path in files]

    assert len({each.model for each in found}) == 1
    assert len({each.file for each in found}) == len(files)


def test_a_model_without_vectors_is_known_by_its_file(tmp_path: Path) -> None:
    """Of some architectures the norms have no weights."""
    writer = gguf.GGUFWriter(tmp_path / "bare.gguf", "olmo")
    writer.add_tensor("output.weight", np.ones((4, 8), np.float32))
    writer.add_tensor("rope_freqs.weight", np.ones(8, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()

    found = fingerprints(read_header(tmp_path / "bare.gguf"))
    assert found.model == found.file


def test_another_target_takes_the_draft_with_a_notice(tmp_path: Path) -> None:
    """Such as a fine-tuned version of the same model; the notice names the right target."""
    target = write_model(tmp_path / "target.gguf", "llama")
    tuned = Path(shutil.copy(target, tmp_path / "tuned.gguf"))
    fine_tune(tuned)
    draft = tmp_path / "draft.gguf"
    derive(target, draft)

    plain = answer(tuned, None)
    for of_draft, has_notice in ((target, False), (tuned, True)):
        with Engine.load(target=of_draft, draft=draft, learn=False) as engine:
            assert (NOTICE in engine.facts.notices) == has_notice
    assert answer(tuned, draft) == plain


def test_another_quantization_takes_the_draft(tmp_path: Path) -> None:
    """A draft from before models had a fingerprint names its target's file alone."""
    target = write_model(tmp_path / "target.gguf", "llama", width=64)
    smaller, draft, old = quantised(target, "Q8_0", tmp_path), *(tmp_path / n for n in ("a", "b"))
    derive(target, draft)
    sha256 = fingerprints(read_header(target)).file
    derive(target, old, **{"specchat.origin.target_sha256": sha256})

    for of_target, of_draft, is_own in (
        (smaller, draft, True), (target, old, True), (smaller, old, False),
    ):  # fmt: skip
        with Engine.load(target=of_target, draft=of_draft, learn=False) as engine:
            assert any("other weights" in notice for notice in engine.facts.notices) != is_own


def test_another_target_takes_the_head_with_a_notice(tmp_path: Path) -> None:
    """A head has its target's width and vocabulary, and so has a fine-tuned version of that."""
    target, head, draft = (tmp_path / f"{name}.gguf" for name in ("target", "head", "draft"))
    for path, part in ((target, "trunk"), (head, "head")):
        write_with_head(path, "llama", part=part, draft="EAGLE-3")
    tuned = Path(shutil.copy(target, tmp_path / "tuned.gguf"))
    fine_tune(tuned)
    sha256 = fingerprints(read_header(target)).model
    origin = DraftOrigin(sha256, "the target", "train", "answers", "1.2")
    write_copy(Copy(str(head), str(draft), metadata=origin.metadata))

    for of_target, has_notice in ((target, False), (tuned, True)):
        with Engine.load(target=of_target, draft=draft, learn=False) as engine:
            assert engine.facts.draft
            assert (NOTICE in engine.facts.notices) == has_notice
    assert answer(tuned, draft) == answer(tuned, None)


def test_a_copy_that_cannot_be_written_leaves_nothing(tiny: WriteModel, tmp_path: Path) -> None:
    """llama.cpp's reason is in the message, and there is no file."""
    draft = tmp_path / "draft.gguf"
    damaged = Path(shutil.copy(tiny("llama"), tmp_path / "damaged.gguf"))
    damaged.write_bytes(damaged.read_bytes()[:20_000])

    with pytest.raises(EngineFailed, match=r"cannot write .*draft\.gguf: "):
        write_copy(Copy(str(damaged), str(draft)))
    assert not draft.exists()


def test_the_record_of_a_foreign_file_is_cut(tmp_path: Path) -> None:
    """Anybody can write a file whose texts would fill the screen and the cache of headers."""
    long = {f"specchat.origin.{key}": "x" * 100_000 for key in ("target_sha256", "target")}
    origin = origin_of(read_header(write_model(tmp_path / "a.gguf", "llama", metadata=long)))

    assert origin is not None
    assert len(origin.target_sha256) == len(origin.target) == 127
