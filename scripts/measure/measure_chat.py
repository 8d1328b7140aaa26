"""Measure what the chat costs: first frame, keys while it streams, and the engine's speed.

The chat runs in a pseudo-terminal of 120 x 40 and is typed to, as a user would; the speed of its
answer is read from its own history. `specchat ask` answers the same prompt, alternating with it.
A round before the compared ones is typed to while it streams.

    python scripts/measure/measure_chat.py                # the demo pair
    python scripts/measure/measure_chat.py FOLDER         # a pair made by make_pair.py
    python scripts/measure/measure_chat.py MODEL.gguf     # a model, with suffix lookup
"""

from __future__ import annotations

import argparse
import fcntl
import json
import os
import pty
import select
import signal
import sqlite3
import statistics
import struct
import subprocess
import sys
import tempfile
import termios
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from scripts.support.counts import positive
from scripts.support.machine_line import machine_line

ROOT = Path(__file__).resolve().parents[2]
ROWS, COLUMNS = 40, 120
PATIENCE = 300.0
DEMO_PROMPT = "Tell me a long story about a small program that wanted to be fast."
FIRST_FRAME = b"sk anything"  # the cursor stands on the first letter
MINIMAL_APP = """
from textual.app import App
from textual.widgets import Static

class Minimal(App):
    def compose(self):
        yield Static("Ask anything")

Minimal().run()
"""


@dataclass(slots=True)
class Measured:
    """What was measured in one session of the chat."""

    first_frame_s: float = 0.0
    minimal_first_frame_s: float = 0.0
    echoes_s: list[float] = field(default_factory=list)
    tokens_per_second: float = 0.0


class Terminal:
    """A program in a pseudo-terminal, typed to and read from."""

    def __init__(self, command: list[str], environment: dict[str, str]) -> None:
        """Start the program."""
        self.began = time.perf_counter()
        self._process, self._handle = pty.fork()
        if self._process == 0:
            os.execvpe(command[0], command, environment)  # noqa: S606
        size = struct.pack("HHHH", ROWS, COLUMNS, 0, 0)
        fcntl.ioctl(self._handle, termios.TIOCSWINSZ, size)

    def type(self, keys: bytes) -> None:
        """Send keys."""
        os.write(self._handle, keys)

    def wait_for(self, words: bytes, seconds: float = PATIENCE) -> float:
        """Read until some words come; return when they did."""
        seen = b""
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            seen = seen[-len(words) :] + self.read(0.05)
            if words in seen:
                return time.perf_counter()
        raise SystemExit(f"{words!r} did not come within {seconds:.0f} s")

    def read(self, seconds: float) -> bytes:
        """Return what comes within some time."""
        if not select.select([self._handle], [], [], seconds)[0]:
            return b""
        with suppress(OSError):
            return os.read(self._handle, 65536)
        return b""

    def drain(self, seconds: float) -> bytes:
        """Let the program run for some time, reading now and then as a terminal does."""
        output = b""
        deadline = time.perf_counter() + seconds
        while time.perf_counter() < deadline:
            time.sleep(0.05)
            output += self.read(0.0)
        return output

    def end(self) -> None:
        """End the program."""
        self.type(b"\x11")
        for _ in range(100):
            self.read(0.05)
            if os.waitpid(self._process, os.WNOHANG)[0]:
                return
        os.kill(self._process, signal.SIGKILL)
        os.waitpid(self._process, 0)


def finished(database: Path) -> float:
    """Return the speed of an answer that has ended, 0 before."""
    with suppress(sqlite3.Error):
        reader = sqlite3.connect(f"file:{database}?mode=ro", uri=True)
        try:
            rows = reader.execute("SELECT statistics FROM message WHERE finish IS NOT NULL")
            for (text,) in rows:
                return float(json.loads(text)["tokens_per_second"])
        finally:
            reader.close()
    return 0.0


def run_chat(words: list[str], prompt: str, folder: Path, *, types_along: bool) -> Measured:
    """Ask in the chat, typing meanwhile on request; return what was measured."""
    measured = Measured()
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    environment |= {"XDG_DATA_HOME": str(folder), "PYTHONPATH": str(ROOT)}
    measured.minimal_first_frame_s = minimal_first_frame(environment)
    terminal = Terminal([sys.executable, "-m", "specchat", *words], environment)
    measured.first_frame_s = terminal.wait_for(FIRST_FRAME) - terminal.began
    terminal.type(prompt.encode() + b"\r")
    database = folder / "specchat" / "history.db"
    deadline = time.perf_counter() + PATIENCE
    has_begun = 0.0
    while not (rate := finished(database)) and time.perf_counter() < deadline:
        output = terminal.drain(1.0)  # seldom: whoever measures takes a core from the engine
        has_begun = has_begun or (time.perf_counter() if b"first token" in output else 0.0)
        for _ in range(5 if types_along and has_begun else 0):
            measured.echoes_s.append(echo(terminal))
    measured.tokens_per_second = rate
    terminal.end()
    return measured


def minimal_first_frame(environment: dict[str, str]) -> float:
    """Return the seconds until a Textual app of one line of text shows it."""
    terminal = Terminal([sys.executable, "-c", MINIMAL_APP], environment)
    shown = terminal.wait_for(FIRST_FRAME) - terminal.began
    terminal.end()
    return shown


def echo(terminal: Terminal) -> float:
    """Return the seconds until a key shows."""
    while terminal.read(0.0):
        pass
    pressed = time.perf_counter()
    terminal.type(b"~")
    return terminal.wait_for(b"~", 5.0) - pressed


def run_ask(words: list[str], prompt: str) -> float:
    """Answer the same with `specchat ask`; return tokens per second."""
    command = [sys.executable, "-m", "specchat", "ask", "--json", *words, prompt]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        command, capture_output=True, check=True, env=environment, stdin=subprocess.DEVNULL
    )
    return float(json.loads(done.stdout)["stats"]["tokens_per_second"])


def main() -> None:
    """Measure both, alternating, and print medians."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("pair", type=Path, nargs="?", help="a folder of make_pair.py, or a model")
    parser.add_argument("--rounds", type=positive, default=5)
    parser.add_argument("--tokens", type=int, default=400)
    parser.add_argument("--prompt", default=DEMO_PROMPT)
    options = parser.parse_args()
    words = ["--temperature", "0", "--max-tokens", str(options.tokens)]
    pair: Path | None = options.pair
    if pair and pair.is_dir():
        words += ["--target", str(pair / "target.gguf"), "--draft", str(pair / "draft.gguf")]
    elif pair:
        words += ["--target", str(pair), "--draft", "none"]
    chats: list[Measured] = []
    asks: list[float] = []
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)  # a user's second start finds it compiled
    with tempfile.TemporaryDirectory() as state:
        os.environ["XDG_STATE_HOME"] = state
        run_ask(words, options.prompt)  # what passes cost is learned
        for number in range(options.rounds + 1):
            types_along = number == 0
            with tempfile.TemporaryDirectory() as folder:
                chats.append(run_chat(words, options.prompt, Path(folder), types_along=types_along))
            if types_along:  # which slows the engine down, so this one is not compared
                continue
            asks.append(run_ask(words, options.prompt))
            print(f"chat {chats[-1].tokens_per_second:.1f}, ask {asks[-1]:.1f} tokens/s",
                  file=sys.stderr)  # fmt: skip
    ratios = [chat.tokens_per_second / ask for chat, ask in zip(chats[1:], asks, strict=True)]
    echoes = sorted(chats[0].echoes_s) or [0.0]
    print(machine_line())
    minimal = statistics.median(c.minimal_first_frame_s for c in chats)
    print(f"first frame: {1e3 * statistics.median(c.first_frame_s for c in chats):.0f} ms;"
          f" of a Textual app of one line: {1e3 * minimal:.0f} ms")  # fmt: skip
    print(f"keys while it streams: {1e3 * statistics.median(echoes):.0f} ms, {1e3 * echoes[-1]:.0f}"
          f" ms at most, of {len(echoes)}")  # fmt: skip
    print(f"chat / ask: {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})")


if __name__ == "__main__":
    main()
