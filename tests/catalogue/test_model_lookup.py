"""A model on this machine, by whatever a user calls it."""

from __future__ import annotations

from pathlib import Path

import pytest

from local_folders import GGUF, put, put_in_hub, put_in_ollama
from specchat.catalogue.catalogue_file import own_catalogue_path, read_catalogue
from specchat.catalogue.model_lookup import find_model, find_path
from specchat.catalogue.pairs import file_of
from specchat.errors import InvalidOption, ModelNotFound

REPO = "Org/Some-7B-GGUF"


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a home with models of the hub, LM Studio and Ollama."""
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "HF_HOME", "HF_HUB_CACHE",
                 "OLLAMA_MODELS", "LLAMA_CACHE"):  # fmt: skip
        monkeypatch.delenv(name, raising=False)
    hub = tmp_path / ".cache/huggingface/hub"
    put_in_hub(hub, REPO, "Some-7B-Q4_K_M.gguf")
    put_in_hub(hub, REPO, "Some-7B-Q8_0.gguf", GGUF + b"8")
    put_in_hub(hub, "Org/Tiny-GGUF", "sub/tiny.gguf", GGUF + b"t")
    put(tmp_path / ".lmstudio/models/pub/Other-3B-GGUF/Other-3B-Q6_K.gguf", GGUF + b"l")
    put_in_ollama(tmp_path / ".ollama/models", GGUF + b"o", "registry.ollama.ai/library/llama/1b")
    return tmp_path


@pytest.mark.parametrize(
    ("name", "file"),
    [
        (f"{REPO}:Q8_0", "Some-7B-Q8_0.gguf"),
        ("org/some-7b-gguf:q4_k_m", "Some-7B-Q4_K_M.gguf"),
        (f"hf.co/{REPO}:Q8_0", "Some-7B-Q8_0.gguf"),
        (f"https://huggingface.co/{REPO}/blob/main/Some-7B-Q8_0.gguf?x=1", "Some-7B-Q8_0.gguf"),
        ("Org/Tiny-GGUF", "tiny.gguf"),
        ("https://huggingface.co/Org/Tiny-GGUF/tree/main/sub", "tiny.gguf"),
        ("some-7b@q8_0", "Some-7B-Q8_0.gguf"),
        ("pub/Other-3B-GGUF", "Other-3B-Q6_K.gguf"),
        ("other-3b", "Other-3B-Q6_K.gguf"),
        ("other-3b:Q6_K", "Other-3B-Q6_K.gguf"),
    ],
)
def test_a_model_is_found_as_other_programs_name_it(home: Path, name: str, file: str) -> None:
    """llama.cpp's and Ollama's form, a page, LM Studio's key with "@"."""
    found = find_model(name)
    assert found is not None
    assert found.path.name == file
    assert file_of(name) == found.path


def test_ollamas_name_is_found(home: Path) -> None:
    """With its tag."""
    assert file_of("llama:1b").parent == home / ".ollama/models/blobs"


@pytest.mark.parametrize("name", [REPO, "some-7b"])
def test_several_quantizations_are_listed(home: Path, name: str) -> None:
    """One has to be named."""
    with pytest.raises(ModelNotFound, match=r"choose one of .*Q4_K_M\.gguf, .*Q8_0\.gguf"):
        file_of(name)


@pytest.mark.parametrize(
    ("name", "words"),
    [
        (f"{REPO}:Q6_K", f"`specchat pull {REPO}:Q6_K` fetches it from the hub"),
        ("org/none/x.gguf", "`specchat pull org/none/x.gguf` fetches it from the hub"),
        ("none/x.gguf", "no such file or local model: check the path"),
        ("./org/none/x.gguf", "no such file or local model: check the path"),
    ],
)
def test_what_is_not_here_says_how_to_get_it(home: Path, name: str, words: str) -> None:
    """Only what can be a name on the hub is offered from there."""
    with pytest.raises(ModelNotFound) as raised:
        file_of(name)
    assert words in str(raised.value)


def test_a_folder_stands_for_its_only_model(home: Path, tmp_path: Path) -> None:
    """With several, or none, a file has to be named."""
    folder = tmp_path / "folder"
    model = put(folder / "m.gguf")
    assert find_path(str(folder)) == model
    put(folder / "n.gguf")
    with pytest.raises(ModelNotFound, match=r"with 2 models \(m\.gguf, n\.gguf\): name a file"):
        find_path(str(folder))
    (tmp_path / "empty").mkdir()
    with pytest.raises(ModelNotFound, match="without a GGUF model"):
        find_path(str(tmp_path / "empty"))


@pytest.mark.parametrize(
    ("target", "file"),
    [
        ("llama:1b", None),
        ("other-3b", "Other-3B-Q6_K.gguf"),
        (f"{REPO}:Q8_0", "Some-7B-Q8_0.gguf"),
        ("hf.co/a/b/c.gguf", "c.gguf"),
    ],
)
def test_models_toml_takes_the_same_names(home: Path, target: str, file: str | None) -> None:
    """Of models that are here, or of a file on the hub by its address."""
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(
        f'[pair.mine]\ndescription = "Mine"\ntarget = "{target}"\n', "utf-8"
    )
    found = read_catalogue()
    assert found.mistakes == ()
    assert file is None or found.entries["mine"].target.name == file


@pytest.mark.parametrize(
    ("target", "words"),
    [
        (f"{REPO}:Q2_K", f"line 3: pair mine: {REPO}:Q2_K is not here: `specchat pull"),
        ("nothing", "there is no [file.nothing], and it is neither"),
        (REPO.replace("/", ":") + "@", "there is no [file."),
        ("some-7b", "is ambiguous"),
    ],
)
def test_a_name_in_models_toml_that_is_not_here_has_its_line(
    home: Path, target: str, words: str
) -> None:
    """And the next step."""
    own_catalogue_path().parent.mkdir(parents=True)
    own_catalogue_path().write_text(
        f'[pair.mine]\ndescription = "Mine"\ntarget = "{target}"\n', "utf-8"
    )
    (mistake,) = read_catalogue().mistakes
    assert words in mistake


@pytest.mark.parametrize(
    "target", ["sub/foo:v1.gguf", "sub/there:Q4", "https://[bad/x", "~nobody-x/a"]
)
def test_a_path_in_models_toml_stays_one(home: Path, target: str) -> None:
    """What ends in .gguf or exists is a path; what cannot be read is one line."""
    folder = own_catalogue_path().parent
    put(folder / "sub/there:Q4")
    own_catalogue_path().write_text(
        f'[pair.mine]\ndescription = "Mine"\ntarget = "{target}"\n', "utf-8"
    )
    found = read_catalogue()
    if target.startswith("sub"):
        assert found.entries["mine"].target == folder / target
    else:
        assert len(found.mistakes) == 1
        assert "line 3: pair mine: " in found.mistakes[0]


@pytest.mark.parametrize(
    "name", ["https://[bad/x", "~nobody-x/a", "a\0b", "x/" * 3000, "\udcff/a", "", "~", "a/b:"]
)
def test_any_name_is_found_or_not(home: Path, name: str) -> None:
    """However odd it is."""
    with pytest.raises((ModelNotFound, InvalidOption)):
        file_of(name)
