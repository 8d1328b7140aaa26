"""The public API is typed for its callers: what a type checker says of files that use it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
ROOT = HERE.parents[1]


def checked(name: str) -> list[tuple[int, str]]:
    """Return the lines and codes of the errors that mypy, strict, finds in a file."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary"]
    done = subprocess.run(
        [*command, HERE / name], cwd=ROOT, capture_output=True, text=True, check=False
    )
    found = re.findall(rf"{name}:(\d+): error: .*\[([a-z-]+)\]", done.stdout)
    assert len(found) == done.stdout.count("error:"), done.stdout + done.stderr
    assert done.returncode == bool(found), done.stdout + done.stderr
    return [(int(line), code) for line, code in found]


def test_correct_calls_pass_and_mistakes_are_reported() -> None:
    """A wrong keyword, a wrong type and a missing target are all errors of their kind."""
    lines = (HERE / "mistakes.py").read_text("utf-8").splitlines()
    expected = [
        (number, line.partition(")  # ")[2])
        for number, line in enumerate(lines, 1)
        if ")  # " in line
    ]

    assert len(expected) > 10
    assert checked("mistakes.py") == expected
    assert checked("api.py") == []


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_nothing_is_called_that_another_system_lacks(platform: str) -> None:
    """Where a call exists on some systems only, the code asks for the system first.

    Packages other than the standard library are not read, which takes most of the time; errors
    that come from that are not those that count.
    """
    command = [sys.executable, "-m", "mypy", "--platform", platform, "--config-file="]
    alone = ["--follow-imports", "skip", "--cache-dir", f".mypy_cache/{platform}"]
    done = subprocess.run(
        [*command, *alone, "specchat"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert re.search(r"checked [1-9]\d\d source files", done.stdout)
    assert [line for line in done.stdout.splitlines() if "Module has no attribute" in line] == []
