"""Local models: what the folders of other programs hold, whatever has been put into them."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from local_folders import GGUF, manifest, put, put_blob, put_in_hub, put_in_ollama
from scripts.support.tiny_gguf import write_with_head
from specchat.catalogue.local_models import (
    ModelFolder,
    find_local_models,
    find_model_folders,
    model_at,
    models_in,
)
from specchat.catalogue.model_lookup import find_model
from specchat.errors import ModelNotFound
from tables import table

SIZE = len(GGUF)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder with nothing in it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "HF_HOME", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        monkeypatch.delenv(name, raising=False)
    for name in ("LLAMA_CACHE", "OLLAMA_MODELS"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def names() -> list[str]:
    """Return the names of all local models."""
    return [model.name for model in find_local_models()]


def ollama_names(folder: Path) -> list[str]:
    """Return the names of the models of one folder of Ollama's."""
    return [model.name for model in find_local_models([ModelFolder("Ollama", folder)])]


def test_every_program_is_looked_into(home: Path) -> None:
    """Each model has the name its program gives it, and says whose it is."""
    put_in_hub(home / ".cache/huggingface/hub", "org/model", "sub/model-Q4.gguf")
    put(home / ".cache/llama.cpp/org_other_other-Q8.gguf", GGUF + b"1")
    put(home / ".lmstudio/models/publisher/third/third-Q4.gguf", GGUF + b"2")
    put_in_ollama(home / ".ollama/models", GGUF + b"3", "registry.ollama.ai/library/fourth/8b")

    assert [(model.name, model.tool, model.num_bytes) for model in find_local_models()] == [
        ("org/model/sub/model-Q4.gguf", "hub", SIZE),
        ("org_other_other-Q8.gguf", "llama.cpp", SIZE + 1),
        ("publisher/third/third-Q4.gguf", "LM Studio", SIZE + 1),
        ("fourth:8b", "Ollama", SIZE + 1),
    ]
    assert all(model.path.read_bytes().startswith(GGUF) for model in find_local_models())


def test_nothing_here_is_nothing_found(home: Path) -> None:
    """No folder is made, and none is missed."""
    assert names() == []
    assert list(home.iterdir()) == []


@pytest.mark.parametrize(
    ("system", "environ", "folder"),
    [
        ("linux", {}, ".cache/llama.cpp"),
        ("linux", {"XDG_CACHE_HOME": "{home}/other"}, "other/llama.cpp"),
        ("darwin", {}, "Library/Caches/llama.cpp"),
        ("win32", {"LOCALAPPDATA": "{home}/Local"}, "Local/llama.cpp"),
        ("win32", {}, "AppData/Local/llama.cpp"),
        ("linux", {"LLAMA_CACHE": "{home}/mine"}, "mine"),
        ("linux", {"OLLAMA_MODELS": "'{home}/theirs'"}, "theirs"),
        ("linux", {}, ".lmstudio/models"),
        ("linux", {}, ".cache/lm-studio/models"),
    ],
)
def test_folders_are_where_each_system_has_them(
    home: Path, system: str, environ: dict[str, str], folder: str
) -> None:
    """Environment variables that move the folders are followed."""
    (home / folder).mkdir(parents=True)
    environ = {name: value.format(home=home) for name, value in environ.items()}

    assert home / folder in [place.folder for place in find_model_folders(environ, home, system)]


def test_lm_studio_is_followed_to_where_it_was_moved(home: Path) -> None:
    """Its pointer names its home, and the settings there the folder of models."""
    moved, models = home / "disk/lmstudio", home / "disk/models"
    put(home / ".lmstudio-home-pointer", f"{moved}\n".encode())
    put(moved / "settings.json", json.dumps({"downloadsFolder": str(models)}).encode())
    put(models / "a/b/c.gguf")

    assert names() == ["a/b/c.gguf"]


@pytest.mark.parametrize(
    "settings",
    [
        b"{not json",
        b"[" * 100_000,
        b"\xff\xfe",
        b"7",
        b'{"downloadsFolder": 42}',
        b'{"downloadsFolder": "models"}',
        b'{"downloadsFolder": "/no/such/folder"}',
        b'{"downloadsFolder": "/etc\\u0000"}',
        b" " * (2 << 20),
    ],
)
def test_damaged_settings_of_lm_studio_are_passed_over(home: Path, settings: bytes) -> None:
    """Its own folder is still looked into."""
    put(home / ".lmstudio/settings.json", settings)
    put(home / ".lmstudio/models/a/b/c.gguf")

    assert names() == ["a/b/c.gguf"]


def test_newer_llama_cpp_keeps_the_hubs_layout_in_its_own_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Models left there by an older version are found as well."""
    monkeypatch.setenv("LLAMA_CACHE", str(home / "mine"))
    put(home / "mine/old.gguf", GGUF + b"1")
    put_in_hub(home / "mine", "org/model", "new.gguf")

    assert names() == ["old.gguf", "org/model/new.gguf"]


def test_of_two_commits_the_one_of_main_counts(home: Path) -> None:
    """A file that only the older one has is there too."""
    hub = home / ".cache/huggingface/hub"
    put_in_hub(hub, "org/model", "a.gguf", GGUF + b"old", "1" * 40)
    put_in_hub(hub, "org/model", "b.gguf", GGUF + b"older", "1" * 40)
    new = put_in_hub(hub, "org/model", "a.gguf", GGUF + b"newer", "2" * 40)

    models = {model.name: model for model in find_local_models()}
    assert list(models) == ["org/model/a.gguf", "org/model/b.gguf"]
    assert models["org/model/a.gguf"].path == new


def test_a_file_that_two_programs_share_is_listed_once(home: Path) -> None:
    """Links are seen through."""
    pointer = put_in_hub(home / ".cache/huggingface/hub", "org/model", "a.gguf")
    link = home / ".lmstudio/models/org/model/a.gguf"
    link.parent.mkdir(parents=True)
    link.symlink_to(pointer)

    assert names() == ["org/model/a.gguf"]


def test_links_in_circles_are_gone_once(home: Path) -> None:
    """Each file has its shortest name, and a folder beside a link to it keeps its own."""
    models = home / ".lmstudio/models"
    put(models / "pub/model/a.gguf")
    (models / "pub/loop").symlink_to(".")
    (models / "pub/model/up").symlink_to("../..")
    (models / "another").symlink_to("pub")

    assert names() == ["pub/model/a.gguf"]


def test_a_split_model_counts_once_and_whole(home: Path) -> None:
    """By its first file, with the size of all; one that is not whole is not there."""
    folder = home / ".lmstudio/models/a/b"
    for number in (1, 2, 3):
        put(folder / f"big-0000{number}-of-00003.gguf")
    put(folder / "part-00001-of-00002.gguf")
    put(folder / "none-00000-of-00000.gguf")

    found = {model.name: model.num_bytes for model in find_local_models()}
    assert found == {"a/b/big-00001-of-00003.gguf": 3 * SIZE, "a/b/none-00000-of-00000.gguf": SIZE}


@pytest.mark.parametrize("name", ["mmproj-model-f16.gguf", "imatrix.gguf"])
def test_files_that_go_with_a_model_are_no_models(home: Path, name: str) -> None:
    """Projectors of images and tables of importance cannot answer."""
    put(home / ".lmstudio/models/a/b" / name)

    assert names() == []


@table(
    "name",
    [
        *("Qwen3-DFlash.gguf", "Llama-EAGLE3.gguf", "qwen3-eagle-3-q8_0.gguf"),
        *("MTP_Qwen3.6-27B.gguf", "GLM-4.5-Air-NextN-Q8_0.gguf", "Qwen3-8B-MTP-ONLY-Q8_0.gguf"),
        *("Qwen3-8B-D-Flash-v2.gguf", "Qwen3_dspark_bs7.gguf", "gemma-4-31B-it_assistant.gguf"),
        "mtp-Qwen3.8-27B-Q4_0.gguf",
    ],
)
def test_heads_are_no_models(home: Path, name: str) -> None:
    """Nor are files named like them that are damaged."""
    path = home / ".lmstudio/models/a/b" / name
    put(path, write_with_head(home / "head.gguf", part="head").read_bytes())
    assert names() == []
    put(path, GGUF[:100])
    assert names() == []


@pytest.mark.parametrize(
    "name",
    [
        *("Qwen3.5-9B-MTP-Q4_0.gguf", "Eagle-7B-Q4_0.gguf", "Old-Gold-Flash-7B.gguf"),
        *("Hundred-Sparks-3B.gguf", "Granite-assistant-8B.gguf"),
    ],
)
def test_models_named_like_heads_are_models(home: Path, name: str) -> None:
    """One with its head inside, and words that only end or begin like those of heads."""
    put(home / ".lmstudio/models/a/b" / name)

    assert names() == [f"a/b/{name}"]


def test_a_whole_model_named_like_a_head_is_a_model(home: Path, tiny: WriteModel) -> None:
    """Its header says so, not its name; a head stays one, whatever it is called."""
    folder = home / ".lmstudio/models/a/b"
    for name, source in (
        ("Tall-8B-NextN-Q8_0.gguf", tiny("llama")),
        ("mtp-Tall-8B.gguf", write_with_head(home / "whole.gguf")),
        ("Wide-8B-NextN-Q8_0.gguf", write_with_head(home / "head.gguf", part="head")),
    ):
        put(folder / name, source.read_bytes())

    assert names() == ["a/b/Tall-8B-NextN-Q8_0.gguf", "a/b/mtp-Tall-8B.gguf"]
    assert len(find_local_models(with_heads=True)) == 3


def test_folders_and_links_that_go_round_end(home: Path) -> None:
    """Entries named like a file that are not files are left out."""
    folder = home / ".lmstudio/models/a"
    put(folder / "b/c.gguf")
    (folder / "b/round").symlink_to(folder)
    for number in range(20):  # some of them come first, in whatever order a folder is read
        (folder / f"b/loop{number}.gguf").symlink_to(f"loop{number}.gguf")
    (folder / "b/gone.gguf").symlink_to("nowhere")
    (folder / "b/folder.gguf").mkdir()
    os.mkfifo(folder / "b/pipe.gguf")
    put(folder / "b/empty.gguf", b"")

    assert names() == ["a/b/c.gguf"]


def test_ollamas_names_are_ollamas(home: Path) -> None:
    """The registry's own host and namespace are omitted, others are shown."""
    folder = home / ".ollama/models"
    for number, name in enumerate(
        (
            "registry.ollama.ai/library/qwen3/8b",
            "registry.ollama.ai/someone/tiny/q4_K_M",
            "hf.co/org/Model-GGUF/Q4_K_M",
        )
    ):
        put_in_ollama(folder, GGUF + bytes([number]), name)

    assert sorted(names()) == ["hf.co/org/Model-GGUF:Q4_K_M", "qwen3:8b", "someone/tiny:q4_K_M"]


def test_a_list_of_manifests_gives_the_one_for_llama_cpp(tmp_path: Path) -> None:
    """As Ollama writes them since 0.40: links into the blobs, one manifest for each program."""
    model = put_blob(tmp_path, GGUF)
    other = put_blob(tmp_path, b"safetensors")
    child = put_blob(tmp_path, json.dumps(manifest(model=model)).encode())
    message = {
        "mediaType": "application/vnd.ollama.manifest.list.v2+json",
        "manifests": [
            {**manifest(model=other), "runner": "mlx"},
            {"digest": child, "runner": "llamacpp"},
        ],
    }
    blob = put_blob(tmp_path, json.dumps(message).encode()).replace(":", "-")
    path = tmp_path / "manifests-v2/ollama.com/library/new/8b"
    path.parent.mkdir(parents=True)
    path.symlink_to(tmp_path / "blobs" / blob)
    put_in_ollama(tmp_path, GGUF + b"old", "registry.ollama.ai/library/new/8b")

    (found,) = find_local_models([ModelFolder("Ollama", tmp_path)])
    assert (found.name, found.num_bytes) == ("new:8b", len(GGUF))


HOSTILE: dict[str, Any] = {
    "outside": manifest(model="sha256:../../../../etc/passwd"),
    "absolute": manifest(model="/etc/passwd"),
    "null": manifest(model="sha256:" + "a" * 63 + "\0"),
    "longer": manifest(model="sha256:" + "a" * 64 + "/../secret"),
    "no text": {"layers": [{"mediaType": "application/vnd.ollama.image.model", "digest": 7}]},
    "no list": {"layers": {"mediaType": "application/vnd.ollama.image.model"}},
    "no layers": {"layers": [None, 7, "x", []]},
    "no object": [1, 2],
    "no manifests": {
        "mediaType": "application/vnd.ollama.manifest.list.v2+json",
        "manifests": [None, {"runner": 7, "digest": "sha256:../x"}],
    },
}


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_manifest_leads_nowhere(tmp_path: Path, what: str) -> None:
    """A checksum names a blob of the folder or nothing; the models beside it are found."""
    put(tmp_path / "secret", GGUF)
    put(tmp_path / "blobs" / ("sha256-" + "a" * 64), b"no GGUF file")
    put(
        tmp_path / "manifests/registry.ollama.ai/library/bad/latest",
        json.dumps(HOSTILE[what]).encode(),
    )
    put_in_ollama(tmp_path)

    assert ollama_names(tmp_path) == ["tiny:latest"]


@pytest.mark.parametrize("content", [b"", b"{", b"[" * 50_000, b"\xff", b" " * (1 << 19)])
def test_a_damaged_manifest_is_passed_over(tmp_path: Path, content: bytes) -> None:
    """Every kind of damage is tried."""
    put(tmp_path / "manifests/registry.ollama.ai/library/bad/latest", content)
    put_in_ollama(tmp_path)

    assert ollama_names(tmp_path) == ["tiny:latest"]


def test_files_of_other_formats_are_not_listed(tmp_path: Path) -> None:
    """A manifest whose name has control characters is not listed either."""
    put_in_ollama(tmp_path, b"safetensors")
    put_in_ollama(tmp_path, GGUF, "registry.ollama.ai/library/\x1b[31mred/latest")

    assert ollama_names(tmp_path) == []


def test_a_model_is_found_by_its_name(home: Path) -> None:
    """Or by what is left of it without the repository, the ending or the tag."""
    pointer = put_in_hub(home / ".cache/huggingface/hub", "org/Model", "Model-Q4.gguf")
    blob = put_in_ollama(home / ".ollama/models", GGUF + b"1")

    for name in ("org/Model/Model-Q4.gguf", "org/model/model-q4", "Model-Q4.gguf", "model-q4"):
        assert (found := find_model(name))
        assert found.path == pointer
    for name in ("tiny", "tiny:latest", "TINY"):
        assert (found := find_model(name))
        assert found.path == blob
    assert find_model("nothing") is None


def test_a_name_that_could_be_several_lists_them(home: Path) -> None:
    """There is no guess."""
    put_in_hub(home / ".cache/huggingface/hub", "org/one", "model.gguf")
    put_in_hub(home / ".cache/huggingface/hub", "org/two", "model.gguf", GGUF + b"2")

    with pytest.raises(ModelNotFound, match=r"org/one/model\.gguf, org/two/model\.gguf"):
        find_model("model")


def test_models_of_a_folder_are_those_beside_a_file(tmp_path: Path) -> None:
    """Each by its file name; a missing folder has none."""
    put(tmp_path / "a.gguf")
    put(tmp_path / "deeper/b.gguf")
    put(tmp_path / "c.txt")

    assert [model.name for model in models_in(tmp_path)] == ["a.gguf"]
    assert models_in(tmp_path / "none") == ()
    assert model_at(tmp_path / "none.gguf") is None
