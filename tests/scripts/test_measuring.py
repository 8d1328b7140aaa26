"""Scripts that measure in rounds: a single round is enough, and none is refused in words."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from scripts.support.counts import positive
from tables import table

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MEASURE = ROOT / "scripts" / "measure"


def run(script: str, *words: str) -> subprocess.CompletedProcess[str]:
    """Run one of the scripts as a user does."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, str(MEASURE / script), *words]
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=300, check=False
    )


@table("script", sorted(path.name for path in MEASURE.glob("*.py")))
def test_no_script_measures_in_no_rounds(script: str) -> None:
    """Its medians would be those of nothing."""
    text = (MEASURE / script).read_text("utf-8")
    if '"--rounds"' not in text:
        pytest.skip("it does not measure in rounds")
    if "import positive" not in text:  # it also runs in a checkout that lacks the helper
        done = run(script, "other", "folder", "--rounds", "0")
        assert done.returncode == 2
        assert "at least 1 is needed" in done.stderr
        return
    assert '"--rounds", type=positive' in text


def test_a_number_of_rounds_is_at_least_one() -> None:
    """As argparse shows it."""
    assert positive("1") == 1
    with pytest.raises(Exception, match="at least 1 is needed, not 0"):
        positive("0")


@pytest.mark.skipif(sys.platform != "linux", reason="the chat runs in a pseudo-terminal")
def test_the_chat_is_measured_in_a_single_round(
    demo_state: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The round that is typed to comes before it."""
    shutil.copytree(demo_state, tmp_path / "state")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))

    done = run("measure_chat.py", "--rounds", "1", "--tokens", "8")

    assert done.returncode == 0, done.stderr
    assert "chat / ask: " in done.stdout
