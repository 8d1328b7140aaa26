"""Clients of the server's APIs in an environment of their own, for the tests of the server.

Their packages and specchat's need not agree on versions. The environment lies in `.venv/clients`
and is made anew if the requirements change.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.running import only_one, run, run_pip, say
from scripts.setup_env.stages import requirements, write_stamp

REQUIREMENTS = Path(fast.ROOT, "scripts", "requirements-clients.txt")
FOLDER = Path(fast.VENV, "clients")
STAMP = "clients"


def find_clients() -> Path | None:
    """Return the Python of the clients' environment; None unless it is complete and up to date."""
    is_complete = fast.read(str(Path(fast.RECORDS, STAMP))) == fast.read(str(REQUIREMENTS))
    python = python_of(FOLDER)
    return python if is_complete and python.exists() else None


def install_clients() -> None:
    """Make the clients' environment unless it is there. Raises CommandFailed or OSError."""
    with only_one():
        if find_clients():
            return
        say("installing clients of the server's APIs for the tests (about a minute)")
        Path(fast.RECORDS, STAMP).unlink(missing_ok=True)
        run([sys.executable, "-m", "venv", "--clear", str(FOLDER)])
        run_pip("install", *requirements(REQUIREMENTS), python=str(python_of(FOLDER)))
        write_stamp(STAMP, fast.read(str(REQUIREMENTS)))


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    is_windows = sys.platform == "win32"
    return folder / "Scripts" / "python.exe" if is_windows else folder / "bin" / "python"
