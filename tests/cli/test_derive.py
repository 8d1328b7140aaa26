"""`specchat derive`: a draft out of a target, kept if it pays, used, shown and removed."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from derivation.calm_layers import write_calm_target
from specchat.catalogue.local_models import derived_folder
from specchat.cli import main
from specchat.gguf.origin import origin_of
from specchat.gguf.reader import read_header

QUICK = ("--time", "5s", "--threads", "1", "--ctx", "512")
Command: TypeAlias = Callable[..., tuple[int, Any, str]]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each test's drafts to itself."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.setattr(sys, "stdin", None)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs a command with --json; returns code, record and errors."""

    def run_main(*words: str | Path) -> tuple[int, Any, str]:
        code = main([*map(str, words), "--json"])
        out, errors = capsys.readouterr()
        return code, json.loads(out) if out else None, errors

    return run_main


@pytest.fixture
def target(tmp_path: Path) -> Path:
    """Return a target whose later layers matter little."""
    (tmp_path / "models").mkdir()
    return write_calm_target(tmp_path / "models" / "calm.gguf", num_layers=6)


def test_a_draft_is_made_and_used_and_removed(
    target: Path, run: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """It records its origin, answers draft with it, lists show it, and rm deletes it."""
    code, made, errors = run("derive", target, *QUICK, "--keep-slower")
    assert (code, errors) == (0, "")
    draft = Path(made["path"])
    origin = origin_of(read_header(draft))
    assert origin is not None
    assert (origin.target, origin.method[:4]) == ("tiny llama 3", "skip")
    assert read_header(draft).num_layers == 6 - len(made["left_out"])
    assert 0 < made["predicted"]["greedy"] <= 1
    assert made["predicted_where_passes_are_cheap"]["speedup"] > 0
    assert draft.parent == derived_folder()
    assert [path.name for path in derived_folder().iterdir()] == [draft.name]

    _, listed, _ = run("list")
    (local,) = [each for each in listed["local"] if each["path"] == str(draft)]
    assert local["origin"] == {"target": "tiny llama 3", "method": origin.method}
    _, shown, _ = run("show", draft.name)
    assert shown["origin"]["target_sha256"] == origin.target_sha256
    _, answer, _ = run(
        "ask", "hi", "--target", target, "--draft", draft, "--drafter", "model", "--max-tokens", "4"
    )
    assert answer["model"]["draft"].startswith("tiny llama 3, ")
    assert main(["rm", draft.name, "--yes"]) == 0
    assert "deleted" in capsys.readouterr().err
    assert list(derived_folder().iterdir()) == []
