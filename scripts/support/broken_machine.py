"""A machine to break: a copy of this repository with folders of its own, and what it prints."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.support.chat_terminal import ESCAPES
from scripts.support.processes import is_running

ROOT = Path(__file__).resolve().parents[2]
STRANGER = 12345
"""A user whom the system does not know."""
SECONDS = 300
PROGRESS = re.compile(
    r"specchat: (creating a Python|installing|continuing at|building llama.cpp for|stopping what"
    r"|\d+:\d\d elapsed|waiting for another|found an? )"
)
"""The beginnings of lines that a set-up prints where nothing is wrong."""
ANSWER = "Hello! I am the small demo model"
CHAT_SHOWN = "Ask anything"


class Failed(Exception):
    """Raised where something that must hold does not."""


@dataclass(frozen=True, slots=True)
class Seen:
    """How a command ended, and what it printed."""

    code: int
    output: str
    errors: str

    @property
    def lines(self) -> list[str]:
        """The lines on stderr that are not progress."""
        return [line for line in self.errors.splitlines() if not PROGRESS.match(line)]


@dataclass
class World:
    """A folder with a clone and a home; its wheels of llama.cpp come from this user's cache."""

    folder: Path
    python: str = sys.executable
    clone: Path = field(init=False)
    home: Path = field(init=False)

    def __post_init__(self) -> None:
        """Make the home and a tool-less folder for the PATH."""
        self.folder.chmod(0o755)
        self.clone, self.home = self.folder / "clone", self.folder / "home"
        self.home.mkdir()

    def cache_wheels(self, wheels: Path) -> None:
        """Copy the CPU's wheels of llama.cpp into the world's cache, for all to read."""
        place = self.home / ".cache" / "specchat" / "wheels"
        place.mkdir(parents=True)
        for each in wheels.glob("*-cpu-*"):
            shutil.copytree(each, place / each.name)

    def fresh(self, name: str = "clone") -> Path:
        """Return a copy of this repository's files that was never set up."""
        self.clone = self.folder / name
        shutil.rmtree(self.clone, ignore_errors=True)
        command = ["git", "-C", str(ROOT), "ls-files", "-z", "--cached", "--others"]
        listed = subprocess.run(
            [*command, "--exclude-standard"], capture_output=True, check=True
        ).stdout
        for relative in listed.decode().split("\0"):
            source = ROOT / relative
            if relative and source.is_file() and not source.is_symlink():
                place = self.clone / relative
                place.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source, place)
        return self.clone

    def ready(self) -> Path:
        """Return a copy that is set up; it is set up once."""
        self.clone = self.folder / "clone"
        if not self._kept.exists():
            self.fresh()
            self.answers()
            self._copy(self.clone, self._kept)
        self._copy(self._kept, self.clone)
        return self.clone

    @property
    def _kept(self) -> Path:
        return self.folder / "kept"

    @staticmethod
    def _copy(source: Path, place: Path) -> None:
        shutil.rmtree(place, ignore_errors=True)
        subprocess.run(["cp", "-a", str(source), str(place)], check=True)

    @property
    def records(self) -> Path:
        """The set-up's stamps, lock and log."""
        return self.clone / ".venv" / "setup"

    @property
    def script(self) -> list[str]:
        """The command that a user types."""
        return [self.python, str(self.clone / "scripts" / "specchat")]

    def environment(self, variables: Mapping[str, str | None]) -> dict[str, str]:
        """Return the user's environment with the world's home; None removes a variable."""
        own = {"HOME": str(self.home), "SPECCHAT_BACKEND": "cpu"}
        dropped = ("PYTHON", "XDG_", "VIRTUAL_ENV", "SPECCHAT_", "HF_", "CMAKE_", "TMPDIR")
        kept = {key: text for key, text in os.environ.items() if not key.startswith(dropped)}
        merged = {**kept, **own, **variables}
        return {key: text for key, text in merged.items() if text is not None}

    def start(
        self,
        *words: str,
        before: Sequence[str] = (),
        variables: Mapping[str, str | None] | None = None,
    ) -> subprocess.Popen[str]:
        """Start specchat, or the command `before` it with it."""
        return subprocess.Popen(
            [*before, *self.script, *words],
            env=self.environment(variables or {}),
            cwd=self.folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def call(
        self,
        *words: str,
        before: Sequence[str] = (),
        variables: Mapping[str, str | None] | None = None,
        during: Callable[[subprocess.Popen[str]], None] | None = None,
    ) -> Seen:
        """Run specchat to its end; `during` disturbs it meanwhile."""
        with self.start(*words, before=before, variables=variables) as child:
            try:
                if during:
                    during(child)
                output, errors = child.communicate(timeout=SECONDS)
            except subprocess.TimeoutExpired:
                raise Failed(f"no end within {SECONDS} s") from None
            finally:
                child.kill()
        seen = Seen(child.returncode, output, errors)
        if "Traceback" in seen.output + seen.errors:
            raise Failed(f"a traceback: {seen.errors[-600:]}")
        return seen

    def fails(self, says: str, *words: str, code: int = 1, **how: object) -> str:
        """Return the one line that a call fails with. Raises Failed unless it says a pattern."""
        seen = self.call(*(words or ("ask", "hi")), **how)  # type: ignore[arg-type]
        if seen.code != code:
            raise Failed(f"exit code {seen.code}, not {code}: {seen.errors[-400:]}")
        if len(seen.lines) != 1 or not re.search(says, seen.lines[0]):
            raise Failed(f"one line with {says!r} was expected: {seen.errors[-600:]}")
        return seen.lines[0]

    def answers(self, **how: object) -> str:
        """Ask the demo pair; return what was printed first. Raises Failed without an answer."""
        seen = self.call("ask", "hi", **how)  # type: ignore[arg-type]
        if seen.code or ANSWER not in seen.output:
            raise Failed(f"no answer, exit code {seen.code}: {seen.errors[-600:]}")
        if seen.lines:
            raise Failed(f"it prints {seen.lines}")
        return (seen.errors or seen.output).splitlines()[0]

    def chats(
        self,
        *words: str,
        shows: str = CHAT_SHOWN,
        before: Sequence[str] = (),
        variables: Mapping[str, str | None] | None = None,
    ) -> None:
        """Open the chat in a terminal and wait for a text. Raises Failed without it."""
        child, terminal = pty.fork()
        if not child:
            given = {"TERM": "xterm-256color", "COLUMNS": "120", "LINES": "40", **(variables or {})}
            command = [*before, *self.script, *words]
            os.execvpe(command[0], command, self.environment(given))  # noqa: S606
        shown, end = "", time.monotonic() + SECONDS
        try:
            while shows not in ESCAPES.sub("", shown) and time.monotonic() < end:
                if select.select([terminal], [], [], 0.2)[0]:
                    shown += os.read(terminal, 1 << 16).decode("utf-8", "replace")
        except OSError:  # it has ended
            pass
        finally:
            with suppress(ProcessLookupError):
                os.kill(child, signal.SIGTERM)
            os.close(terminal)
            os.waitpid(child, 0)
        text = ESCAPES.sub("", shown)
        if shows not in text or "Traceback" in text:
            raise Failed(f"the chat shows {text[-400:]!r}")

    def left_running(self) -> list[int]:
        """Return the processes of the clone's environment that run."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with suppress(OSError):
                if str(self.clone / ".venv").encode() in path.read_bytes():
                    found.append(int(path.parent.name))
        return [each for each in found if is_running(each)]


def wait_until(is_so: Callable[[], bool], what: str, seconds: float = 120) -> None:
    """Wait for something. Raises Failed if it does not come."""
    end = time.monotonic() + seconds
    while not is_so():
        if time.monotonic() > end:
            raise Failed(f"{what} did not come within {seconds:g} s")
        time.sleep(0.01)


def as_stranger(python: str) -> list[str]:
    """Return the command that runs another one as a user whom the system does not know."""
    code = (
        "import os, sys; os.setgroups([]); os.setgid({0}); os.setuid({0});"
        " os.execvp(sys.argv[1], sys.argv[1:])"
    )
    return [python, "-c", code.format(STRANGER)]


@contextmanager
def mounted(folder: Path, *options: str, source: str = "tmpfs") -> Iterator[Path]:
    """Mount a file system on a folder, which is made, until `with` ends."""
    folder.mkdir(parents=True, exist_ok=True)
    kind = ["-t", "tmpfs"] if source == "tmpfs" else ["--bind"]
    subprocess.run(["mount", *kind, "-o", ",".join(options), source, str(folder)], check=True)
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(folder: Path) -> Path:
    """Write a file that leaves no room on a disk; return it."""
    path = folder / "filling"
    with suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 16))
    return path


def find_python() -> str:
    """Return a Python that other users can run as well; this one if there is none."""
    names = [f"python3.{minor}" for minor in range(14, 10, -1)]
    for name in names:
        found = shutil.which(name, path="/usr/local/bin:/usr/bin")
        test = [found or "", "-c", "import venv, ensurepip"]
        if found and subprocess.run(test, capture_output=True, check=False).returncode == 0:
            return found
    return sys.executable
