"""The set-up's long commands: output to a log, progress on stderr, one set-up at a time."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO

from scripts.setup_env.fast import RECORDS, venv_python

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

LOG = Path(RECORDS) / "setup.log"
LOCK = Path(RECORDS) / "lock"
"""Held by a set-up and by every command that it runs."""
OWNER = Path(RECORDS) / "owner"
"""Held by a set-up alone, and has the process group of the command that it runs."""
SECONDS_TO_STOP = 5
ENDING = {
    getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)
}
"""The signals that end a set-up."""
SECONDS_BETWEEN_LINES = 60
"""How often progress is printed without a terminal."""
STEPS_DONE = re.compile(rb"\[(\d+)/(\d+)\] ")
LOG_TAIL = 1 << 16
LEAST_SHARE = 0.1
"""The share of a build after which its pace tells how long the rest takes."""
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


class BuildSteps:
    """The steps of a build with Ninja, which counts only what is left when it is started again.

    A file keeps how many there are and how many are left.
    """

    def __init__(self, path: Path) -> None:
        """Read the file that an interrupted build left."""
        self._path = path
        self._total, self._left = 0, 0
        with suppress(OSError, ValueError):
            self._total, self._left = map(int, path.read_text("utf-8").split())
        self._left_at_first = self._left

    @property
    def share_left(self) -> float:
        """The share of the steps that are left; 1 before the first one."""
        return min(1.0, self._left / self._total) if self._total > 0 else 1.0

    def read(self, log: bytes) -> None:
        """Note what the end of the build's log says."""
        found = [(int(number), int(count)) for number, count in STEPS_DONE.findall(log)]
        if not found:
            return
        most = max(count for _, count in found)  # a build inside this one counts its own
        left = most - [number for number, count in found if count == most][-1]
        if most > self._total:
            self._total = self._left_at_first = most
        if left != self._left:
            self._left = left
            with suppress(OSError):
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.write_text(f"{self._total} {left}", "utf-8")

    def progress(self, seconds: float) -> str:
        """Return the percentage done, and how long the rest takes at the pace of this run."""
        if not self._total:
            return ""
        text = f", {100 * (self._total - self._left) // self._total} %"
        done_now = self._left_at_first - self._left
        if self._left and done_now >= LEAST_SHARE * self._total:
            minutes = max(1, round(seconds * self._left / done_now / 60))
            text += f", about {minutes} min left"
        return text


def say(text: str) -> None:
    """Print a message on stderr; stdout is for specchat's data."""
    print(f"specchat: {text}", file=sys.stderr, flush=True)


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    steps: BuildSteps | None = None,
) -> None:
    """Run a command with its output in the log; raises CommandFailed."""
    with LOG.open("ab") as log:
        log.write(f"\n$ {' '.join(command)}\n".encode())
        log.flush()
        start = log.tell()
        with _started(command, environment, log) as child:
            _wait_with_progress(child, start, steps)
    if child.returncode != 0:
        raise CommandFailed(_last_lines(start))


def run_pip(
    *arguments: str,
    environment: Mapping[str, str] = os.environ,
    python: str = "",
    steps: BuildSteps | None = None,
) -> None:
    """Run pip with the user's settings, except those that lead outside its environment.

    That is the one of `python`, otherwise specchat's.
    """
    kept = {name: value for name, value in environment.items() if name not in OUTSIDE_VARIABLES}
    command = [python or venv_python(), "-m", "pip", "--disable-pip-version-check", *arguments]
    run(command, kept | {"PIP_USER": "0"}, steps)


@contextmanager
def _started(
    command: Sequence[str], environment: Mapping[str, str] | None, log: IO[bytes]
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a command in its own process group, so that nothing of it outlives the set-up.

    A signal that arrives while it is started is handled after that, so that it is stopped too.
    """
    is_windows = sys.platform == "win32"
    with _holding_signals() as release:
        child = subprocess.Popen(  # there are no threads
            command,
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            close_fds=False,  # it inherits the lock, in case this process is killed first
            process_group=None if is_windows else 0,
            preexec_fn=None if is_windows else release,  # noqa: PLW1509  # there are no threads
        )
        try:
            if not is_windows:
                OWNER.write_text(str(child.pid), "utf-8")  # its process group
            release()
            yield child
        finally:
            if child.poll() is None:
                _stop(child)


@contextmanager
def _holding_signals() -> Iterator[Callable[[], object]]:
    """Hold back the signals that end a set-up, until the function that is yielded is called."""
    if sys.platform == "win32":
        yield lambda: None
        return
    before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)
    release = partial(signal.pthread_sigmask, signal.SIG_SETMASK, before)
    try:
        yield release
    finally:
        release()


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


def _wait_with_progress(
    child: subprocess.Popen[bytes], log_start: int, steps: BuildSteps | None
) -> None:
    is_terminal = sys.stderr.isatty()
    begun = time.monotonic()
    reported = begun
    while True:
        try:
            child.wait(1)
            break
        except subprocess.TimeoutExpired:
            now = time.monotonic()
        text = _progress(now - begun, log_start, steps)
        if is_terminal:
            print(f"{CLEAR_LINE}  {text}", end="", file=sys.stderr, flush=True)
        elif now - reported >= SECONDS_BETWEEN_LINES:
            say(text)
            reported = now
    if is_terminal:
        print(CLEAR_LINE, end="", file=sys.stderr, flush=True)


def _progress(seconds: float, log_start: int, steps: BuildSteps | None) -> str:
    """Return the time elapsed and, for a build, what the log says of its steps."""
    minutes, rest = divmod(int(seconds), 60)
    elapsed = f"{minutes}:{rest:02} elapsed"
    if steps is None:
        return elapsed
    with LOG.open("rb") as log:
        log.seek(max(log_start, LOG.stat().st_size - LOG_TAIL))
        steps.read(log.read())
    return elapsed + steps.progress(seconds)


def _last_lines(log_start: int) -> list[str]:
    with LOG.open("rb") as log:
        log.seek(log_start)
        return list(deque((line.decode("utf-8", "replace").rstrip() for line in log), 400))


@contextmanager
def only_one() -> Iterator[None]:
    """Hold the locks of this clone's set-up; wait while another set-up runs.

    A command that a killed set-up left running is ended: it holds one lock, but not the other.
    """
    LOCK.parent.mkdir(parents=True, exist_ok=True)
    with OWNER.open("a+b") as owner, LOCK.open("ab") as file:
        _wait_for(owner, "waiting for another set-up of this folder to finish")
        os.set_inheritable(file.fileno(), True)
        if not _try_lock(file):
            say("stopping what a set-up that was killed left running")
            owner.seek(0)
            _end_group(owner.read(), file)
        yield


def _wait_for(file: IO[bytes], why: str) -> None:
    """Lock a file; print why that takes time, if it does."""
    if not _try_lock(file):
        say(why)
        while not _try_lock(file):
            time.sleep(0.2)


def _end_group(number: bytes, lock: IO[bytes]) -> None:
    """End a process group and wait for the lock that it holds."""
    patience = time.monotonic() + SECONDS_TO_STOP
    signals = [] if sys.platform == "win32" else [signal.SIGKILL, signal.SIGTERM]
    while not _try_lock(lock):
        if signals and number.isdigit() and (len(signals) > 1 or time.monotonic() > patience):
            with suppress(OSError):  # it has ended
                os.killpg(int(number), signals.pop())
        time.sleep(0.2)


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
