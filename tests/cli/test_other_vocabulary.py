"""What commands say of a draft model with another vocabulary."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from conftest import WriteModel
from in_process import run_here as run
from other_vocabulary import write_copy
from specchat.cli import main

FAST = ["--threads", "1", "--ctx", "512", "--max-tokens", "20"]
SAID = "another vocabulary, 95 % of it in common"


@pytest.fixture
def files(tiny: WriteModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    """A target of 3.3 MB and a draft for it in a folder, and folders of the test's own."""
    for name in ("HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_STATE_HOME", "HF_HUB_CACHE"):
        monkeypatch.setenv(name, str(tmp_path / name))
    folder = tmp_path / "models"
    folder.mkdir()
    target, draft = folder / "target.gguf", folder / "small.gguf"
    shutil.copy(tiny("llama", width=128, feed_forward=512, num_layers=8), target)
    write_copy(tiny("llama"), draft, share=0.05)
    return target, draft


@pytest.mark.slow
def test_check_passes_and_says_so(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """In a note, and in JSON as the share."""
    pair = ["--target", str(files[0]), "--draft", str(files[1]), *FAST]
    assert main(["check", *pair]) == 0
    assert f"Note: the draft model has {SAID}." in capsys.readouterr().out.splitlines()
    assert main(["check", *pair, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["common_tokens"] == pytest.approx(0.95, abs=0.01)


def test_it_is_found_beside_the_target_and_used(
    files: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    """`show` and `ask` say which and why."""
    assert main(["show", str(files[0])]) == 0
    shown = f"small.gguf beside it: {SAID}, 1/"
    assert f"draft        {shown}" in capsys.readouterr().out

    words = ["ask", "hello", "--raw", "--target", str(files[0]), *FAST, "--draft-length", "3"]
    done = run(*words, "--drafter", "model", "--json")
    assert done.returncode == 0
    said = done.stderr.decode()
    assert f"draft: {shown}" in said
    assert said.count("another vocabulary") == 1
    assert json.loads(done.stdout)["stats"]["drafted"] > 0
