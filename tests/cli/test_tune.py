"""`specchat tune`: it measures every candidate, saves the best, and later commands use it."""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

import pytest

from conftest import WriteModel
from local_folders import put_in_ollama
from specchat.bench.results import Results
from specchat.catalogue import tuned_settings as tuned
from specchat.catalogue.pairs import Pair
from specchat.catalogue.tuned_settings import Tuned, find_tuned, keep_tuned, tuned_path
from specchat.cli import bench, main, tune
from specchat.cli.placement_tuning import PlacementTuning
from tables import table


@dataclass(frozen=True, slots=True)
class Done:
    """The exit code and output of a command."""

    returncode: int
    stdout: str
    stderr: str


Command: TypeAlias = Callable[..., Done]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """Return a function that runs specchat; long prompts are skipped, which saves reading them."""
    monkeypatch.setattr(sys, "stdin", None)

    def run_main(*words: str | Path) -> Done:
        code = main([*map(str, words), "--threads", "1", "--ctx", "1024"])
        return Done(code, *capsys.readouterr())

    return run_main


@pytest.fixture
def folder(tiny: WriteModel, tmp_path: Path) -> Path:
    """Return a folder with a target, a draft model that fits and one that does not."""
    shutil.copy(tiny("llama", width=128, feed_forward=512), tmp_path / "target.gguf")
    shutil.copy(tiny("llama"), tmp_path / "fits.gguf")
    shutil.copy(tiny("qwen3", tokenizer=False), tmp_path / "unfit.gguf")
    return tmp_path


@pytest.mark.slow
def test_the_best_candidate_is_saved_and_used(folder: Path, run: Command) -> None:
    """Draft models beside the target are measured, the unfit one is named, the best is used."""
    target = folder / "target.gguf"
    done = run("tune", "--target", target, "--rounds", "1", "--max-tokens", "6", "--json")
    record = json.loads(done.stdout)

    assert done.returncode == 0
    assert done.stderr.startswith(("measured here: ", "what its passes cost is not measured: "))
    assert {entry["drafter"] for entry in record["tried"]} == {"auto", "model", "suffix"}
    assert any("unfit" in reason or "does not fit" in reason for reason in record["refused"])
    assert find_tuned(target) == Tuned(**record["kept"])
    asked = run("ask", "hi", "--target", target, "--max-tokens", "3", "--json")
    answer = json.loads(asked.stdout)
    used = {"auto": ("suffix+model", "suffix"), "none": ("none",)}.get(
        record["kept"]["drafter"], (record["kept"]["drafter"],)
    )
    assert answer["drafter"] in used


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_only_named_drafts_are_measured(folder: Path, run: Command) -> None:
    """The table has them, and the last line names the one saved."""
    done = run(
        "tune", "--target", folder / "target.gguf", "--draft", folder / "fits.gguf",
        "--rounds", "1", "--max-tokens", "6",
    )  # fmt: skip

    assert done.returncode == 0
    assert "fits.gguf" in done.stdout
    assert "saved for this target" in done.stdout
    assert "not measured" not in done.stdout


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_a_draft_may_be_named_as_list_names_it(
    folder: Path, run: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As with `ask`; an unknown name is an error before anything is measured."""
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    blob = put_in_ollama(tmp_path / "ollama", (folder / "fits.gguf").read_bytes())
    words = ("tune", "--target", folder / "target.gguf", "--rounds", "1", "--max-tokens", "6")

    done = run(*words, "--draft", "tiny", "--json")
    missing = run(*words, "--draft", "tinier")

    assert {entry["draft"] for entry in json.loads(done.stdout)["tried"]} == {str(blob), None}
    assert missing.returncode == 1
    assert missing.stderr.startswith("specchat: tinier: no such file")


@pytest.mark.slow
def test_none_means_no_draft_model(folder: Path, run: Command) -> None:
    """As with `ask`: alone, or next to draft models that are measured too."""
    target, draft = folder / "target.gguf", folder / "fits.gguf"
    short = ("--rounds", "1", "--max-tokens", "6", "--json")
    alone = run("tune", "--target", target, "--draft", "none", *short)
    both = run("tune", "--target", target, "--draft", draft, "--draft", "none", *short)

    assert (alone.returncode, both.returncode) == (0, 0)
    assert alone.stderr.count("\n") == 1  # what passes cost
    tried, others = (json.loads(done.stdout)["tried"] for done in (alone, both))
    assert [(each["drafter"], each["draft"]) for each in tried] == [
        ("auto", None),
        ("suffix", None),
    ]
    assert [each["drafter"] for each in others] == ["auto", "model", "suffix", "auto", "suffix"]


@table(
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
    """`auto` would later use the pair's own draft model, so another drafter is saved."""
    best = tune._Candidate(drafter, draft, 1.5, 1.4, 1.6, 0.5, 30.0)
    assert tune._tuned(best, may_add_draft=may_add_draft) == Tuned(kept, draft, 1.5)


def test_what_was_saved_is_private_and_checked(tmp_path: Path) -> None:
    """If the draft model is gone or the file is invalid, nothing counts as saved."""
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
    """Each adds its own choice to those that others have saved meanwhile."""
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


@pytest.mark.slow
def test_an_interrupt_saves_nothing(
    folder: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl+C ends with exit code 130, and no candidate measured so far is saved."""

    def interrupted(*_: object) -> Iterator[Results]:
        yield Results()
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "measure", interrupted)
    target = folder / "target.gguf"

    done = run("tune", "--target", target, "--draft", folder / "fits.gguf")

    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
    assert find_tuned(target) is None


def test_a_usage_error_comes_before_loading(folder: Path, run: Command) -> None:
    """No round at all is refused with exit code 2."""
    done = run("tune", "--target", folder / "target.gguf", "--rounds", "0")

    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == 'specchat: --rounds must be a whole number of at least 1, not "0"\n'


@pytest.mark.usefixtures("engines_here")
def test_no_draft_that_fits_is_one_line(folder: Path, run: Command) -> None:
    """The error names the reason for each draft model."""
    done = run("tune", "--target", folder / "target.gguf", "--draft", folder / "unfit.gguf")

    assert done.returncode == 1
    assert done.stderr.startswith("specchat: no draft model could be measured")
    assert done.stderr.count("\n") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_other_files_of_the_model_are_compared(
    tiny: WriteModel, tmp_path: Path, run: Command
) -> None:
    """A faster one is named with the command that tunes it; what is saved is for this file."""
    target, other = tmp_path / "big-F32.gguf", tmp_path / "big-Q4_0.gguf"
    shutil.copy(tiny("llama", width=512, feed_forward=2048, num_layers=8), target)
    shutil.copy(tiny("llama"), other)
    shutil.copy(other, tmp_path / "another-Q4_0.gguf")
    words = ("tune", "--target", target, "--draft", "none", "--rounds", "1", "--max-tokens", "6")
    done = run(*words)

    assert done.returncode == 0
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("big-Q4_0.gguf: ")]
    assert re.fullmatch(r"\S+ [\d.]+ tokens/s, [\d.]+x faster \(this file: [\d.]+ tokens/s\)", line)
    assert f"to use it: specchat tune --target {other}" in done.stdout
    assert "another" not in done.stdout
    assert find_tuned(target)
    assert find_tuned(other) is None


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_an_interrupt_while_other_files_are_measured_ends_after_what_is_saved(
    tiny: WriteModel, tmp_path: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found for the target is shown and saved; the exit code is 130."""
    target = tmp_path / "big-F32.gguf"
    shutil.copy(tiny("llama"), target)
    shutil.copy(tiny("llama"), tmp_path / "big-Q4_0.gguf")

    def interrupted(_: object) -> Pair:
        raise KeyboardInterrupt

    monkeypatch.setattr(tune, "with_best_draft", interrupted)
    monkeypatch.setattr(PlacementTuning, "run", lambda *_: pytest.fail("it goes on"))
    words = ("tune", "--target", target, "--rounds", "1", "--max-tokens", "6", "--json")
    done = run(*words)
    assert done.returncode == 130
    assert json.loads(done.stdout)["kept"]["drafter"]
    assert find_tuned(target)
