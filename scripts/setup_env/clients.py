"""Clients of the server's APIs in environments of their own, for the tests of the server.

Their packages and specchat's need not agree on versions, nor do LiteLLM's and those of the others.
The environments lie in `.venv`, and one is made anew if its requirements change.
"""

from __future__ import annotations

import sys
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.running import only_one, run, run_pip, say
from scripts.setup_env.stages import requirements, write_stamp

ENVIRONMENTS = CLIENTS, LITELLM = "clients", "litellm"
"""The names of the environments' folders and stamps."""


def find_clients(name: str = CLIENTS) -> Path | None:
    """Return the Python of an environment; None unless it is complete and up to date."""
    is_complete = fast.read(str(Path(fast.RECORDS, name))) == fast.read(str(file_of(name)))
    python = python_of(Path(fast.VENV, name))
    return python if is_complete and python.exists() else None


def install_clients() -> None:
    """Make the environments that are not there. Raises CommandFailed or OSError."""
    with only_one():
        for name in ENVIRONMENTS:
            if not find_clients(name):
                _install(name)


def _install(name: str) -> None:
    say(f"installing the environment {name} for the tests of the server (about a minute)")
    folder = Path(fast.VENV, name)
    Path(fast.RECORDS, name).unlink(missing_ok=True)
    run([sys.executable, "-m", "venv", "--clear", str(folder)])
    run_pip("install", *requirements(file_of(name)), python=str(python_of(folder)))
    write_stamp(name, fast.read(str(file_of(name))))


def file_of(name: str) -> Path:
    """Return the requirements of an environment."""
    return Path(fast.ROOT, "scripts", f"requirements-{name}.txt")


def python_of(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    is_windows = sys.platform == "win32"
    return folder / "Scripts" / "python.exe" if is_windows else folder / "bin" / "python"
