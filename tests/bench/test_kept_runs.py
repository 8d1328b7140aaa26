"""The answers of interrupted benchmarks, which are kept for a while."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from specchat.bench import kept_runs
from specchat.bench.kept_runs import KeptRuns
from specchat.system.private_files import FOLDERS


def test_kept_benchmarks_do_not_pile_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beginning one deletes the oldest beyond the limit, and those that nobody went on with."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.setattr(kept_runs, "MAX_FILES", 3)
    paths = []
    for number in range(5):
        paths.append(KeptRuns({"number": number}, []).path)
        written = time.time() - 1000 * (5 - number)
        os.utime(paths[-1], (written, written))
    assert [path.exists() for path in paths] == [False, False, True, True, True]
    other = FOLDERS.user_state_path / "bench" / "notes.txt"
    other.write_text("mine", "utf-8")

    written = time.time() - kept_runs.MAX_AGE_SECONDS - 1
    os.utime(paths[3], (written, written))
    newest = KeptRuns({"number": 5}, []).path
    assert [path.exists() for path in (*paths, newest)] == [False] * 2 + [True, False, True, True]
    assert other.exists()
