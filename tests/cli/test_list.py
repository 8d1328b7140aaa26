"""`specchat list` and the names it tells: what other programs brought is found and usable."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import WriteModel
from local_folders import GGUF, put, put_in_hub, put_in_ollama
from specchat.cli import main

ROOT = Path(__file__).parents[2]


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home folder of the test's own."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / ".cache"))
    return tmp_path


def listed(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    """Return what `list --json` prints."""
    assert main(["list", "--json"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    return told


def test_local_models_are_listed_by_their_names(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """With their sizes, the program that brought them, and the file."""
    blob = put_in_ollama(home / ".ollama/models")

    told = listed(capsys)
    assert told["local"] == [
        {"name": "tiny:latest", "from": "Ollama", "bytes": len(GGUF), "path": str(blob)}
    ]
    assert main(["list"]) == 0
    assert capsys.readouterr().out.splitlines()[-1].split() == [
        "tiny:latest",
        "24",
        "bytes",
        "Ollama",
    ]


def test_what_belongs_to_a_pair_is_listed_with_the_pair(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And not once more as a local model, though another program put it there."""
    put(
        home / ".config/specchat/models.toml",
        b"""
        [pair.mine]
        description = "mine"
        target = { repository = "org/model", file = "a.gguf" }
        """,
    )
    put_in_hub(home / ".cache/huggingface/hub", "org/model", "a.gguf")
    put_in_hub(home / ".cache/huggingface/hub", "org/model", "b.gguf", GGUF + b"2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
        told = listed(capsys)

    assert next(row for row in told["models"] if row["name"] == "mine")["here"]
    assert [row["name"] for row in told["local"]] == ["org/model/b.gguf"]


def test_a_name_that_would_write_to_the_terminal_is_shown_harmless(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """File names are untrusted."""
    put(home / ".lmstudio/models/a/b/red\x1b[31m.gguf")
    assert main(["list"]) == 0

    assert "\x1b" not in capsys.readouterr().out


def ask(*words: str) -> subprocess.CompletedProcess[str]:
    """Ask in a process of its own, which has a standard input."""
    command = [sys.executable, "-m", "specchat", "ask", "hi", "--threads", "1", *words]
    return subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
        stdin=subprocess.DEVNULL,
    )  # fmt: skip


def test_a_local_model_answers_by_its_name(home: Path, tiny: WriteModel) -> None:
    """Where it lies: nothing is copied."""
    put_in_ollama(home / ".ollama/models", tiny("llama").read_bytes())
    done = ask("--target", "tiny", "--max-tokens", "3", "--json")

    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["stats"]["generated_tokens"] == 3


def test_a_name_of_no_model_is_an_error_in_one_line(home: Path) -> None:
    """As a path that leads nowhere is."""
    done = ask("--target", "nothing")

    assert done.returncode == 1
    assert done.stderr.startswith("specchat: nothing: no such file")
    assert done.stderr.count("\n") == 1
