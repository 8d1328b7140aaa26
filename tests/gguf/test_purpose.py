"""Files of other things than language models: each is named for what it is, and not offered."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import gguf
import pytest

from conftest import WriteModel
from local_folders import put_in_hub
from specchat.catalogue.draft_choice import find_drafts
from specchat.cli import main
from specchat.engine import Engine
from specchat.errors import ModelWontLoad
from specchat.gguf.model_files import require_text
from specchat.gguf.purpose import purpose_of, purpose_text
from specchat.gguf.reader import read_header
from specchat.hub.names import parse
from specchat.hub.pins import keep_pin

PARTS = {
    "projector": ("clip", {"general.type": "mmproj"}, "projector (mmproj)"),
    "old projector": ("clip", {}, "projector (mmproj)"),
    "projector of another name": ("llama", {"general.type": "mmproj"}, "projector (mmproj)"),
    "adapter": ("llama", {"general.type": "adapter"}, "a LoRA adapter"),
    "importance matrix": ("", {"general.type": "imatrix"}, "an importance matrix"),
    "control vector": ("controlvector", {}, "a control vector"),
    "embeddings": ("bert", {}, "an embedding model"),
    "reranker": ("modern-bert", {"modern-bert.pooling_type": 4}, "a reranker"),
    "diffusion": ("dream", {}, "a diffusion model"),
    "pictures": ("flux", {}, "an audio, image or video model"),
}
"""Architecture and further keys of the header, and what the file is called."""


def write(path: Path, architecture: str, keys: dict[str, Any]) -> Path:
    """Write a header without tensors."""
    writer = gguf.GGUFWriter(path, architecture or "none")
    if not architecture:
        del writer.kv_data[0]["general.architecture"]
    for key, value in keys.items():
        writer.add_string(key, value) if isinstance(value, str) else writer.add_uint32(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


@pytest.mark.parametrize(("architecture", "keys", "name"), PARTS.values(), ids=PARTS)
def test_another_thing_than_a_model_is_refused_by_its_name(
    tiny: WriteModel, tmp_path: Path, architecture: str, keys: dict[str, Any], name: str
) -> None:
    """As target and as draft model, with the next step, in one line."""
    part = write(tmp_path / "part.gguf", architecture, keys)
    for target, draft in ((part, None), (tiny("llama"), part)):
        with pytest.raises(ModelWontLoad) as refusal:
            Engine.load(target, draft, ctx=256, threads=1)

        message = str(refusal.value)
        assert message.startswith(f"{part} is ")
        assert name in message
        assert "choose" in message or "merge it into its language model" in message
        assert "\n" not in message


@pytest.mark.parametrize(("architecture", "keys", "name"), PARTS.values(), ids=PARTS)
def test_another_thing_than_a_model_is_shown_but_not_offered(
    tiny: WriteModel,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    architecture: str,
    keys: dict[str, Any],
    name: str,
) -> None:
    """`show` says what it is; neither `list` nor the search for drafts offers it."""
    for variable in ("HOME", "LLAMA_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.setenv(variable, str(tmp_path))
    part = write(tmp_path / "part.gguf", architecture, keys)
    target = tmp_path / "target.gguf"
    target.write_bytes(tiny("llama").read_bytes())

    assert main(["show", str(part)]) == 0
    lines = capsys.readouterr().out.splitlines()
    (kind,) = (line for line in lines if line.startswith("kind "))
    assert name in kind
    assert not {"draft", "template", "vocabulary"} & {line.partition(" ")[0] for line in lines}
    assert main(["list", "--json"]) == 0
    local = json.loads(capsys.readouterr().out)["local"]
    assert [each["name"] for each in local] == ["target.gguf"]
    assert find_drafts(target).fitting == ()


def test_a_part_names_the_model_that_it_belongs_to(tmp_path: Path) -> None:
    """If the file has the name, and it can be shown."""
    keys = {"general.type": "mmproj", "general.base_model.0.name": "Gemma 3 4B"}
    part = write(tmp_path / "part.gguf", "clip", keys)
    with pytest.raises(
        ModelWontLoad, match=r"choose the language model it belongs to, Gemma 3 4B$"
    ):
        Engine.load(part)
    keys["general.base_model.0.name"] = "\x1b]0;title\x07"
    with pytest.raises(ModelWontLoad, match=r"choose the language model it belongs to$"):
        Engine.load(write(tmp_path / "part.gguf", "clip", keys))


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
    part = write(tmp_path / "part.gguf", "clip", {})
    put_in_hub(tmp_path / "hub", "org/model", "mmproj.gguf", part.read_bytes())
    reference = parse("org/model/mmproj.gguf")
    keep_pin(reference, reference)

    assert main(["list"]) == 0
    (row,) = (line for line in capsys.readouterr().out.splitlines() if "mmproj.gguf" in line)
    assert "pulled on its own: a vision or audio projector (mmproj)" in row
