"""Projectors are found where the programs that download models leave them, and only their own."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from foreign_files import write_header
from local_folders import manifest, put, put_blob, put_in_hub
from scripts.support.tiny_gguf import write_projector
from specchat.catalogue.local_models import ModelFolder, find_local_models
from specchat.catalogue.projectors import is_for, missing_projector, projector_for
from specchat.hub.listing import ListedFile
from specchat.hub.references import Reference

WIDTH = 64


@pytest.fixture
def model(tmp_path: Path) -> bytes:
    """The bytes of a model whose states are as wide as those of the projectors here."""
    path = tmp_path / "model.gguf"
    write_header(path, "llama", {"llama.embedding_length": WIDTH, "general.name": "Tiny"})
    content = path.read_bytes()
    path.unlink()
    return content


def projector_bytes(folder: Path, width: int = WIDTH, *, has_vision: bool = True) -> bytes:
    """Return the bytes of a projector."""
    path = folder / "projector.gguf"
    write_projector(path, "mlp", text_width=width, has_vision=has_vision)
    content = path.read_bytes()
    path.unlink()
    return content


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        (["mmproj-model-f16.gguf"], "mmproj-model-f16.gguf"),
        (["mmproj-F32.gguf", "mmproj-BF16.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
        (["mmproj-F16.gguf", "mmproj-Q8_0.gguf", "MMPROJ-Q4_0.gguf"], "mmproj-Q8_0.gguf"),
        (["mmproj-tiny-3-4b-it-f16.gguf", "mmproj-Q8_0.gguf"], "mmproj-tiny-3-4b-it-f16.gguf"),
        (["tiny-3-4b-it-mmproj-f16.gguf"], "tiny-3-4b-it-mmproj-f16.gguf"),
        (["mmproj-tiny-3-12b-it-f16.gguf"], None),
        (["mmproj-tiny-vl-3-4b-f16.gguf"], None),
        (["tiny-3-4b-it-Q8_0.gguf", "mmproj-F16.gguf"], "mmproj-F16.gguf"),
        (["other-7b-Q4_0.gguf", "mmproj-F16.gguf"], None),
        (["other-7b-Q4_0.gguf", "mmproj-tiny-3-4b-F16.gguf"], "mmproj-tiny-3-4b-F16.gguf"),
        (["vision.gguf"], None),
    ],
)
def test_a_projector_beside_a_target_is_its_own(
    files: list[str], expected: str | None, tmp_path: Path, model: bytes
) -> None:
    """It bears its name, or none in a folder of one model; the best of several is taken."""
    content = projector_bytes(tmp_path)
    target = put(tmp_path / "tiny-3-4b-it-Q4_K_M.gguf", model)
    for file in files:
        put(tmp_path / file, content if "mmproj" in file.lower() else model)

    found = projector_for(target)
    assert (found.name if found else None) == expected


@pytest.mark.parametrize(("width", "has_vision"), [(128, True), (WIDTH, False)])
def test_what_does_not_fit_is_not_taken(
    width: int, has_vision: bool, tmp_path: Path, model: bytes
) -> None:
    """A projector of another width, or one for sound."""
    target = put(tmp_path / "tiny-Q4_0.gguf", model)
    content = projector_bytes(tmp_path, width, has_vision=has_vision)
    unfit = put(tmp_path / "mmproj-F16.gguf", content)
    damaged = put(tmp_path / "mmproj-Q8_0.gguf", b"GGUF")

    assert projector_for(target) is None
    assert not is_for(unfit, target)
    assert not is_for(damaged, target)
    fitting = put(tmp_path / "mmproj-BF16.gguf", projector_bytes(tmp_path))
    assert projector_for(target) == fitting
    assert is_for(fitting, target)
    assert not is_for(fitting, damaged)


def test_a_repository_keeps_it_beside_its_models(tmp_path: Path, model: bytes) -> None:
    """In a folder above or below, and from another commit; that of another one is not taken."""
    target = put_in_hub(tmp_path, "org/tiny", "Q4_K_M/tiny-Q4_K_M.gguf", model)
    put_in_hub(tmp_path, "org/other", "mmproj-F16.gguf", projector_bytes(tmp_path))
    assert projector_for(target) is None
    found = put_in_hub(tmp_path, "org/tiny", "mmproj-F16.gguf", projector_bytes(tmp_path), "b" * 40)
    assert projector_for(target) == found


@pytest.mark.parametrize(
    ("file", "is_offered"),
    [
        ("mmproj-F16.gguf", True),
        ("tiny-4b/mmproj-F16.gguf", True),
        ("tiny/mmproj-F16.gguf", False),
        ("tiny-4b/deeper/mmproj-F16.gguf", False),
        ("mmproj-tiny-4b-F16.gguf", True),
        ("mmproj-tiny-12b-F16.gguf", False),
        ("tiny-4b-Q8_0.gguf", False),
    ],
)
def test_a_repositorys_projector_is_offered_to_its_own_model(
    file: str, is_offered: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One in another model's folder, or with its name, is not."""
    monkeypatch.setattr("specchat.hub.listing.files_soon", lambda *_: [ListedFile(file, 7)])
    found = missing_projector(Reference("org/tiny", "tiny-4b/tiny-4b-Q4_0.gguf"))
    assert found == ((Reference("org/tiny", file), 7) if is_offered else None)


def test_lm_studio_keeps_it_in_the_folder_of_its_model(tmp_path: Path, model: bytes) -> None:
    """Publishers have folders, and in them each repository has one; it is no model there."""
    publisher, file = tmp_path / "models/lmstudio-community", "mmproj-model-f16.gguf"
    target = put(publisher / "tiny-4b-GGUF/tiny-4b-Q4_K_M.gguf", model)
    put(publisher / "tiny-4b-GGUF/tiny-4b-Q8_0.gguf", model + bytes(32))
    put(publisher / "other-4b-GGUF/other-4b-Q4_K_M.gguf", model + bytes(64))
    put(publisher / "other-4b-GGUF" / file, projector_bytes(tmp_path))
    assert projector_for(target) is None
    found = put(publisher / "tiny-4b-GGUF" / file, projector_bytes(tmp_path))
    assert projector_for(target) == found
    models = find_local_models([ModelFolder("LM Studio", tmp_path / "models")])
    assert len(models) == 3
    assert found not in {each.path for each in models}


def test_ollama_names_it_in_the_models_manifest(tmp_path: Path, model: bytes) -> None:
    """Its files are named by checksums, and another model's projector is one of them."""
    content = projector_bytes(tmp_path)
    tiny, other = put_blob(tmp_path, model), put_blob(tmp_path, model + bytes(32))
    projector = put_blob(tmp_path, content)
    for name, record in (
        ("tiny", manifest(model=tiny, projector=projector)),
        ("other", manifest(model=other)),
    ):
        path = tmp_path / "manifests/registry.ollama.ai/library" / name / "latest"
        put(path, json.dumps(record).encode())

    def blob(digest: str) -> Path:
        return tmp_path / "blobs" / digest.replace(":", "-")

    assert projector_for(blob(tiny)) == blob(projector)
    assert projector_for(blob(other)) is None
