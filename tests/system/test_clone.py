"""A clone makes what reads images with the first one; other installations do not."""

from __future__ import annotations

import sys
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Lock, Semaphore

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
    monkeypatch.setattr(clone, "_outcomes", [])
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
def test_what_failed_is_tried_again_when_asked_for(folder: Path, script: str, reason: str) -> None:
    """Not by itself, as it may take minutes; what was made stays, whatever the script does now."""
    part = folder / "scripts/setup_env/image_library.py"
    put(part, script)
    (folder / ".venv").symlink_to(sys.prefix)
    lines: list[str] = []
    for _ in range(2):
        assert clone.set_up_images(lines.append) == reason
    assert lines == ["building it", "half done"] * (script == BROKEN)
    assert clone.set_up_images(lines.append, again=True) == reason
    put(part, PART)
    assert clone.set_up_images(lines.append) == reason
    assert clone.set_up_images(lines.append, again=True) == ""
    put(part, BROKEN)
    assert clone.set_up_images(lines.append, again=True) == ""


class Entrance(AbstractContextManager[None]):
    """A lock that counts those who come for it."""

    def __init__(self) -> None:
        """Begin with nobody."""
        self.came, self._lock = Semaphore(0), Lock()

    def __enter__(self) -> None:
        self.came.release()
        self._lock.acquire()

    def __exit__(self, *_: object) -> None:
        self._lock.release()


def test_those_who_wait_for_an_attempt_take_what_comes_of_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if they asked for another one: they did before this one had failed."""
    put(folder / "scripts/setup_env/image_library.py", BROKEN)
    (folder / ".venv").symlink_to(sys.prefix)
    entrance, waiting = Entrance(), list[Future[str]]()
    monkeypatch.setattr(clone, "_setting_up", entrance)
    with ThreadPoolExecutor(1) as others:

        def hold(_: str) -> None:
            if not waiting:
                assert entrance.came.acquire(timeout=60)  # by the first
                waiting.append(others.submit(clone.set_up_images, print, again=True))
                assert entrance.came.acquire(timeout=60)

        assert clone.set_up_images(hold) == "images cannot be read: no compiler"
        assert waiting[0].result(60) == "images cannot be read: no compiler"
    assert (folder / "made").read_text() == "part"


def put(path: Path, text: str) -> None:
    """Write a file, with the folders it is in."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
