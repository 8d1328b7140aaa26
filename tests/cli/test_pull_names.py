"""`specchat pull` with repositories, quantizations, pages, paths and other programs' names."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from hub_server import HubServer
from local_folders import GGUF, put_in_ollama
from scripts.support.other_vocabulary import write_copy
from specchat.catalogue.catalogue_file import load_entries
from specchat.catalogue.draft_offers import expected_speedup
from specchat.catalogue.pairs import find_pair
from specchat.cli import main, pull
from specchat.hub.cache import find_present
from specchat.hub.names import parse
from specchat.planning.device import Machine

REPO = "org/Some-7B-GGUF"


class Terminal(io.StringIO):
    """Input that is typed."""

    def isatty(self) -> bool:
        """Return True."""
        return True


@pytest.fixture(autouse=True)
def _alone(hub: HubServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No other models, and a machine with known memory."""
    for name in ("HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME", "XDG_STATE_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name))
    monkeypatch.delenv("OLLAMA_MODELS", raising=False)
    monkeypatch.setattr(pull, "find_machine", lambda: Machine(10**9, ()))


@pytest.fixture
def models(hub: HubServer, tiny: WriteModel) -> dict[str, bytes]:
    """Put a target in three quantizations on the hub, and return their bytes."""
    large: dict[str, Any] = {"width": 128, "feed_forward": 512, "num_layers": 8}
    content = tiny("llama", **large).read_bytes()
    for name in ("Some-7B-Q8_0.gguf", "Some-7B-Q4_K_M.gguf", "Some-7B-Q2_K.gguf"):
        hub.put(REPO, name, content, commit="c" * 40)
    return {"target": content, "draft": tiny("llama").read_bytes()}


def test_a_repository_lists_its_models_and_offers_the_best(
    models: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """With size and fit; Enter takes it."""
    monkeypatch.setattr(sys, "stdin", Terminal("\n"))
    assert main(["pull", REPO]) == 0
    out, err = capsys.readouterr()
    lines = err.splitlines()

    assert lines[0] == f"{REPO} has:"
    assert [line.split()[0] for line in lines[1:4]] == ["Q2_K", "Q4_K_M", "Q8_0"]
    assert all(line.endswith("fits in memory") for line in lines[1:4])
    assert "pull Q4_K_M (" in lines[4]
    assert Path(out.splitlines()[0]).name == "Some-7B-Q4_K_M.gguf"


def test_nothing_is_fetched_if_it_is_declined(
    models: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """How to take another is said."""
    monkeypatch.setattr(sys, "stdin", Terminal("n\n"))
    assert main(["pull", REPO]) == 1
    assert f"`specchat pull {REPO}:NAME` pulls another" in capsys.readouterr().err
    assert find_present(parse(f"{REPO}/Some-7B-Q4_K_M.gguf")) is None


def test_without_a_terminal_the_command_is_named(
    models: dict[str, bytes], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The list is shown all the same."""
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert main(["pull", f"https://huggingface.co/{REPO}/tree/main".replace(
        "https://huggingface.co", "hf.co")]) == 2  # fmt: skip
    message = capsys.readouterr().err
    assert "Q8_0" in message
    assert f"`specchat pull {REPO}:Q4_K_M` pulls the best of them" in message


@pytest.mark.parametrize("name", [f"{REPO}:Q8_0", f"hf.co/{REPO}:q8_0", f" {REPO}:Some-7B-Q8_0 "])
def test_a_quantization_is_pulled(
    models: dict[str, bytes], name: str, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second time nothing is asked of the hub."""
    assert main(["pull", name]) == 0
    assert Path(capsys.readouterr().out.splitlines()[0]).read_bytes() == models["target"]
    hub.seen.clear()
    assert main(["pull", name]) == 0
    assert "already installed" in capsys.readouterr().err
    assert hub.seen == []
    assert main(["pull", "--check", name]) == 0


@pytest.mark.parametrize("name", [REPO, f"{REPO}:Q8_0", f"hf.co/{REPO}"])
def test_it_is_checked_and_removed_by_the_same_name(
    models: dict[str, bytes], name: str, hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Without asking the hub; a second time there is nothing."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    hub.seen.clear()
    capsys.readouterr()
    assert main(["pull", "--check", name]) == 0
    assert capsys.readouterr().out == f"right: {REPO}/Some-7B-Q8_0.gguf\n"
    assert main(["show", name]) == 0
    assert main(["rm", "--yes", name]) == 0
    assert find_present(parse(f"{REPO}/Some-7B-Q8_0.gguf")) is None
    assert hub.seen == []
    assert main(["pull", "--check", name]) == 1
    assert "is not installed: `specchat pull" in capsys.readouterr().err


def test_a_quantization_that_is_not_there_is_named(
    models: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """With those that are."""
    assert main(["pull", f"{REPO}:Q3_K_M"]) == 1
    assert "which has Some" not in (err := capsys.readouterr().err)
    assert "is not in the repository, which has Q8_0, Q4_K_M, Q2_K" in err


def test_a_name_with_spaces_and_accents_is_pulled(
    hub: HubServer, models: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """As a path, and as the address that a browser shows."""
    file = "Ein Modell für É 100%.gguf"
    hub.put("org/accents", file, models["draft"])
    assert main(["pull", f"org/accents/{file}"]) == 0
    assert Path(capsys.readouterr().out.splitlines()[0]).name == file
    page = f"{hub.address}/org/accents/blob/main/Ein%20Modell%20f%C3%BCr%20%C3%89%20100%25.gguf"
    assert main(["pull", f"{page}?download=true"]) == 0
    assert "already installed" in capsys.readouterr().err


def test_a_repository_that_is_not_there_is_one_line(
    models: dict[str, bytes], capsys: pytest.CaptureFixture[str]
) -> None:
    """As for a file."""
    assert main(["pull", "org/nothing"]) == 1
    assert "there is no org/nothing at" in (err := capsys.readouterr().err)
    assert err.count("\n") == 1


def test_a_repository_without_models_says_where_to_look(
    hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """Most models are quantized by others."""
    hub.put("org/only-weights", "model.safetensors", bytes(9000))
    assert main(["pull", "org/only-weights"]) == 1
    assert "has no GGUF model: look for a repository" in capsys.readouterr().err


def test_offline_a_repository_is_not_asked(
    models: dict[str, bytes], hub: HubServer, capsys: pytest.CaptureFixture[str]
) -> None:
    """What is here is found all the same."""
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    hub.seen.clear()
    assert main(["pull", "--offline", f"{REPO}:Q8_0"]) == 0
    assert main(["pull", "--offline", f"{REPO}:Q4_K_M"]) == 1
    assert "offline, so org/Some-7B-GGUF cannot be listed" in capsys.readouterr().err
    assert hub.seen == []


@pytest.mark.parametrize("answer", ["", "y\n"])
def test_a_draft_of_the_same_organization_is_offered(
    models: dict[str, bytes],
    hub: HubServer,
    answer: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Of the same family and vocabulary, with the gain to expect; only its header is read first."""
    hub.put("org/Some-0.5B-GGUF", "Some-0.5B-Q4_K_M.gguf", models["draft"])
    hub.put("org/Some-0.5B-Coder-GGUF", "Coder-0.5B-Q4_K_M.gguf", models["draft"])
    monkeypatch.setattr(sys, "stdin", Terminal(answer) if answer else io.StringIO())
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    out, err = capsys.readouterr()
    share = len(models["draft"]) / len(models["target"])

    assert "a draft model for it: org/Some-0.5B-GGUF/Some-0.5B-Q4_K_M.gguf (from org too" in err
    assert f"same vocabulary, {len(models['draft']) / 1e3:.0f} kB, 1/{1 / share:.0f} of" in err
    assert f"{expected_speedup(0.7, share):.1f}x faster where 70 % of its drafts" in err
    command = (
        f"`specchat pull {REPO}/Some-7B-Q8_0.gguf --draft org/Some-0.5B-GGUF/Some-0.5B-Q4_K_M.gguf`"
    )
    assert (f"{command} fetches it too" in err) == (not answer)
    assert len(out.splitlines()) == 1 + bool(answer)
    assert ("--draft" in err.splitlines()[-1]) == bool(answer)


def test_a_draft_that_does_not_fit_is_not_offered(
    models: dict[str, bytes],
    hub: HubServer,
    tiny: WriteModel,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Too large, or with another vocabulary, or not a model."""
    other = tmp_path / "other.gguf"
    write_copy(tiny("llama"), other, share=0.05)
    hub.put("org/Some-0.5B-GGUF", "Some-0.5B-Q4_K_M.gguf", models["target"])
    hub.put("org/Some-1B-GGUF", "Some-1B-Q4_K_M.gguf", b"GGUF" + bytes(5000))
    hub.put("org/Some-2B-GGUF", "Some-2B-Q4_K_M.gguf", other.read_bytes())
    assert main(["pull", f"{REPO}:Q8_0"]) == 0
    err = capsys.readouterr().err
    assert "a draft model for it" not in err
    assert "no draft model was found for it" in err


def test_a_file_of_this_machine_becomes_a_pair(
    tiny: WriteModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named after the file; a second time it stays that pair."""
    path = tmp_path / "my models" / "Tést model.gguf"
    path.parent.mkdir()
    path.write_bytes(tiny("llama").read_bytes())
    for _ in range(2):
        assert main(["pull", str(path)]) == 0
        out, err = capsys.readouterr()
        assert out == f"{path}\n"
        assert err.splitlines()[-1] == "ready: specchat ask --pair Test-model"
    assert load_entries()["Test-model"].target == path
    assert find_pair("Test-model").target == path


def test_the_models_of_a_folder_become_pairs(
    tiny: WriteModel, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those that can answer, each with the draft that suits it; the catalogue's names stay."""
    folder = tmp_path / "models"
    folder.mkdir()
    large: dict[str, Any] = {"width": 128, "feed_forward": 512, "num_layers": 8}
    (folder / "demo.gguf").write_bytes(tiny("llama", **large).read_bytes())
    (folder / "small.gguf").write_bytes(tiny("llama").read_bytes())
    (folder / "mmproj-x.gguf").write_bytes(GGUF)
    assert main(["pull", str(folder)]) == 0
    message = capsys.readouterr().err
    assert "demo-2: small.gguf drafts for it, beside it: same vocabulary" in message
    assert load_entries()["demo-2"].draft == folder / "small.gguf"
    assert "small: saved without a draft model" in message
    assert "mmproj" not in message


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["{tmp}/none.gguf"], 2, "invalid Hugging Face repository name"),
        (["{tmp}/text.gguf"], 1, "is a text file"),
        (["{tmp}/empty"], 1, "has no GGUF model"),
        (["{tmp}/text.gguf", "--check"], 2, "--check goes with files of the hub"),
        (["llama3.2:1b"], 1, "`ollama pull llama3.2:1b` fetches a model of Ollama"),
        (["nothing"], 1, "there is no pair named 'nothing'"),
    ],
)
def test_what_cannot_be_pulled_is_one_line(
    words: list[str], code: int, said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It says what it is and what to do."""
    (tmp_path / "text.gguf").write_text("text")
    (tmp_path / "empty").mkdir()
    assert main(["pull", *(word.format(tmp=tmp_path) for word in words)]) == code
    err = capsys.readouterr().err
    assert said in err
    assert err.count("\n") == 1


def test_a_model_of_ollama_is_here_already(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Its path is printed, and how to use it."""
    blob = put_in_ollama(tmp_path / "HOME/.ollama/models")
    assert main(["pull", "tiny"]) == 0
    out, err = capsys.readouterr()
    assert out == f"{blob}\n"
    assert err.splitlines() == [
        "tiny:latest is already here, from Ollama",
        "ready: specchat ask --target tiny",
    ]
