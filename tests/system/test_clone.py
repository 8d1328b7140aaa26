"""A clone sets up what not everyone needs when it is needed; other installations do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specchat.system import clone

PART = """
import sys
from pathlib import Path

sys.stderr.write("specchat: building it\\n" + "specchat: half done\\n")
Path("made").write_text("part")
"""


def test_a_part_is_set_up_by_the_clones_own_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What it says is passed on, for a screen to show; what it makes is there afterwards."""
    put(tmp_path / "scripts/specchat", "")
    put(tmp_path / "scripts/__init__.py", "")
    put(tmp_path / "scripts/setup_env/__init__.py", "")
    put(tmp_path / "scripts/setup_env/part.py", PART)
    monkeypatch.setattr(clone, "ROOT", tmp_path)
    lines: list[str] = []
    clone.set_up("part", lines.append)
    assert not lines  # it is not the environment that the clone made
    assert not (tmp_path / "made").exists()

    (tmp_path / ".venv").symlink_to(sys.prefix)
    clone.set_up("part", lines.append)
    assert lines == ["building it", "half done"]
    assert (tmp_path / "made").read_text() == "part"


def put(path: Path, text: str) -> None:
    """Write a file, with the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
