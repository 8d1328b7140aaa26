"""`specchat derive`: what it refuses, and how a draft that it kept is used, shown and removed."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from conftest import WriteModel
from derivation.changed_models import fine_tune
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.local_models import derived_folder
from specchat.catalogue.pairs import save_pair
from specchat.cli import main
from specchat.derivation.derived_files import derived_path, deriving_alone, keep_file
from specchat.errors import SpecchatError
from specchat.gguf.origin import DraftOrigin, fingerprints
from specchat.gguf.reader import read_header
from specchat.settings.sources import read_settings
from specchat.system.private_files import make_private
from tables import table

SHORT = ("--max-tokens", "4", "--threads", "1", "--ctx", "512", "--exact", "off")
METHODS = ("train: 60 min", "skip: 3 of 6 layers kept")
"""Training, and what an earlier version did, whose drafts stay in use."""
Command: TypeAlias = Callable[..., tuple[int, Any, str]]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each test's drafts and tuned settings to itself."""
    for name in ("DATA", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
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
def target(tiny: WriteModel, tmp_path: Path) -> Path:
    """Return a target in a folder without other models."""
    (tmp_path / "models").mkdir()
    return Path(shutil.copy(tiny("llama", num_layers=6), tmp_path / "models" / "target.gguf"))


@pytest.fixture
def keep(tiny: WriteModel, target: Path) -> Callable[[str, float], Path]:
    """Return a function that keeps a draft for the target as `derive` does."""

    def keep_draft(method: str, speedup: float) -> Path:
        header = read_header(target)
        path = derived_path(header, method.partition(":")[0])
        make_private(path.parent)
        model = fingerprints(header).model
        origin = DraftOrigin(model, header.name, method, "answers", f"{speedup:.3f}")
        named = {**origin.metadata, "general.name": "the draft"}
        keep_file(tiny("llama", num_layers=3), path, named)
        return path

    return keep_draft


def test_a_draft_is_listed_and_used_and_removed(
    target: Path, keep: Callable[..., Path], run: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Lists show its origin, answers draft with it, and rm deletes it."""
    draft = keep(METHODS[0], 1.2)
    assert [path.name for path in derived_folder().iterdir()] == [draft.name]
    assert draft.stat().st_mode & 0o777 == 0o600

    _, listed, _ = run("list")
    (local,) = [each for each in listed["local"] if each["path"] == str(draft)]
    assert local["origin"] == {"target": read_header(target).name, "method": METHODS[0]}
    _, shown, _ = run("show", draft.name)
    assert shown["origin"]["target_sha256"] == fingerprints(read_header(target)).model
    _, answer, _ = run(
        "ask", "hi", "--target", target, "--draft", draft, "--drafter", "model", *SHORT
    )
    assert answer["model"]["draft"] == "the draft"
    assert main(["rm", draft.name, "--yes"]) == 0
    assert "deleted" in capsys.readouterr().err
    assert list(derived_folder().iterdir()) == []


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("method", METHODS, ids=["trained", "of fewer layers"])
def test_a_draft_that_pays_is_chosen_for_its_target(
    method: str,
    target: Path,
    keep: Callable[..., Path],
    run: Command,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Named by its file or as a saved pair; for a fine-tuned version of the target, with a note."""
    draft = keep(method, 1.2)
    for name in ("first", "tuned"):
        shutil.copy(target, tmp_path / f"{name}.gguf")
    save_pair("mine", tmp_path / "first.gguf", None)
    tuned = tmp_path / "tuned.gguf"
    fine_tune(tuned)

    for words in (["--target", target], ["--pair", "mine"]):
        _, answer, errors = run("ask", "hi", *words, *SHORT)
        assert answer["model"]["draft"] == "the draft"
        assert f"derived from it, predicted 1.20x faster, {method}" in errors
    _, answer, _ = run("ask", "hi", "--pair", "mine", "--draft", "none", *SHORT)
    assert answer["model"]["draft"] is None
    best = find_drafts(tuned).best
    assert best is not None
    name = read_header(target).name
    assert best.why.startswith(f"derived from {name}, whose weights are others, predicted")
    assert main(["ask", "hi", "--target", str(tuned), "--draft", str(draft), *SHORT]) == 0
    assert f"was made for other weights, {name}" in capsys.readouterr().err
    assert find_drafts(target).fitting[0].model.path == draft  # as `tune` tries them


def test_a_draft_that_does_not_pay_is_not_chosen(target: Path, keep: Callable[..., Path]) -> None:
    """One that was kept on request is used only if it is named."""
    keep(METHODS[0], 1.01)
    assert find_drafts(target).best is None
    assert [why for _, why in find_drafts(target).unfit] == ["no speedup was predicted for it"]


def test_only_one_draft_is_derived_at_a_time() -> None:
    """The second one fails and leaves the first one's files; the next deletes leftovers."""
    with deriving_alone():
        for name in ("a.scratch", "a.writing", "a.scratch0815.new", "kept.gguf"):
            (derived_folder() / name).touch()
        with pytest.raises(SpecchatError, match="another draft is being derived: wait"):
            deriving_alone().__enter__()
        assert len(list(derived_folder().iterdir())) == 4
    with deriving_alone():
        assert [path.name for path in derived_folder().iterdir()] == ["kept.gguf"]


@table(
    ("words", "code", "message"),
    [
        (["none.gguf", "--train", "1h"], 1, "no such file"),
        (["damaged.gguf", "--train", "1h"], 1, "unfinished download"),
        (["target.gguf", "--train", "10"], 2, "'10' is not a time: write 90s, 10m or 2h"),
        (["target.gguf", "--train", "0s"], 2, "'0s' is not a time"),
        (["target.gguf"], 2, "the following arguments are required: --train"),
        (["--train", "1h"], 2, "the following arguments are required: TARGET"),
    ],
)
def test_what_is_wrong_is_said_in_one_line(
    words: list[str],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With the exit code of a failure or of a usage error."""
    (tmp_path / "damaged.gguf").write_bytes(b"GGUF\3\0\0\0damaged")
    monkeypatch.chdir(tmp_path)

    assert main(["derive", *words]) == code
    (line,) = capsys.readouterr().err.splitlines()
    assert message in line


def test_rm_deletes_the_draft_of_that_very_name(tmp_path: Path) -> None:
    """Not one whose name differs in case, nor what is in folders beside the drafts."""
    make_private(derived_folder())
    (tmp_path / "others").mkdir()
    (derived_folder() / "linked").symlink_to(tmp_path / "others")
    other = tmp_path / "others" / "mine.gguf"
    drafts = [derived_folder() / name for name in ("A-skip.gguf", "a-skip.gguf")]
    for path in (other, *drafts):
        path.write_bytes(b"GGUF")
    assert len(set(derived_folder().glob("*-skip.gguf"))) == len(drafts) or pytest.skip("no case")

    assert main(["rm", "a-skip", "--yes"]) == 0
    assert [path.exists() for path in drafts] == [True, False]
    assert main(["rm", "a-skip", "--yes"]) == 0
    assert not drafts[0].exists()
    assert main(["rm", "linked/mine", "--yes"]) != 0
    assert other.exists()


def test_rm_keeps_a_draft_that_a_pair_or_a_setting_names(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which would not work any more; afterwards it is deleted."""
    make_private(derived_folder())
    draft = derived_folder() / "a-skip.gguf"
    draft.write_bytes(b"GGUF")
    (tmp_path / "target.gguf").write_bytes(b"GGUF")
    save_pair("mine", tmp_path / "target.gguf", draft)

    assert main(["rm", "a-skip", "--yes"]) == 1
    assert "pair mine needs a-skip.gguf: name another file" in capsys.readouterr().err
    assert draft.exists()
    assert main(["rm", "mine", "--yes"]) == 0
    settings = read_settings().path
    settings.write_text(f"[model]\ndraft = '{draft}'\n")
    assert main(["rm", "a-skip", "--yes"]) == 1
    assert "model.draft in " in capsys.readouterr().err
    settings.unlink()
    assert main(["rm", "a-skip", "--yes"]) == 0
    assert not draft.exists()
