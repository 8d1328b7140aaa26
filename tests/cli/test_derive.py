"""`specchat derive`: a draft out of a target, kept if it pays, used, shown and removed."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable
from multiprocessing.context import SpawnProcess
from pathlib import Path
from typing import Any, TypeAlias

import gguf
import pytest

from conftest import WriteModel
from derivation.calm_layers import fine_tune, split_model, write_calm_target
from specchat.catalogue.draft_choice import find_drafts
from specchat.catalogue.local_models import derived_folder
from specchat.catalogue.pairs import save_pair
from specchat.cli import derive, main
from specchat.derivation import derived_files, sampled_texts, skip_method
from specchat.derivation.derived_files import deriving_alone
from specchat.derivation.gain import Costs
from specchat.engine.api import Loading
from specchat.gguf.origin import origin_of
from specchat.gguf.reader import read_header
from specchat.options.declarations import LONGEST_DRAFT
from specchat.settings.sources import read_settings
from specchat.sharing.engine_process import start_process
from specchat.sharing.process_engine import try_out
from specchat.system.private_files import make_private
from tables import table

QUICK = ("--time", "3s", "--threads", "1", "--ctx", "512", "--exact", "off")
SHORT = ("--max-tokens", "4", *QUICK[2:])
CHEAP = Costs([1e-3] * 34, [1e-4] * 34).where_passes_are_cheap()
Command: TypeAlias = Callable[..., tuple[int, Any, str]]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each test's drafts and tuned settings to itself."""
    for name in ("DATA", "STATE", "CONFIG"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setattr(sys, "stdin", None)


@pytest.fixture(autouse=True)
def tried(monkeypatch: pytest.MonkeyPatch) -> list[Loading]:
    """Note what would be tried out in another process, which takes half a second each time."""
    tried: list[Loading] = []
    monkeypatch.setattr(skip_method, "try_out", tried.append)
    return tried


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


@pytest.fixture
def cheap_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Predict for a machine where passes over several tokens, and draft passes, cost little."""
    monkeypatch.setattr(derived_files, "costs_of", lambda *_: CHEAP)


def test_a_draft_is_made_and_used_and_removed(
    target: Path, run: Command, tried: list[Loading], capsys: pytest.CaptureFixture[str]
) -> None:
    """It records its origin, answers draft with it, lists show it, and rm deletes it."""
    code, made, errors = run("derive", target, *QUICK, "--keep-slower")
    assert (code, errors) == (0, "")
    assert [each.target for each in tried] == [target]
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
        "ask", "hi", "--target", target, "--draft", draft, "--drafter", "model", *SHORT
    )
    assert answer["model"]["draft"].startswith("tiny llama 3, ")
    assert main(["rm", draft.name, "--yes"]) == 0
    assert "deleted" in capsys.readouterr().err
    assert list(derived_folder().iterdir()) == []


@pytest.mark.slow
@pytest.mark.usefixtures("cheap_passes")
def test_a_draft_that_pays_is_chosen_for_its_target(
    target: Path, run: Command, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Named by its file or as a saved pair; for a fine-tuned version of the target, with a note."""
    _, made, _ = run("derive", target, *QUICK)
    assert made["kept"]
    assert made["predicted"]["speedup"] > 1.02
    for name in ("first", "tuned"):
        shutil.copy(target, tmp_path / f"{name}.gguf")
    save_pair("mine", tmp_path / "first.gguf", None)
    tuned = tmp_path / "tuned.gguf"
    fine_tune(tuned)

    for words in (["--target", target], ["--pair", "mine"]):
        _, answer, errors = run("ask", "hi", *words, *SHORT)
        assert answer["model"]["draft"] == read_header(Path(made["path"])).name
        assert "derived from it, predicted" in errors
    _, answer, _ = run("ask", "hi", "--pair", "mine", "--draft", "none", *SHORT)
    assert answer["model"]["draft"] is None
    best = find_drafts(tuned).best
    assert best is not None
    assert best.why.startswith("derived from tiny llama 3, whose weights are others, predicted")
    assert main(["ask", "hi", "--target", str(tuned), "--draft", made["path"], *SHORT]) == 0
    assert "was made for other weights, tiny llama 3" in capsys.readouterr().err
    assert find_drafts(target).fitting[0].model.path == Path(made["path"])  # as `tune` tries them


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_a_draft_that_does_not_pay_is_not_kept(
    target: Path,
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Unless it is asked for, and then it is never chosen by itself; nothing is left behind."""
    lengths = range(1, LONGEST_DRAFT + 2)
    dear = Costs([0.0, *(1e-3 * length for length in lengths)], [1e-3] * (1 + len(lengths)))
    monkeypatch.setattr(derived_files, "costs_of", lambda *_: dear)
    code, made, _ = run("derive", target, *QUICK)
    assert (code, made["kept"], made["path"]) == (0, False, None)
    assert made["predicted"]["speedup"] < 1.02
    assert list(derived_folder().iterdir()) == []

    assert main(["derive", str(target), *QUICK, "--keep-slower"]) == 0
    (draft,) = derived_folder().iterdir()
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("draft: ")
    assert (
        lines[-1]
        == f"kept as {draft.name}, but not used automatically: choose it with --draft {draft.name}"
    )
    assert find_drafts(target).best is None
    assert [why for _, why in find_drafts(target).unfit] == ["no speedup was predicted for it"]


@pytest.mark.skipif(sys.platform == "win32", reason="signals are named otherwise there")
def test_a_crash_of_llama_cpp_is_one_line(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The target is tried out in another process first."""

    def crash(process: SpawnProcess) -> None:
        start_process(process)
        os.kill(process.pid or 0, signal.SIGSEGV)

    monkeypatch.setattr(skip_method, "try_out", try_out)
    monkeypatch.setattr("specchat.sharing.process_link.start_process", crash)
    assert main(["derive", str(target), *QUICK]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "was ended by SIGSEGV while loading" in line


@pytest.mark.slow
def test_ctrl_c_keeps_the_best_so_far(
    target: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The search ends at once; the draft is measured and kept, and the exit code is 130."""
    lines: list[str] = []

    def interrupt(line: str = "") -> None:
        lines.append(line)
        if "measured" in line and sum("sets of layers" in each for each in lines) == 2:
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(derive, "show_line", interrupt)
    code, made, _ = run("derive", target, "--time", "1h", *QUICK[2:], "--keep-slower")

    assert code == 130
    assert made["sets_measured"] == 2
    assert len(made["left_out"]) == 1
    assert Path(made["path"]).is_file()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("stage", ["sampling answer 3", "writing", "measuring the draft"])
def test_a_second_ctrl_c_leaves_nothing(
    stage: str, target: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does the first one before anything was measured."""

    def interrupt(line: str = "") -> None:
        if line.startswith(stage):
            for _ in range(2):
                signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(derive, "show_line", interrupt)
    code, made, errors = run("derive", target, *QUICK, "--keep-slower")

    assert (code, made, errors) == (130, None, "")
    assert not derived_folder().exists() or not list(derived_folder().iterdir())


REFUSED = {
    "mamba": "it keeps a recurrent state",
    "lfm2": "it keeps a recurrent state",
    "gemma3": "its layers differ from one another",
}


@table("architecture", REFUSED)
def test_some_targets_are_refused_with_one_line(
    architecture: str, tiny: WriteModel, capsys: pytest.CaptureFixture[str]
) -> None:
    """The reason is in it, and nothing is loaded."""
    assert main(["derive", str(tiny(architecture, num_layers=6))]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"specchat: no layers of tiny {architecture} 0 can be left out: ")
    assert REFUSED[architecture] in line


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_few_layers_and_derived_drafts_are_refused(
    target: Path, tiny: WriteModel, run: Command
) -> None:
    """There is nothing to leave out of them."""
    assert (
        "at least 4 layers are needed, and it has 3"
        in run("derive", tiny("llama", num_layers=3))[2]
    )
    _, made, _ = run("derive", target, *QUICK, "--keep-slower")
    assert "it is a derived draft itself" in run("derive", made["path"])[2]


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["none.gguf"], 1, "no such file"),
        (["damaged.gguf"], 1, "unfinished download"),
        (["target.gguf", "--time", "10"], 2, "'10' is not a time: write 90s, 10m or 2h"),
        (["target.gguf", "--time", "0s"], 2, "'0s' is not a time"),
        (["target.gguf", "--quantize", "Q9"], 2, "invalid choice: 'Q9'"),
        (["target.gguf", "--history"], 2, "--text and --history require --train"),
        (["target.gguf", "--text", "a.txt"], 2, "--text and --history require --train"),
        (["target.gguf", "--train", "1h", "--quantize", "Q4_0"], 2, "cannot be used with --train"),
        (["target.gguf", "--train", "1h", "--time", "9s"], 2, "cannot be used with --train"),
    ],
    ids=[
        *("missing", "damaged", "no unit", "no time", "no quantization"),
        *("history alone", "text alone", "quantized training", "two times"),
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


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["mixture", "quantized", "split"])
@pytest.mark.usefixtures("engines_here")
def test_other_files_are_targets_too(
    kind: str, tmp_path: Path, run: Command, tiny: WriteModel
) -> None:
    """Mixtures of experts, quantized weights that are quantized harder, and models in parts."""
    options = {"num_layers": 5, "width": 64}
    if kind == "split":
        path = split_model(tiny("llama", **options), tmp_path)
    elif kind == "quantized":
        path = tiny("llama", quantisation="q8_0", **options)
    else:
        path = tiny("qwen3moe", **options)
    more = ("--quantize", "Q4_0") if kind == "quantized" else ()
    code, made, errors = run("derive", path, *QUICK, *more, "--keep-slower")

    assert (code, errors) == (0, "")
    header = read_header(Path(made["path"]))
    assert header.num_layers == 5 - len(made["left_out"])
    assert len(header.parts) == 1
    assert header.quantisation == {"quantized": "Q4_0"}.get(kind, read_header(path).quantisation)


@table(
    ("count", "reason"),
    [
        (500, "can be left out: its layers differ from one another; choose another target"),
        (2**32 - 1, "llama.cpp takes 1 to 512"),
    ],
)
def test_a_false_number_of_layers_is_refused(
    target: Path, capsys: pytest.CaptureFixture[str], count: int, reason: str
) -> None:
    """At once, however large it is."""
    reader = gguf.GGUFReader(target, "r+")
    reader.fields["llama.block_count"].parts[-1][0] = count
    reader.data.flush()

    assert main(["derive", str(target)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert reason in line


@pytest.mark.slow
@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names are always Unicode there")
@pytest.mark.usefixtures("engines_here")
def test_a_name_that_is_not_utf_8_is_a_target_too(target: Path, run: Command) -> None:
    """The draft's name has only what is safe in one."""
    odd = target.rename(os.fsdecode(os.fsencode(target.parent) + b"/\xff\x1b[31m.gguf"))
    code, made, errors = run("derive", odd, *QUICK, "--keep-slower")

    assert (code, errors) == (0, "")
    assert re.fullmatch(r"-31m-skip-[0-9a-f]{8}\.gguf", Path(made["path"]).name)


def test_a_target_that_answers_once_is_refused(
    target: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One text cannot be both chosen and predicted by."""
    monkeypatch.setattr(sampled_texts, "QUESTIONS", sampled_texts.QUESTIONS[:1])

    assert main(["derive", str(target), *QUICK]) == 1
    assert "answers are too short to compare a draft with" in capsys.readouterr().err


def test_only_one_draft_is_derived_at_a_time(
    target: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The second command says so, and leaves the first one's files alone."""
    with deriving_alone():
        writing = derived_folder() / "a.scratch"
        writing.touch()
        assert main(["derive", str(target), *QUICK]) == 1
        assert "another draft is being derived: wait" in capsys.readouterr().err
        assert writing.exists()
    with deriving_alone():
        pass


@pytest.mark.slow
def test_what_a_killed_command_left_is_deleted(target: Path, run: Command) -> None:
    """By the next one, whatever its target; drafts stay."""
    make_private(derived_folder())
    for name in ("a.scratch", "a.writing", "a.scratch0815.new", "kept.gguf"):
        (derived_folder() / name).touch()
    _, made, _ = run("derive", target, *QUICK, "--keep-slower")

    names = {path.name for path in derived_folder().iterdir()}
    assert names == {"kept.gguf", Path(made["path"]).name}


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


@pytest.mark.slow
@pytest.mark.usefixtures("engines_here")
def test_a_slow_target_is_asked_less(
    target: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In little time, so that some is left for the search."""
    asked: list[str] = []
    monkeypatch.setattr(derive, "show_line", lambda line="": asked.append(line))
    code, _, _ = run("derive", target, "--time", "0.01s", *QUICK[2:], "--keep-slower")

    assert code == 0
    assert sum(line.startswith("sampling answer") for line in asked) == 5
