"""`specchat tune`: it tries what is there, keeps the best, and later calls use it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from conftest import WriteModel
from local_folders import put_in_ollama
from specchat.catalogue import tuned_settings as tuned
from specchat.catalogue.tuned_settings import Tuned, find_tuned, keep_tuned, tuned_path
from specchat.cli import tune

ROOT = Path(__file__).parents[2]


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    """Run specchat to its end."""
    return subprocess.run(
        [sys.executable, "-m", "specchat", *map(str, words), "--threads", "1"],
        capture_output=True, text=True, check=False, cwd=ROOT, timeout=120,
    )  # fmt: skip


@pytest.fixture
def folder(tiny: WriteModel, tmp_path: Path) -> Path:
    """A folder with a target, a draft that fits and one that does not."""
    shutil.copy(tiny("llama", width=128, feed_forward=512), tmp_path / "target.gguf")
    shutil.copy(tiny("llama"), tmp_path / "fits.gguf")
    shutil.copy(tiny("qwen3", vocabulary=600), tmp_path / "unfit.gguf")
    return tmp_path


def test_the_best_of_what_is_there_is_kept_and_used(folder: Path) -> None:
    """Drafts beside the target are tried, the unfit one is named, and asking uses the choice."""
    target = folder / "target.gguf"
    done = run("tune", "--target", target, "--rounds", "1", "--max-tokens", "6", "--json")
    told = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert {entry["drafter"] for entry in told["tried"]} == {"auto", "model", "suffix"}
    assert any("unfit" in reason or "does not fit" in reason for reason in told["refused"])
    assert find_tuned(target) == Tuned(**told["kept"])
    asked = run("ask", "hi", "--target", target, "--max-tokens", "3", "--json")
    answer = json.loads(asked.stdout)
    used = {"auto": ("suffix+model", "suffix"), "none": ("none",)}.get(
        told["kept"]["drafter"], (told["kept"]["drafter"],)
    )
    assert answer["drafter"] in used


def test_named_drafts_alone_are_tried(folder: Path) -> None:
    """And the table says which was kept."""
    done = run(
        "tune", "--target", folder / "target.gguf", "--draft", folder / "fits.gguf",
        "--rounds", "1", "--max-tokens", "6",
    )  # fmt: skip

    assert done.returncode == 0
    assert "fits.gguf" in done.stdout
    assert "saved for this target" in done.stdout
    assert "not measured" not in done.stdout


def test_a_draft_may_be_named_as_list_names_it(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As for `ask`; a name that nothing here has is told at once."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    blob = put_in_ollama(tmp_path / "ollama", (folder / "fits.gguf").read_bytes())
    words = ("tune", "--target", folder / "target.gguf", "--rounds", "1", "--max-tokens", "6")

    done = run(*words, "--draft", "tiny", "--json")
    missing = run(*words, "--draft", "tinier")

    assert {entry["draft"] for entry in json.loads(done.stdout)["tried"]} == {str(blob), None}
    assert missing.returncode == 1
    assert missing.stderr.startswith("specchat: tinier: no such file")


def test_none_is_a_way_to_go_without_a_draft_model(folder: Path) -> None:
    """As for `ask`: alone, or beside drafts that are tried too."""
    target, draft = folder / "target.gguf", folder / "fits.gguf"
    short = ("--rounds", "1", "--max-tokens", "6", "--json")
    alone = run("tune", "--target", target, "--draft", "none", *short)
    both = run("tune", "--target", target, "--draft", draft, "--draft", "none", *short)

    assert (alone.returncode, alone.stderr, both.returncode) == (0, "", 0)
    tried, others = (json.loads(done.stdout)["tried"] for done in (alone, both))
    assert [(each["drafter"], each["draft"]) for each in tried] == [
        ("auto", None),
        ("suffix", None),
    ]
    assert [each["drafter"] for each in others] == ["auto", "model", "suffix", "auto", "suffix"]


@pytest.mark.parametrize(
    ("drafter", "draft", "may_add_draft", "kept"),
    [
        ("auto", None, False, "suffix"),
        ("auto", None, True, "auto"),
        ("auto", "d.gguf", False, "auto"),
        ("none", None, False, "none"),
    ],
)
def test_a_target_that_goes_without_a_draft_model_keeps_going_without(
    drafter: str, draft: str | None, may_add_draft: bool, kept: str
) -> None:
    """`auto` would take a pair's own draft model later, though none was to be used."""
    best = tune._Candidate(drafter, draft, 1.5, 1.4, 1.6, 0.5)
    assert tune._tuned(best, may_add_draft=may_add_draft) == Tuned(kept, draft, 1.5)


def test_what_was_kept_is_the_users_alone_and_checked(tmp_path: Path) -> None:
    """A draft that is gone, or nonsense in the file, is as if nothing had been kept."""
    target, draft = tmp_path / "t.gguf", tmp_path / "d.gguf"
    target.write_bytes(b"x" * 100)
    draft.write_bytes(b"x")
    keep_tuned(target, Tuned("auto", str(draft), 1.5))

    assert find_tuned(target) == Tuned("auto", str(draft), 1.5)
    assert tuned_path().stat().st_mode & 0o077 == 0
    draft.unlink()
    assert find_tuned(target) is None
    keep_tuned(target, Tuned("nonsense", None, 1.5))
    assert find_tuned(target) is None
    tuned_path().write_text("[1, 2", "utf-8")
    assert find_tuned(target) is None
    assert tuned.find_tuned(tmp_path / "missing.gguf") is None


def test_tuning_several_targets_at_once_keeps_them_all(tmp_path: Path) -> None:
    """Each adds its own to what the others have kept meanwhile."""
    targets = [tmp_path / f"{number}.gguf" for number in range(20)]
    threads = [
        threading.Thread(target=keep_tuned, args=(target, Tuned("auto", None, 1.5)))
        for target in targets
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert all(find_tuned(target) for target in targets)


def test_no_draft_that_fits_is_an_error_in_one_line(folder: Path) -> None:
    """The reason of each is told."""
    done = run("tune", "--target", folder / "target.gguf", "--draft", folder / "unfit.gguf")

    assert done.returncode == 1
    assert done.stderr.startswith("specchat: no draft model could be measured")
    assert done.stderr.count("\n") == 1
