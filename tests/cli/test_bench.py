"""`specchat bench` as a person and a script use it."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conftest import WriteModel

ROOT = Path(__file__).parents[2]


def words(tiny: WriteModel, *more: str) -> list[str]:
    """Return a command line that measures a tiny pair."""
    pair = ["--target", str(tiny("llama")), "--draft", str(tiny("llama", "half right"))]
    return [sys.executable, "-m", "specchat", "bench", *pair, "--threads", "1", *more]


def run(tiny: WriteModel, *more: str) -> subprocess.CompletedProcess[str]:
    """Run it to the end."""
    return subprocess.run(
        words(tiny, *more), capture_output=True, text=True, check=False, cwd=ROOT, timeout=120
    )


def test_json_keeps_the_contract(tiny: WriteModel, tmp_path: Path) -> None:
    """One object: the machine, and a record per answer with its speedup; and the picture."""
    plot = tmp_path / "bench.svg"
    done = run(
        tiny, "--json", "--rounds", "1", "--max-tokens", "8", "--task", "chat", "--task", "json",
        "--plot", str(plot),
    )  # fmt: skip
    told = json.loads(done.stdout)

    assert (done.returncode, done.stderr) == (0, "")
    assert told["complete"]
    assert told["machine"]["processor"]
    assert len(told["runs"]) == 8
    needed = {
        "drafter", "draft_length", "temperature", "prompt", "tokens_per_second", "speedup",
        "acceptance_rate", "tokens_per_step", "overhead_s", "speculation",
    }  # fmt: skip
    assert all(needed <= set(record) for record in told["runs"])
    assert {record["drafter"] for record in told["runs"]} == {"none", "auto"}
    assert all(r["speedup"] == 1.0 for r in told["runs"] if r["drafter"] == "none")
    assert plot.read_text("utf-8").startswith("<svg")


def test_the_table_tells_what_was_used(tiny: WriteModel) -> None:
    """A line per task and temperature, the interval, and what drafted."""
    done = run(tiny, "--rounds", "1", "--max-tokens", "8", "--task", "code", "--temperature", "0")

    assert done.returncode == 0
    assert "code" in done.stdout
    assert "95 % interval" in done.stdout
    assert "speculation by suffix and model (auto)" in done.stdout


@pytest.mark.skipif(sys.platform == "win32", reason="signals are sent otherwise there")
def test_an_interrupt_keeps_what_was_measured(tiny: WriteModel) -> None:
    """Ctrl+C ends after the answer in progress, with the table so far and exit code 130."""
    process = subprocess.Popen(
        words(tiny, "--rounds", "400", "--max-tokens", "60", "--task", "chat"),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    time.sleep(4)
    process.send_signal(signal.SIGINT)
    stdout, stderr = process.communicate(timeout=30)

    assert (process.returncode, stderr) == (130, "")
    assert "stopped before the end" in stdout
    assert "chat" in stdout


@pytest.mark.parametrize(
    ("more", "part"),
    [
        (["--rounds", "0"], "rounds"),
        (["--drafter", "none"], "plain decoding is measured anyway"),
        (["--temperature", "-1"], "temperature"),
        (["--plot", "bench.gif"], ".svg or .png"),
        (["--plot", "/nowhere/bench.svg"], "no folder"),
        (["--max-tokens", "0"], "max_tokens"),
    ],
)
def test_what_cannot_be_measured_is_refused(tiny: WriteModel, more: list[str], part: str) -> None:
    """One line, before anything is loaded."""
    done = run(tiny, *more)

    assert done.returncode == 2
    assert part in done.stderr
    assert done.stderr.count("\n") == 1
