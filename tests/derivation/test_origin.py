"""Origins: a derived draft names its target, and is refused for any other."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from conftest import WriteModel
from derivation.calm_layers import scale_layer, split_model
from scripts.support.tiny_gguf import write_model, write_with_head
from specchat import Engine
from specchat.errors import EngineFailed, IncompatibleDraft
from specchat.gguf.origin import DraftOrigin, fingerprint, origin_of
from specchat.gguf.reader import read_header
from specchat.llama.pruning import Copy, write_copy


def derive(target: Path, draft: Path, **changes: str) -> DraftOrigin:
    """Write a draft with its origin, and return that."""
    origin = DraftOrigin(
        fingerprint(read_header(target)), "the target", "skip", "own answers", "1.2"
    )
    write_copy(Copy(str(target), str(draft), (3,), {**origin.metadata, **changes}))
    return origin


def test_a_draft_records_its_origin(tiny: WriteModel, tmp_path: Path) -> None:
    """What is recorded is read back, and the rest of the file stays as it was."""
    target, draft = tiny("llama"), tmp_path / "draft.gguf"
    origin = derive(target, draft)
    header = read_header(draft)

    assert origin_of(header) == origin
    assert origin.is_predicted_to_gain
    assert origin_of(read_header(target)) is None
    assert header.num_layers == read_header(target).num_layers - 1
    assert header.chat_template == read_header(target).chat_template
    assert draft.stat().st_mode & 0o777 == 0o600


def test_long_texts_are_cut_to_what_fits(tiny: WriteModel, tmp_path: Path) -> None:
    """llama.cpp takes up to 127 bytes; a letter is never cut in half, a number may be missing."""
    origin, draft = DraftOrigin("0" * 64, "ö" * 100, "skip", "", "much"), tmp_path / "draft.gguf"
    write_copy(Copy(str(tiny("llama")), str(draft), (1,), origin.metadata))

    assert origin_of(read_header(draft)) == replace(origin, target="ö" * 63)
    assert not origin.is_predicted_to_gain


def test_a_fingerprint_is_that_of_the_weights(tmp_path: Path) -> None:
    """Another template or a split changes nothing; another weight or vocabulary does."""
    model = write_model(tmp_path / "a.gguf", "llama")
    other = write_model(tmp_path / "b.gguf", "llama", metadata={"general.name": "renamed"})
    known = fingerprint(read_header(model))

    assert fingerprint(read_header(other)) == known
    assert fingerprint(read_header(split_model(model, tmp_path))) == known
    scale_layer(other, 2, 1.01)
    assert fingerprint(read_header(other)) != known
    larger = write_model(tmp_path / "c.gguf", "llama", vocabulary=321)
    assert fingerprint(read_header(larger)) != known


def test_another_target_refuses_the_draft(tmp_path: Path) -> None:
    """Also a fine-tuned version of the same model; the message names the right target."""
    target = write_model(tmp_path / "target.gguf", "llama")
    tuned = Path(shutil.copy(target, tmp_path / "tuned.gguf"))
    scale_layer(tuned, 1, 1.5)
    draft = tmp_path / "draft.gguf"
    derive(target, draft)

    with Engine.load(target=target, draft=draft, learn=False) as engine:
        assert "".join(chunk.text for chunk in engine.generate("abc", max_tokens=4))
    with pytest.raises(IncompatibleDraft, match="from another target, the target: derive one"):
        Engine.load(target=tuned, draft=draft, learn=False)


def test_another_target_refuses_the_head(tmp_path: Path) -> None:
    """A head has its target's width and vocabulary, and so has a fine-tuned version of that."""
    target, head, draft = (tmp_path / f"{name}.gguf" for name in ("target", "head", "draft"))
    for path, part in ((target, "trunk"), (head, "head")):
        write_with_head(path, "llama", part=part, is_eagle=True)
    tuned = Path(shutil.copy(target, tmp_path / "tuned.gguf"))
    scale_layer(tuned, 1, 1.5)
    origin = DraftOrigin(fingerprint(read_header(target)), "the target", "train", "answers", "1.2")
    write_copy(Copy(str(head), str(draft), metadata=origin.metadata))

    with Engine.load(target=target, draft=draft, learn=False) as engine:
        assert engine.facts.draft
    with pytest.raises(IncompatibleDraft, match="from another target, the target: derive one"):
        Engine.load(target=tuned, draft=draft, learn=False)


def test_a_copy_that_cannot_be_written_leaves_nothing(tiny: WriteModel, tmp_path: Path) -> None:
    """llama.cpp's reason is in the message, and there is no file."""
    draft = tmp_path / "draft.gguf"
    damaged = Path(shutil.copy(tiny("llama"), tmp_path / "damaged.gguf"))
    damaged.write_bytes(damaged.read_bytes()[:20_000])

    with pytest.raises(EngineFailed, match=r"cannot write .*draft\.gguf: "):
        write_copy(Copy(str(damaged), str(draft), (1,)))
    assert not draft.exists()


def test_the_record_of_a_foreign_file_is_cut(tmp_path: Path) -> None:
    """Anybody can write a file whose texts would fill the screen and the cache of headers."""
    long = {f"specchat.origin.{key}": "x" * 100_000 for key in ("target_sha256", "target")}
    origin = origin_of(read_header(write_model(tmp_path / "a.gguf", "llama", metadata=long)))

    assert origin is not None
    assert len(origin.target_sha256) == len(origin.target) == 127
