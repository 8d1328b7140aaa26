"""The set-up's long commands: output to a log, progress on stderr, one set-up at a time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from scripts.setup_env.fast import RECORDS, venv_python

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOG = Path(RECORDS) / "setup.log"
LOCK = Path(RECORDS) / "lock"
SECONDS_TO_STOP = 5
SECONDS_BETWEEN_LINES = 60
"""How often progress is printed without a terminal."""
STEPS_DONE = re.compile(rb"\[(\d+)/(\d+)\] ")
OUTSIDE_VARIABLES = frozenset({"PYTHONPATH", "PYTHONHOME"})
"""Variables that make pip find packages outside the environment and count them as installed."""
CLEAR_LINE = "\r\x1b[2K"


class SetUpFailed(Exception):
    """Raised when the set-up cannot continue; the message is shown to the user."""


class CommandFailed(Exception):
    """Raised when a command of the set-up fails; `output` holds its last lines."""

    def __init__(self, output: list[str]) -> None:
        """Store the last lines of the output."""
        super().__init__()
        self.output = output


def say(text: str) -> None:
    """Print a message on stderr; stdout is for specchat's data."""
    print(f"specchat: {text}", file=sys.stderr, flush=True)


def run(command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
    """Run a command with its output in the log; raises CommandFailed."""
    with LOG.open("ab") as log:
        log.write(f"\n$ {' '.join(command)}\n".encode())
        log.flush()
        start = log.tell()
        with _started(command, environment, log) as child:
            _wait_with_progress(child, start)
    if child.returncode != 0:
        raise CommandFailed(_last_lines(start))


def run_pip(*arguments: str, environment: Mapping[str, str] = os.environ, python: str = "") -> None:
    """Run pip with the user's settings, except those that lead outside its environment.

    That is the one of `python`, otherwise specchat's.
    """
    kept = {name: value for name, value in environment.items() if name not in OUTSIDE_VARIABLES}
    command = [python or venv_python(), "-m", "pip", "--disable-pip-version-check", *arguments]
    run(command, kept | {"PIP_USER": "0"})


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str] | None, log: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in its own process group, so that nothing of it outlives the set-up."""
    child = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=subprocess.STDOUT,
        close_fds=False,  # it inherits the lock, in case this process is killed first
        process_group=None if sys.platform == "win32" else 0,
    )
    try:
        yield child
    finally:
        if child.poll() is None:
            _stop(child)


def _stop(child: subprocess.Popen[bytes]) -> None:
    """End a command and everything it started."""
    if sys.platform == "win32":
        subprocess.run(
            ["taskkill", "/T", "/F", "/PID", str(child.pid)], capture_output=True, check=False
        )
        child.wait()
        return
    os.killpg(child.pid, signal.SIGTERM)
    try:
        child.wait(SECONDS_TO_STOP)
    except subprocess.TimeoutExpired:
        os.killpg(child.pid, signal.SIGKILL)
        child.wait()


def _wait_with_progress(child: subprocess.Popen[bytes], log_start: int) -> None:
    is_terminal = sys.stderr.isatty()
    begun = time.monotonic()
    reported = begun
    while True:
        try:
            child.wait(1)
            break
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        if is_terminal:
            print(f"{CLEAR_LINE}  {_progress(now - begun, log_start)}", end="", file=sys.stderr)
            sys.stderr.flush()
        elif now - reported >= SECONDS_BETWEEN_LINES:
            say(_progress(now - begun, log_start))
            reported = now
    if is_terminal:
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


def _progress(seconds: float, log_start: int) -> str:
    """Return the time elapsed and, if the log has the build's counter, a percentage."""
    minutes, rest = divmod(int(seconds), 60)
    with LOG.open("rb") as log:
        log.seek(max(log_start, LOG.stat().st_size - 65536))
        steps = STEPS_DONE.findall(log.read())
    share = f", {100 * int(steps[-1][0]) // max(1, int(steps[-1][1]))} %" if steps else ""
    return f"{minutes}:{rest:02} elapsed{share}"


def _last_lines(log_start: int) -> list[str]:
    with LOG.open("rb") as log:
        log.seek(log_start)
        return list(deque((line.decode("utf-8", "replace").rstrip() for line in log), 400))


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the lock of this clone's set-up; wait while another set-up runs."""
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with LOCK.open("ab") as file:
        os.set_inheritable(file.fileno(), True)
        if not _try_lock(file):
            say("waiting for another set-up of this folder to finish")
            while not _try_lock(file):
                time.sleep(0.2)
        yield


def _try_lock(file: IO[bytes]) -> bool:
    try:
        if sys.platform == "win32":
            file.seek(0)
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)
        else:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
