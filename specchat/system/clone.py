"""The clone of the repository that runs, if it is one, and the parts that its scripts set up."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def is_clone() -> bool:
    """Return True in the environment created by a clone's set-up script."""
    has_script = (ROOT / "scripts" / "specchat").is_file()
    return has_script and Path(sys.prefix).resolve() == (ROOT / ".venv").resolve()


def set_up(part: str, on_line: Callable[[str], object] | None = None) -> None:
    """Set up a part of a clone that not everyone needs, unless it is there; block until then.

    Its messages, one of which may be that it failed, go to stderr, or line by line to `on_line`.
    Other installations have it from the start, or not at all.
    """
    if not is_clone():
        return
    command = [sys.executable, "-m", f"scripts.setup_env.{part}"]
    stderr = subprocess.PIPE if on_line else None
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.DEVNULL, stderr=stderr, text=True, errors="replace"
    ) as child:
        for line in child.stderr or ():
            if on_line:
                on_line(line.strip().removeprefix("specchat: "))
