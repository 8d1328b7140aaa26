"""A terminal that keeps what programs print on it: enough to see what a redrawn screen shows."""

from __future__ import annotations

import os
import pty
import re
import threading
from collections.abc import Callable
from time import monotonic, sleep

__all__ = ["TerminalPicture"]

PARTS = re.compile(r"\x1b\[(?P<marks>\??)(?P<number>\d*)(?P<kind>[A-Za-z])|\r|\n|[^\x1b\r\n]+")
SECONDS = 20.0


class TerminalPicture:
    """A pseudo-terminal and the lines on it; lines that scrolled away are kept too."""

    def __init__(self) -> None:
        """Open it; `follower` is the end for the program."""
        self._leader, self.follower = pty.openpty()
        self.raw = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        while True:
            try:
                part = os.read(self._leader, 65536)
            except OSError:
                return
            self.raw += part.decode("utf-8", "replace")

    def press(self, keys: str) -> None:
        """Press keys."""
        os.write(self._leader, keys.encode())

    def close(self) -> None:
        """Close both ends."""
        os.close(self.follower)
        self._reader.join(5)
        os.close(self._leader)

    @property
    def lines(self) -> list[str]:
        """All lines, from the first one printed to the cursor's, without colours."""
        lines, row, column = [""], 0, 0
        for part in PARTS.finditer(self.raw):
            kind, number = part["kind"], int(part["number"] or 1)
            if part[0] == "\n":
                row += 1
                lines += [""] * (row + 1 - len(lines))
            elif part[0] == "\r":
                column = 0
            elif kind == "A":
                row -= number
            elif kind == "J":
                lines[row] = lines[row][:column]
                del lines[row + 1 :]
            elif kind is None:
                text = part[0]
                lines[row] = lines[row][:column].ljust(column) + text
                column += len(text)
        return [line.rstrip() for line in lines]

    def wait_for(self, pattern: str) -> str:
        """Wait until a line has a pattern, and return that line."""
        lines = self.wait_until(lambda lines: any(re.search(pattern, each) for each in lines))
        return next(line for line in lines if re.search(pattern, line))

    def wait_until(self, holds: Callable[[list[str]], bool]) -> list[str]:
        """Wait until something holds for the lines, and return them."""
        until = monotonic() + SECONDS
        while monotonic() < until:
            if holds(lines := self.lines):
                return lines
            sleep(0.02)
        raise AssertionError("this came instead:\n" + "\n".join(self.lines))
