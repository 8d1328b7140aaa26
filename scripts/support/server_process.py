"""`specchat serve` in a process of its own, as users run it."""

import json
import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Self

import psutil

LISTENS = re.compile(r"(http://\S+)/v1")
SECONDS_TO_END = 20


class ServerProcess:
    """A server with the demo pair, unless `words` name another, and its own folder of state."""

    def __init__(self, state: Path, words: Sequence[str] = ("--pair", "demo")) -> None:
        """Start it, and wait until it listens. Raises RuntimeError with what it says if not."""
        self.state = state
        self.printed: list[str] = []
        self.process = subprocess.Popen(
            [sys.executable, "-m", "specchat", "serve", "--port", "0", "--threads", "1", *words],
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            env={**os.environ, "XDG_STATE_HOME": str(state)}, start_new_session=True,
        )  # fmt: skip
        self.address = ""
        self._listens = threading.Event()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listens.wait()
        if not self.address:
            raise RuntimeError("".join(self.printed))

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it if it still runs."""
        self.process.kill()
        self.process.wait()
        self._reader.join(SECONDS_TO_END)  # its engine may still be about to end
        if self.process.stdout and not self._reader.is_alive():
            self.process.stdout.close()

    def _read(self) -> None:
        """Keep what it prints, for a full pipe would stop it."""
        assert self.process.stdout  # noqa: S101
        for line in self.process.stdout:
            self.printed.append(line)
            if found := LISTENS.search(line):
                self.address = found[1]
                self._listens.set()
        self._listens.set()

    @property
    def engine(self) -> psutil.Process | None:
        """The engine's process; None if there is none now."""
        children = psutil.Process(self.process.pid).children()
        return next((each for each in children if "spawn_main" in " ".join(each.cmdline())), None)

    def chat(self, question: str = "What is specchat?", **fields: Any) -> dict[str, Any]:
        """Ask one question and return the whole reply. Raises OSError for an error."""
        body = {"messages": [{"role": "user", "content": question}], **fields}
        request = urllib.request.Request(  # noqa: S310  # an address of this machine
            f"{self.address}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=120) as reply:  # noqa: S310
            found: dict[str, Any] = json.load(reply)
            return found

    def end(self, by: signal.Signals = signal.SIGINT) -> int:
        """Interrupt it, and return its exit code."""
        self.process.send_signal(by)
        return self.process.wait(SECONDS_TO_END)

    def end_and_report(self) -> int:
        """End the server and print how it ended; return 1 if anything was wrong, else 0."""
        code, complaints = self.end(), self.complaints()
        print("\n".join([f"ended with exit code {code}", *complaints]))
        return int(bool(code or complaints))

    def complaints(self) -> list[str]:
        """Return what shows that something went wrong in it: tracebacks and logged errors."""
        found = [line for line in self.printed if "Traceback" in line or "internal error" in line]
        log = self.state / "specchat" / "log" / "server.log"
        return found + (log.read_text("utf-8").splitlines() if log.exists() else [])
