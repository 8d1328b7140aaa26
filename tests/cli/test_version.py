"""`specchat --version` and `specchat update`: what is installed, and how to replace it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import specchat
from local_folders import put
from pseudo_terminal import ROOT
from specchat.cli import main, version
from specchat.doctor.install_method import find_installation
from specchat.llama.build_facts import ask, library_folder, names_in
from specchat.llama.child_process import ask_for_build


def lines(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Return what --version prints."""
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert end.value.code in {0, None}
    return capsys.readouterr().out.splitlines()


def test_the_version_comes_with_the_build(capsys: pytest.CaptureFixture[str]) -> None:
    """As the library itself says, which takes far longer to ask."""
    shown = lines(capsys)
    report = ask_for_build().report
    assert report
    assert shown[0] == f"specchat {specchat.__version__}"
    assert shown[1].startswith("Python 3.")
    assert shown[2].startswith(f"llama-cpp-python {report.version}, ggml ")
    assert shown[3].startswith("backends: CPU")
    sets = shown[4].removeprefix("instruction sets: ").split()
    for name in ("AVX2", "AVX512", "NEON"):
        assert (name.lower() in sets) == (f" {name} = 1" in report.system)
    assert shown[5] == f"installed from {find_installation()}"


def test_the_names_of_libraries_tell_the_backends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also those of a build that chooses its instruction sets at the start."""
    for name in ("base", "cpu-x64", "cpu-haswell", "cuda", "vulkan", "rpc"):
        put(tmp_path / f"libggml-{name}.so", b"not a library")
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(version, "library_folder", lambda: tmp_path)
    shown = lines(capsys)
    assert names_in(tmp_path) == ("base", "cpu-haswell", "cpu-x64", "cuda", "rpc", "vulkan")
    assert ask(tmp_path) == {}
    assert "ggml" not in shown[2].partition(":")[0]
    assert shown[3:5] == [
        "backends: CPU, CUDA, Vulkan",
        "instruction sets: chosen at the start of haswell, x64",
    ]


def test_a_build_that_cannot_be_loaded_or_is_missing_leads_to_the_doctor(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The rest is shown all the same."""
    folder = library_folder()
    assert folder is not None
    put(tmp_path / next(folder.glob("*ggml-cpu.*")).name, b"not a library")
    monkeypatch.setattr(version, "library_folder", lambda: tmp_path)
    assert "llama.cpp cannot be loaded; `specchat doctor`" in lines(capsys)[4]
    monkeypatch.setattr(version, "library_folder", lambda: None)
    shown = lines(capsys)
    assert shown[2].endswith("; `specchat doctor` says what to do")
    assert len(shown) == 4


def test_update_prints_commands_for_a_shell(capsys: pytest.CaptureFixture[str]) -> None:
    """On stdout those alone, or all facts as JSON; the network is not asked."""
    assert main(["update"]) == 0
    shown, found = capsys.readouterr(), find_installation()
    assert shown.out.splitlines() == list(found.commands)
    assert shown.err.startswith(f"specchat {specchat.__version__}, installed from {found.method}")
    assert main(["update", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {
        "version": specchat.__version__,
        "method": found.method,
        "folder": str(found.folder),
        "commands": list(found.commands),
    }


def test_output_that_is_no_longer_read_ends_the_command_quietly() -> None:
    """As `head` does it: no traceback, and nothing on stderr."""
    for words in (["config", "show"], ["help", "chat"], ["list"], ["completions", "fish"]):
        with subprocess.Popen(
            [sys.executable, "-m", "specchat", *words],
            cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        ) as process:  # fmt: skip
            assert process.stdout
            assert process.stderr
            process.stdout.close()
            assert process.stderr.read() == b""
        assert process.returncode == 0


def test_ctrl_c_while_modules_are_imported_shows_no_traceback(tmp_path: Path) -> None:
    """As everywhere else, the exit code says how it ended."""
    put(tmp_path / "argparse.py", b"raise KeyboardInterrupt")
    found = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    command = [sys.executable, "-m", "specchat", "--version"]
    ended = subprocess.run(command, check=False, env=found, capture_output=True, text=True)
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, "", "")
