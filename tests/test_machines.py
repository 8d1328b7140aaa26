"""Machines of other kinds, as far as they can be had here."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ONE_CORE = "import os; os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})\n"
ASK = (
    "import sys; from specchat.cli import main; raise SystemExit(main(['ask', '--offline',"
    " '--temperature', '0', '--threads', '1', '--max-tokens', '8', sys.argv[1]]))"
)
PATH = "from specchat.cli import main; raise SystemExit(main(['config', 'path']))"


def make_home(path: Path, demo_state: Path) -> Path:
    """Return a home folder of a user whose demo pair is measured."""
    shutil.copytree(demo_state, path / ".local" / "state")
    return path


def run(code: str, home: Path, **variables: str) -> str:
    """Return what a script prints in a home folder; the test fails with its errors."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("XDG_", "LC_", "LANG"))}
    environment |= {"HOME": str(home), "USERPROFILE": str(home), **variables}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code, "Who are you? Zoë"],
        env=environment,
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="cores cannot be chosen here")
def test_one_core_is_enough(tmp_path: Path, demo_state: Path) -> None:
    """The demo pair answers."""
    assert run(ONE_CORE + ASK, make_home(tmp_path / "home", demo_state)).strip()


def test_a_locale_without_utf8_is_no_obstacle(tmp_path: Path, demo_state: Path) -> None:
    """Questions and answers are UTF-8 all the same."""
    variables = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0"}
    assert run(ASK, make_home(tmp_path / "home", demo_state), **variables).strip()


def test_a_home_folder_may_have_any_name(tmp_path: Path, demo_state: Path) -> None:
    """Spaces, quotes and letters beyond ASCII, also with a locale that has none of them."""
    home = make_home(tmp_path / "Zoë's home  ☃", demo_state)
    assert run(ASK, home).strip()
    shown = run(PATH, home, LC_ALL="C")
    assert shown.startswith(str(home)) or sys.platform in {"win32", "darwin"}
