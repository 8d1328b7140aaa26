"""`specchat derive --requantise`: a faster file of a model, kept if it is good enough."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from math import inf
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from conftest import WriteModel
from scripts.support.quantised_model import quantised
from specchat.catalogue.local_models import derived_folder
from specchat.cli import derive, main
from specchat.cli.arguments import parse
from specchat.cli.offers import find_offers
from specchat.cli.option_arguments import complete
from specchat.derivation import requantisation
from specchat.derivation.derived_files import deriving_alone
from specchat.gguf.origin import DraftOrigin, fingerprints, requantised_from
from specchat.gguf.reader import read_header
from specchat.llama.model_copies import Copy, write_copy
from tables import table

QUICK = ("--threads", "1", "--exact", "off")
REQUANTISE = ("derive", "--requantise", *QUICK)
Command: TypeAlias = Callable[..., tuple[int, Any, str]]


@pytest.fixture(autouse=True)
def _own_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep each test's files to itself; read little text, and take any quality and speed."""
    for name in ("DATA", "STATE", "CONFIG", "CACHE"):
        monkeypatch.setenv(f"XDG_{name}_HOME", str(tmp_path / name))
    monkeypatch.setattr(sys, "stdin", None)
    for name, value in {
        "PAGES": ("chat",),
        "NUM_TOKENS": 64,
        "NUM_ROUNDS": 2,
        "NUM_TIMED": 4,
        "NUM_PROMPT": 8,
        "MOST_PERPLEXITY": inf,
        "LEAST_AGREEMENT": 0.0,
        "MIN_SPEEDUP": 0.0,
    }.items():
        monkeypatch.setattr(requantisation, name, value)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Command:
    """Return a function that runs a command with --json; returns code, record and errors."""

    def run_main(*words: str | Path) -> tuple[int, Any, str]:
        code = main([*map(str, words), "--json"])
        out, errors = capsys.readouterr()
        return code, json.loads(out) if out else None, errors

    return run_main


@pytest.fixture
def source(tiny: WriteModel, tmp_path: Path) -> Path:
    """Return a model's file in Q4_1."""
    (tmp_path / "models").mkdir()
    return quantised(tiny("llama"), "Q4_1", tmp_path / "models").rename(
        tmp_path / "models" / "Tiny.Q4_1.gguf"
    )


@pytest.mark.usefixtures("engines_here")
def test_a_file_is_made_and_used_and_removed(
    source: Path, run: Command, capsys: pytest.CaptureFixture[str]
) -> None:
    """Beside its source, which stays; lists and the chat's models name what it was made from."""
    before = source.read_bytes()
    code, made, errors = run(*REQUANTISE, source)
    assert (code, errors, made["kept"]) == (0, "", True)
    path = Path(made["path"])
    assert source.read_bytes() == before
    assert list(derived_folder().iterdir()) == [path]
    assert path.name.startswith("Tiny-q4_0-")
    header = read_header(path)
    assert {each.stored for each in header.tensors.values() if len(each.shape) > 1} == {2}
    assert "output.weight" in header.tensors
    assert fingerprints(header).model == fingerprints(read_header(source)).model
    assert made["bytes"] < made["source_bytes"]
    assert made["perplexity"] > 1
    assert 0 < made["agreement"] <= 1
    assert made["speedup"] > 0

    record = requantised_from(header)
    assert record is not None
    assert record.source == "Tiny.Q4_1.gguf"
    assert "of next tokens the same" in record.result
    _, listed, _ = run("list")
    (local,) = [each for each in listed["local"] if each["path"] == str(path)]
    assert local["requantised"]["source"] == "Tiny.Q4_1.gguf"
    assert main(["list"]) == 0
    assert "requantized from Tiny.Q4_1.gguf" in capsys.readouterr().out
    assert main(["show", path.stem]) == 0
    assert f"requantized from Tiny.Q4_1.gguf: {record.result}" in capsys.readouterr().out
    arguments = parse(["chat"])
    complete(arguments)
    offers = {offer.name: offer for offer in find_offers(arguments)}
    assert offers[path.name].description == "requantized from Tiny.Q4_1.gguf"

    _, answer, _ = run("ask", "hi", "--target", path.stem, "--max-tokens", "4", *QUICK)
    assert answer["tokens"]
    assert main(["rm", path.stem, "--yes"]) == 0
    assert not path.exists()
    assert source.exists()


@pytest.mark.usefixtures("engines_here")
def test_a_file_that_is_slower_is_kept_only_on_request(
    source: Path,
    run: Command,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """One line says why, and how to keep it."""
    monkeypatch.setattr(requantisation, "MIN_SPEEDUP", inf)
    assert main([*REQUANTISE, str(source)]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "not kept: it is not faster here; --keep-slower keeps it anyway"
    assert list(derived_folder().iterdir()) == []
    _, made, _ = run(*REQUANTISE, source, "--keep-slower")
    assert made["kept"]


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(("name", "bound"), [("LEAST_AGREEMENT", 1.1), ("MOST_PERPLEXITY", 0.1)])
@pytest.mark.usefixtures("engines_here")
def test_a_file_that_is_worse_is_never_kept(
    name: str,
    bound: float,
    source: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """However fast it is: one line says what would be good enough."""
    monkeypatch.setattr(requantisation, name, bound)
    assert main([*REQUANTISE, str(source), "--keep-slower"]) == 0
    last = capsys.readouterr().out.splitlines()[-1]
    assert last.startswith("not kept: its quality is too low")
    assert list(derived_folder().iterdir()) == []


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("stage", ["writing", "measuring the speed", "measuring the quality"])
@pytest.mark.usefixtures("engines_here")
def test_ctrl_c_leaves_nothing(
    stage: str, source: Path, run: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At any stage, with the exit code of an interruption."""

    def interrupt(line: str = "") -> None:
        if line.startswith(stage):
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(derive, "show_line", interrupt)
    assert run(*REQUANTISE, source) == (130, None, "")
    assert list(derived_folder().iterdir()) == []


def test_only_one_file_is_made_at_a_time(source: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The second command says so and leaves the first one's files; the next deletes leftovers."""
    with deriving_alone():
        for name in ("a.scratch", "a.writing", "a.scratch0815.new", "kept.gguf"):
            (derived_folder() / name).touch()
        assert main([*REQUANTISE, str(source)]) == 1
        assert "another draft is being derived: wait" in capsys.readouterr().err
        assert len(list(derived_folder().iterdir())) == 4
    with deriving_alone():
        assert [path.name for path in derived_folder().iterdir()] == ["kept.gguf"]


@pytest.mark.skipif(sys.platform in {"win32", "darwin"}, reason="names are always Unicode there")
@pytest.mark.usefixtures("engines_here")
def test_a_name_that_is_not_utf_8_is_a_source_too(source: Path, run: Command) -> None:
    """The new file's name has only what is safe in one."""
    odd = source.rename(os.fsdecode(os.fsencode(source.parent) + b"/\xff\x1b[31m.gguf"))
    code, made, errors = run(*REQUANTISE, odd)
    assert (code, errors) == (0, "")
    assert re.fullmatch(r"[\w.-]+-q4_0-[0-9a-f]{8}\.gguf", Path(made["path"]).name, re.ASCII)


def test_a_file_that_gains_nothing_is_refused(
    tiny: WriteModel, source: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A file of that type already, one without a vocabulary, and a derived draft."""
    pure, draft = tmp_path / "pure.gguf", tmp_path / "draft.gguf"
    write_copy(Copy(str(source), str(pure), file_type=2, is_pure=True))
    origin = DraftOrigin("0" * 64, "a target", "skip", "answers")
    write_copy(Copy(str(source), str(draft), metadata=origin.metadata))
    refused = {
        pure: "all its matrices are in Q4_0 already",
        tiny("llama", tokenizer=False): "it has no vocabulary",
        draft: "it is a derived draft",
    }
    for path, reason in refused.items():
        assert main([*REQUANTISE, str(path)]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert f"cannot be requantized: {reason}" in line


@table("option", [("--train", "1h"), ("--text", "a.txt"), ("--history",)])
def test_it_takes_no_option_of_drafts(
    option: tuple[str, ...], source: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Those would have no effect."""
    assert main([*REQUANTISE, str(source), *option]) == 2
    assert "--requantise makes no draft" in capsys.readouterr().err
