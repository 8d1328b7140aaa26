"""The real chat in a pseudo-terminal, with folders of its own, and its history as others see it."""

import fcntl
import os
import pty
import re
import select
import signal
import sqlite3
import struct
import sys
import termios
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil

from scripts.support.processes import still_running

ROOT = Path(__file__).resolve().parents[2]
LAUNCH = """
import specchat.cli.pair_choices as choices
from specchat.cli import main
before = choices.generate_options
choices.generate_options = lambda *given: {**before(*given), "ignore_end": True}
raise SystemExit(main())
"""
"""Runs the chat with endless answers: those of the demo pair end within half a second."""
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[()][A-Z0-9]|.)")
ROWS, COLUMNS = 40, 120


class Failed(Exception):
    """Raised where something that must hold does not."""


class Chat:
    """A chat that runs in a terminal."""

    def __init__(self, folder: Path, *options: str) -> None:
        """Start it; its folders are below `folder`."""
        self.database = folder / "data" / "specchat" / "history.db"
        self.temporary = folder / "temporary"
        self.temporary.mkdir(parents=True, exist_ok=True)
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path]),
            "TERM": "xterm-256color",
            "TMPDIR": str(self.temporary),
            **{
                f"XDG_{name.upper()}_HOME": str(folder / name)
                for name in ("data", "state", "config")
            },
            "XDG_CACHE_HOME": str(folder.parent / "cache"),  # what was measured of the pair
        }
        words = ["--temperature", "0", "--threads", "1", "--max-tokens", "2500", *options]
        self.pid, self._terminal = pty.fork()
        if not self.pid:
            command = [sys.executable, "-c", LAUNCH, *words]
            os.execve(sys.executable, command, environment)  # noqa: S606
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, size)
        self._process = psutil.Process(self.pid)
        self._family: set[psutil.Process] = {self._process}
        self._output = ""
        self.code: int | None = None

    def read(self, seconds: float = 0.05) -> None:
        """Take what the chat writes for a while."""
        end = time.monotonic() + seconds
        while (left := end - time.monotonic()) > 0:
            ready, _, _ = select.select([self._terminal], [], [], left)
            if not ready:
                return
            try:
                part = os.read(self._terminal, 1 << 16)
            except OSError:
                time.sleep(left)
                return
            self._output = (self._output + part.decode("utf-8", "replace"))[-400_000:]

    def shown(self) -> str:
        """Return all that was written since the last `clear`, without escape sequences."""
        return re.sub(r"\s+", " ", ESCAPES.sub(" ", self._output))

    def clear(self) -> None:
        """Forget what was written so far."""
        self._output = ""

    def until(self, holds: Callable[[], object], what: str, seconds: float = 60.0) -> None:
        """Wait until something holds; Failed if it does not."""
        end = time.monotonic() + seconds
        while not holds():
            if time.monotonic() > end:
                raise Failed(f"not seen: {what}; the end of what was: {self.shown()[-300:]}")
            self.read()
            self.remember()

    def see(self, text: str, seconds: float = 60.0) -> None:
        """Wait until the chat shows a text."""
        self.until(lambda: text in self.shown(), text, seconds)

    def press(self, keys: str) -> None:
        """Type."""
        os.write(self._terminal, keys.encode())

    def ask(self, question: str) -> None:
        """Send a question."""
        self.press(question)
        self.read(0.1)
        self.press("\r")

    def remember(self) -> list[psutil.Process]:
        """Return the processes below the chat, and remember them."""
        found: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            found = self._process.children(recursive=True)
        self._family |= set(found)
        return found

    def engine(self) -> psutil.Process:
        """Return the engine's process."""
        found: list[psutil.Process] = []

        def has_one() -> bool:
            found[:] = filter(is_engine, self.remember())
            return bool(found)

        self.until(has_one, "an engine's process")
        return found[0]

    def hang_up(self) -> None:
        """Close the terminal."""
        os.close(self._terminal)
        self._terminal = os.open(os.devnull, os.O_RDWR)

    def wait(self, seconds: float = 30.0) -> None:
        """Wait for the end of the chat, and of all it started."""
        end = time.monotonic() + seconds
        while self.code is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.code = os.waitstatus_to_exitcode(status)
            elif time.monotonic() > end:
                raise Failed(f"the chat does not end; it shows {self.shown()[-300:]}")
            self.read()
        if still_running([*self._family - {self._process}], timeout_s=10):
            raise Failed("a process is left")

    def kill(self) -> None:
        """End everything, whatever state it is in."""
        self.remember()
        for process in self._family:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        if self.code is None:
            with suppress(ChildProcessError):
                os.waitpid(self.pid, 0)
        with suppress(OSError):
            os.close(self._terminal)

    def send(self, number: signal.Signals) -> None:
        """Send the chat a signal."""
        self.remember()
        os.kill(self.pid, number)

    def answers(self) -> list[tuple[str, str | None]]:
        """Return the text and the end of each answer, as stored now."""
        query = "SELECT text, finish FROM message WHERE role = 'assistant' ORDER BY id"
        with suppress(sqlite3.Error), closing(sqlite3.connect(self.database, timeout=1)) as opened:
            return list(opened.execute(query))
        return []


OTHER_ENGINES: set[int] = set()
"""The numbers of engine processes that do not count, as those of the tests of the server."""


def is_engine(process: psutil.Process) -> bool:
    """Return True for a running engine process."""
    if process.pid in OTHER_ENGINES:
        return False
    with suppress(psutil.Error):
        is_running = process.status() != psutil.STATUS_ZOMBIE
        return is_running and "multiprocessing.spawn" in " ".join(process.cmdline())
    return False
