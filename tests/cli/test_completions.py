"""Completions of the shells: derived from the parser, tried in the shells that are installed."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from specchat.cli import main
from specchat.cli.arguments import parse

CASES = [
    ("specchat be", {"bench"}),
    (
        "specchat ask --dra",
        {"--draft", "--draft-gpu-layers", "--draft-length", "--draft-tree", "--drafter"},
    ),
    ("specchat ask --drafter su", {"suffix"}),
    ("specchat --exact o", {"on", "off"}),
    ("specchat history ex", {"export"}),
    ("specchat history export --fo", {"--force", "--format"}),
    ("specchat history export --format h", {"html"}),
    ("specchat completions z", {"zsh"}),
    ("specchat rm --y", {"--yes"}),
]


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


@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_bash_completes(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands, actions, flags and the values of flags."""
    path = completions("bash", tmp_path, capsys)
    words = line.split()
    script = (
        f"source {shlex.quote(str(path))}; COMP_WORDS=({line}); COMP_CWORD={len(words) - 1};"
        ' _specchat; printf "%s\\n" "${COMPREPLY[@]}"'
    )
    assert set(output("bash", "--norc", "-c", script).split()) == wanted


def test_bash_completes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The names of files, where a flag takes one: specchat offers nothing of its own there."""
    path = completions("bash", tmp_path, capsys)
    script = (
        f"source {shlex.quote(str(path))}; COMP_WORDS=(specchat ask --target a); COMP_CWORD=3;"
        " _specchat; echo ${#COMPREPLY[@]}; complete -p specchat"
    )
    assert output("bash", "--norc", "-c", script).split()[:4] == ["0", "complete", "-o", "default"]


@pytest.mark.parametrize(("line", "wanted"), CASES)
def test_fish_completes(
    line: str, wanted: set[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Fish prints what it would offer."""
    path = completions("fish", tmp_path, capsys)
    script = f"source {shlex.quote(str(path))}; complete -C {shlex.quote(line)}"
    found = output("fish", "--no-config", "-c", script).splitlines()
    assert {each.partition("\t")[0] for each in found} == wanted


def test_zsh_takes_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its syntax is right, and specchat is completed by it."""
    path = completions("zsh", tmp_path, capsys)
    script = (
        f"autoload -U compinit; compinit -D -u; source {shlex.quote(str(path))};"
        " print $_comps[specchat]; functions _specchat"
    )
    shown = output("zsh", "-f", "-c", script)
    assert shown.startswith("_specchat\n")
    assert "one of" not in shown


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
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
