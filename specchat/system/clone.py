"""The clone of the repository that runs, if it is one, and the parts that its scripts set up."""

import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FAILED = "images cannot be read"
"""How the line begins that says why they cannot."""
_setting_up = threading.Lock()
_outcomes: list[str] = []
"""Of each attempt to make what reads images in this clone, why it failed, "" if it did not."""


def is_clone() -> bool:
    """Return True in the environment created by a clone's set-up script."""
    has_script = (ROOT / "scripts" / "specchat").is_file()
    return has_script and Path(sys.prefix).resolve() == (ROOT / ".venv").resolve()


def set_up_images(on_line: Callable[[str], object], *, again: bool = False) -> str:
    """Have a clone make what reads images, once, and block until then; return why that failed.

    That takes a minute or two, of which `on_line` is given a line; so what failed is only tried
    `again` where the user may have mended it. Returns "" for other installations, which have it
    from the start, or not at all.
    """
    if not is_clone():
        return ""
    known = len(_outcomes)
    with _setting_up:
        is_retry = again and len(_outcomes) == known  # else it was tried meanwhile
        if not _outcomes or (is_retry and _outcomes[-1]):
            try:
                _outcomes.append(_made_images(on_line))
            except OSError as error:
                return f"{FAILED}: {error.strerror}"
        return _outcomes[-1]


def _made_images(on_line: Callable[[str], object]) -> str:
    command = [sys.executable, "-m", "scripts.setup_env.image_library"]
    failure = ""
    with subprocess.Popen(
        command,
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as child:
        for line in child.stderr or ():
            words = line.strip().removeprefix("specchat: ")
            if words.startswith(FAILED):
                failure = words
            else:
                on_line(words)
    return failure or (f"{FAILED}: {command[-1]} failed" if child.returncode else "")
