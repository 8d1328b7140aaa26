"""A clone makes what reads images with the first one; other installations do not."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specchat.system import clone

PART = """
import sys
from pathlib import Path

sys.stderr.write("specchat: building it\\n" + "specchat: half done\\n")
Path("made").write_text(Path("made").read_text() + "part" if Path("made").exists() else "part")
"""
BROKEN = f"""{PART}
sys.stderr.write("specchat: images cannot be read: no compiler\\n")
sys.exit(1)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder of a repository, which does not run yet."""
    put(tmp_path / "scripts/specchat", "")
    put(tmp_path / "scripts/__init__.py", "")
    put(tmp_path / "scripts/setup_env/__init__.py", "")
    monkeypatch.setattr(clone, "ROOT", tmp_path)
    monkeypatch.setattr(clone, "_outcome", [])
    return tmp_path


def test_what_reads_images_is_made_by_the_clones_own_script(folder: Path) -> None:
    """Once; what it says is passed on, for a screen to show."""
    put(folder / "scripts/setup_env/image_library.py", PART)
    lines: list[str] = []
    assert clone.set_up_images(lines.append) == ""
    assert not lines  # it is not the environment that the clone made
    assert not (folder / "made").exists()

    (folder / ".venv").symlink_to(sys.prefix)
    for _ in range(2):
        assert clone.set_up_images(lines.append) == ""
    assert lines == ["building it", "half done"]
    assert (folder / "made").read_text() == "part"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        (BROKEN, "images cannot be read: no compiler"),
        ("raise SystemExit(3)", "images cannot be read: scripts.setup_env.image_library failed"),
    ],
)
def test_why_it_failed_is_known_from_then_on(folder: Path, script: str, reason: str) -> None:
    """It is returned, not said twice, and not tried again."""
    put(folder / "scripts/setup_env/image_library.py", script)
    (folder / ".venv").symlink_to(sys.prefix)
    lines: list[str] = []
    for _ in range(2):
        assert clone.set_up_images(lines.append) == reason
    assert lines == ["building it", "half done"] * (script == BROKEN)


def put(path: Path, text: str) -> None:
    """Write a file, with the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
