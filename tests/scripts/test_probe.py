"""The probe that finds out if a build of llama.cpp runs on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.setup_env import probe as asking
from scripts.setup_env.probe import Verdict, ask, verdict
from scripts.support.tiny_gguf import Quantisation, write_model
from tables import table

posix_only = pytest.mark.skipif(sys.platform == "win32", reason="Windows has no signals")


@pytest.fixture(autouse=True)
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give every test its own log."""
    path = tmp_path / "setup.log"
    monkeypatch.setattr(asking, "LOG", path)
    return path


def run_probe(*arguments: Path | str) -> subprocess.CompletedProcess[str]:
    """Run the probe as the set-up and `specchat doctor` do."""
    return subprocess.run(
        [sys.executable, "-P", "-m", "specchat.llama.probe", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("quantisation", ["q4_0", "q8_0"])
def test_a_probe_that_passes_prints_one_json_line(
    tmp_path: Path, quantisation: Quantisation
) -> None:
    """The probe decodes batches of 1 to 16 tokens, and prints nothing of llama.cpp's log."""
    model = write_model(tmp_path / "a model.gguf", "llama", quantisation=quantisation)
    done = run_probe(model)
    assert (done.returncode, done.stderr) == (0, "")
    (line,) = done.stdout.splitlines()
    report = json.loads(line)
    assert (report["batches"], report["tokens"]) == (16, 136)


@pytest.mark.slow
def test_a_recurrent_model_can_be_probed(tmp_path: Path) -> None:
    """The probe clears the memory between batches, which every architecture supports."""
    model = write_model(tmp_path / "mamba.gguf", "mamba", quantisation="q8_0")
    assert run_probe(model).returncode == 0


@pytest.mark.slow
@posix_only
def test_a_path_that_is_not_utf8_can_be_probed(tmp_path: Path) -> None:
    """File names are bytes, and a path may not be valid UTF-8."""
    model = write_model(tmp_path / "tiny.gguf", "llama")
    model = model.rename(tmp_path / os.fsdecode(b"\xff.gguf"))
    done = run_probe(model)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_model_that_is_missing_or_damaged_is_one_line(tmp_path: Path) -> None:
    """The exit code is that of a failure, and one line on stderr names the reason."""
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(b"GGUF and nothing more")
    for path, why in ((tmp_path / "none.gguf", "no such file"), (damaged, "is damaged")):
        done = run_probe(path)
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.count("\n") == 1
        assert why in done.stderr


def test_a_probe_of_nothing_says_how_to_use_it() -> None:
    """Without a path the exit code is 2."""
    assert run_probe().returncode == 2


@posix_only
@pytest.mark.parametrize("name", ["SIGILL", "SIGSEGV", "SIGBUS"])
def test_a_child_killed_by_a_bad_instruction_crashed(name: str) -> None:
    """A probe ended by such a signal counts as crashed."""
    code = f"import os, signal; os.kill(os.getpid(), signal.{name})"
    assert ask([sys.executable, "-c", code])[0] is Verdict.CRASHED


@posix_only
def test_a_child_killed_for_memory_did_not_crash() -> None:
    """SIGKILL does not mean a bad instruction, so the wheel is not built again."""
    code = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    assert ask([sys.executable, "-c", code])[0] is Verdict.FAILED


@table(
    ("exit_code", "expected"),
    [(0, Verdict.PASSED), (1, Verdict.FAILED), (0xC000001D, Verdict.CRASHED), (3, Verdict.FAILED)],
)
def test_exit_codes_tell_death_from_failure(exit_code: int, expected: Verdict) -> None:
    """Windows reports an illegal instruction as an exit code."""
    assert verdict(exit_code) is expected


def test_what_the_probe_printed_goes_into_the_log(log: Path) -> None:
    """The set-up's log shows the command, its output and its exit code."""
    ask([sys.executable, "-c", "print('hello')"])
    assert "hello\n[exit code 0]" in log.read_text("utf-8")
