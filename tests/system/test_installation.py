"""A user without a home folder, and an installation without one of its packages."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from specchat.doctor import backend
from specchat.doctor import repairs as mending
from specchat.llama.child_process import BuildReport, ChildResult
from specchat.system.installation import NO_HOME, has_home, missing_package

ROOT = Path(__file__).parents[2]
NO_REPORT: BuildReport | None = None
posix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no HOME")


def specchat(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """Run specchat with other variables."""
    environment = {**os.environ, **variables}
    path = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(ROOT)]))
    return subprocess.run(
        [sys.executable, "-m", "specchat", *words],
        env={**environment, "PYTHONPATH": path},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow(keep=1)
@posix_only
@pytest.mark.parametrize("home", ["", "relative/folder"])
@pytest.mark.parametrize("words", ["list", "ask hi", "doctor", "config show", "history list"])
def test_without_a_home_folder_every_command_names_the_variable(home: str, words: str) -> None:
    """In one line; help and the version need none."""
    done = specchat(*words.split(), HOME=home)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"specchat: {NO_HOME}\n"
    assert specchat("--version", HOME=home).returncode == 0


@posix_only
def test_a_user_whom_the_system_does_not_know_has_no_home(monkeypatch: pytest.MonkeyPatch) -> None:
    """Unless HOME names one."""
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)
    monkeypatch.delenv("HOME")
    assert not has_home()
    monkeypatch.setenv("HOME", "/nonexistent/folder")
    assert has_home()


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("package", "words"), [("platformdirs", "list"), ("numpy", "ask hi"), ("textual", "ask hi")]
)
def test_a_package_that_is_missing_is_named_with_the_repair(
    tmp_path: Path, package: str, words: str
) -> None:
    """In the command's own process or the engine's; a command that does without it runs."""
    text = f'raise ModuleNotFoundError("No module named {package!r}", name={package!r})\n'
    (tmp_path / f"{package}.py").write_text(text)
    done = specchat(*words.split(), PYTHONPATH=str(tmp_path))
    if package == "textual":
        assert (done.returncode, done.stderr) == (0, "")
        return
    assert (done.returncode, done.stdout) == (1, "")
    lack = missing_package(ModuleNotFoundError("", name=package))
    assert done.stderr == f"specchat: {lack}\n"


def test_the_set_up_repairs_its_own_environment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its stamps, which one command removes, it makes the environment again."""
    prefix = tmp_path / "a clone" / ".venv"
    (prefix / "setup").mkdir(parents=True)
    (prefix / "setup" / "venv").touch()
    monkeypatch.setattr(sys, "prefix", str(prefix))
    line = missing_package(ModuleNotFoundError("", name="yaml.cyaml"))
    stamps = f"'{prefix}/setup/ready' '{prefix}/setup/venv'"
    assert line.endswith(f": rm {stamps}, then run this again")
    assert missing_package(ModuleNotFoundError("", name="specchat.nothing")) == ""
    assert missing_package(ImportError("libgomp.so.1", name="numpy")) == ""


def test_the_doctor_repairs_the_package_that_llama_cpp_lacks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Building llama.cpp again would not bring it back."""
    monkeypatch.setattr(mending, "is_clone", lambda: True)
    answer = ChildResult(NO_REPORT, error="ModuleNotFoundError: No module named 'numpy'")
    forget, again = backend.check_build(answer).fix
    assert forget.endswith(".venv/setup/venv")
    assert again.endswith("doctor")
    own = ChildResult(NO_REPORT, error="ModuleNotFoundError: No module named 'llama_cpp'")
    assert backend.check_build(own).fix[0].endswith(".venv/setup/llama")
