"""Completions of the shells: derived from the parser, tried in the shells that are installed."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from local_folders import GGUF, put, put_in_hub
from pseudo_terminal import ROOT
from specchat.cli import main
from specchat.cli.arguments import parse
from tables import table

CASES = [
    ("specchat be", {"bench"}),
    (
        "specchat ask --dra",
        {
            "--draft",
            "--draft-gpu-layers",
            "--draft-length",
            "--draft-tree",
            "--drafter",
        },
    ),
    ("specchat ask --drafter su", {"suffix"}),
    ("specchat --exact o", {"on", "off"}),
    ("specchat history ex", {"export"}),
    ("specchat history export --fo", {"--force", "--format"}),
    ("specchat history export --format h", {"html"}),
    ("specchat completions z", {"zsh"}),
    ("specchat rm --y", {"--yes"}),
    ("specchat help glos", {"glossary"}),
    ("specchat --conn", {"--connect"}),
]
BY_NAME = [
    ("specchat ask --pair de", {"demo"}),
    ("specchat show dem", {"demo"}),
    ("specchat rm org/", {"org/tiny/tiny-Q4.gguf"}),
    ("specchat ask --target org/t", {"org/tiny/tiny-Q4.gguf"}),
    ("specchat bench --draft org/t", {"org/tiny/tiny-Q4.gguf"}),
]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put specchat on the PATH, and models beside it, one whose name bash would run."""
    command = put(tmp_path / "bin" / "specchat")
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m specchat "$@"\n', "utf-8")
    command.chmod(0o755)
    monkeypatch.setenv("PATH", f"{command.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PYTHONPATH", f"{ROOT}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.chdir(tmp_path)
    put_in_hub(tmp_path / "hub", "org/tiny", "tiny-Q4.gguf")
    put_in_hub(tmp_path / "hub", "org/tiny", "tiny-$(touch owned).gguf", GGUF + b"2")


def completions(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return a file with the completions of an installed shell."""
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    assert main(["completions", shell]) == 0
    path = tmp_path / f"completions.{shell}"
    path.write_text(capsys.readouterr().out, "utf-8")
    return path


def output(*command: str) -> str:
    """Return what a shell prints."""
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def in_bash(path: Path, line: str, *words: str) -> set[str]:
    """Return what bash offers at the end of a line, which it splits into such words."""
    words = words or tuple(line.split())
    script = (
        f"source {shlex.quote(str(path))}; COMP_WORDS=({shlex.join(words)});"
        f" COMP_CWORD={len(words) - 1}; COMP_LINE={shlex.quote(line)}; COMP_POINT={len(line)};"
        ' _shtab_specchat; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    return set(output("bash", "--norc", "-c", script).split())


@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_bash_completes(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, actions, flags and the values of flags."""
    assert in_bash(completions("bash", tmp_path, capsys), line) == wanted


@pytest.mark.slow(keep=2)
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("line", "wanted"), BY_NAME)
def test_bash_completes_names(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Of pairs and local models, but none that the shell would run."""
    assert in_bash(completions("bash", tmp_path, capsys), line) == wanted
    assert not (tmp_path / "owned").exists()


def test_bash_completes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The names of files, where a flag takes one."""
    path = completions("bash", tmp_path, capsys)
    (tmp_path / "answer.gbnf").touch()
    assert in_bash(path, f"specchat ask --grammar {tmp_path}/an") == {f"{tmp_path}/answer.gbnf"}


@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_fish_completes(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fish prints what it would offer."""
    path = completions("fish", tmp_path, capsys)
    script = f"source {shlex.quote(str(path))}; complete -C {shlex.quote(line)}"
    found = output("fish", "--no-config", "-c", script).splitlines()
    assert {each.partition("\t")[0] for each in found} == wanted


@pytest.mark.slow(keep=2)
@pytest.mark.usefixtures("here")
@pytest.mark.parametrize(("line", "wanted"), BY_NAME)
def test_fish_completes_names(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As bash does."""
    test_fish_completes(line, wanted, tmp_path, capsys)


def test_zsh_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its syntax is right, and specchat is completed by it."""
    path = completions("zsh", tmp_path, capsys)
    script = (
        f'autoload -U compinit; compinit -D -u; eval "$(cat {shlex.quote(str(path))})";'
        " print $_comps[specchat]; functions _shtab_specchat"
    )
    shown = output("zsh", "-f", "-c", script)
    assert shown.startswith("_shtab_specchat")
    assert "command not found" not in shown


@table("shell", ["bash", "zsh", "fish"])
def test_every_flag_is_there(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A new flag of any command is completed without a change here."""
    main(["completions", shell])
    shown = capsys.readouterr().out
    flags = {
        flag
        for command in parse(["help"]).commands.values()
        for action in command._actions
        for flag in action.option_strings
        if flag.startswith("--")
    }
    names = {f"-l {flag[2:]} " if shell == "fish" else flag for flag in flags}
    assert len(flags) > 50
    assert [name for name in names if name not in shown] == []
