"""What files of other things than language models say of the model they belong to."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from foreign_files import write_header
from local_folders import put_in_hub
from specchat import Engine
from specchat.cli import main
from specchat.errors import ModelWontLoad
from specchat.gguf.model_files import require_text
from specchat.gguf.purpose import purpose_of, purpose_text
from specchat.gguf.reader import read_header
from specchat.hub.names import parse_name
from specchat.hub.pins import keep_pin


def written(path: Path, architecture: str, keys: dict[str, Any]) -> Path:
    """Write a header and return its path."""
    write_header(path, architecture, keys)
    return path


def test_a_part_names_the_model_that_it_belongs_to(tmp_path: Path) -> None:
    """If the file has the name, and it can be shown."""
    keys = {"general.type": "mmproj", "general.base_model.0.name": "Gemma 3 4B"}
    part = written(tmp_path / "part.gguf", "clip", keys)
    with pytest.raises(
        ModelWontLoad, match=r"choose the language model it belongs to, Gemma 3 4B$"
    ):
        Engine.load(part)
    keys["general.base_model.0.name"] = "\x1b]0;title\x07"
    with pytest.raises(ModelWontLoad, match=r"choose the language model it belongs to$"):
        Engine.load(written(tmp_path / "part.gguf", "clip", keys))


def test_a_decoder_trained_for_embeddings_may_be_loaded_by_its_path(tiny: WriteModel) -> None:
    """It does generate text, but `show` says what it is made for."""
    header = read_header(tiny("llama"))
    pooled = replace(header, metadata={**header.metadata, "llama.pooling_type": 3})

    require_text(pooled)
    assert purpose_text(pooled) == "an embedding model"
    assert (purpose_text(header), purpose_of(pooled)) == ("", "embedding")


def test_a_part_that_was_pulled_is_listed_for_what_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its row stays, because `specchat rm` takes its name."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    part = written(tmp_path / "part.gguf", "clip", {})
    put_in_hub(tmp_path / "hub", "org/model", "mmproj.gguf", part.read_bytes())
    reference = parse_name("org/model/mmproj.gguf").reference
    keep_pin(reference, reference)

    assert main(["list"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "mmproj.gguf" in line)
    assert "pulled on its own: a vision or audio projector (mmproj)" in row


def test_a_model_of_speech_is_no_text_model(tmp_path: Path) -> None:
    """Its tokens are read, and no text comes of them."""
    speech = read_header(written(tmp_path / "speech.gguf", "pockettts", {}))
    with pytest.raises(ModelWontLoad, match="an audio, image or video model: choose a chat model"):
        require_text(speech)
