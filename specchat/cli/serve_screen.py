"""The live screen of `specchat serve`: the requests, their progress, and the totals.

It draws below the shell's prompt and redraws its last lines in place; rows that no longer fit
become part of what the terminal keeps.
"""

import os
import queue
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Self

from specchat.cli.key_reader import KeyReader, is_in_foreground
from specchat.cli.serve_picture import (
    Column,
    Line,
    Style,
    columns_for,
    head_line,
    request_line,
    totals_line,
)
from specchat.cli.terminal import has_colours
from specchat.safe_text import in_one_line

if TYPE_CHECKING:
    from specchat.server.activity import ServedRequest
    from specchat.server.service import Service

SECONDS = 0.25
"""Seconds between two pictures."""
TWICE_SECONDS = 3.0
"""Seconds within which a second q ends the server while answers are in progress."""
FEW_LINES = 4
"""The rows that a table has on the lowest screen."""
MOST_ROWS = 200
"""The most finished requests kept for display while the shell's prompt has the terminal."""
SMALLEST = (40, 10)
"""The size that a terminal has at least, in columns and rows; some say 0."""
NO_DRAWING = frozenset({"", "dumb", "unknown"})
"""Values of TERM for terminals that only print."""
CLEAR = "\x1b[H\x1b[2J"
BEGIN_FRAME, END_FRAME = "\x1b[?2026h", "\x1b[?2026l"
"""Terminals that know them show all between them at once; others skip them."""
SETUP_HINT, END_HINT = "c set up a client   ", "q end"


class ServeScreen:
    """Draws the requests of a service on stderr, on a thread of its own, and reads keys."""

    def __init__(
        self,
        service: "Service",
        header: Sequence[Line],
        setup: str,
        setups: Mapping[str, Callable[[], str]],
        end: Callable[[], object],
    ) -> None:
        """Prepare to draw.

        A client's `setup` is shown first; `setups` make those that c offers, `end` ends the server.
        """
        self._service, self._header, self._setup = service, header, setup
        self._setups, self._end = setups, end
        self._ended: queue.SimpleQueue[ServedRequest] = queue.SimpleQueue()
        self._notices: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._rows: deque[ServedRequest] = deque(maxlen=MOST_ROWS)
        self._shown: list[str] = []
        self._size = terminal_size()
        self._is_choosing = self._is_closing = self._is_continued = False
        self._quit_at = 0.0
        self._has_colours = has_colours(sys.stderr)
        self._thread = threading.Thread(target=self._run, name="screen", daemon=True)

    def __enter__(self) -> Self:
        self._service.observers.append(self._observe)
        if hasattr(signal, "SIGCONT") and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGCONT, self._on_continue)
        setup = ["", *self._setup.splitlines()] if self._setup else []
        self._write([*self._painted(self._header), *setup], [])
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._service.observers.remove(self._observe)
        self._is_closing = True
        self._thread.join()

    def notice(self, line: str) -> None:
        """Print what the user should know above the table, from any thread."""
        self._notices.put(in_one_line(line))

    def _observe(self, request: "ServedRequest") -> None:
        if request.state == "over":
            self._ended.put(request)

    def _on_continue(self, *_: object) -> None:
        """Note that the shell has shown something since the last picture."""
        self._is_continued = True

    def _run(self) -> None:
        with suppress(OSError):  # the terminal is gone: the server goes on without it
            with KeyReader() as keys:
                while not self._is_closing:
                    self._draw()
                    self._press(keys.read(SECONDS))
            self._is_choosing = False
            self._draw()

    # --- keys ---

    def _press(self, key: str) -> None:
        if self._is_choosing and key:
            self._is_choosing = False
            chosen = list(self._setups)[int(key) - 1 :] if key.isdecimal() and int(key) else []
            if chosen:
                self._show_setup(self._setups[chosen[0]]())
        elif key in {"c", "C"}:
            self._is_choosing = bool(self._setups)
        elif key in {"q", "Q"}:
            before, self._quit_at = self._quit_at, monotonic()
            is_sure = self._quit_at - before < TWICE_SECONDS
            if is_sure or not self._service.activity.live():
                self._end()

    def _show_setup(self, text: str) -> None:
        """Print a set-up above the table, whose rows go before it so that it stays in sight."""
        width = self._size[0] - 1
        columns = columns_for(width)
        rows = [request_line(row, columns) for row in self._rows]
        self._rows.clear()
        table = [head_line(columns), *rows] if rows else []
        self._write([*self._painted(table), "", *text.splitlines()], [])

    def _hint(self) -> Line:
        if self._is_choosing:
            names = "  ".join(f"{number} {name}" for number, name in enumerate(self._setups, 1))
            return Line(f"set up: {names}   Esc", Style.WAITING)
        live = self._service.activity.live()
        if live and monotonic() - self._quit_at < TWICE_SECONDS:
            requests = "1 request" if len(live) == 1 else f"{len(live)} requests"
            return Line(f"q again ends {requests} in progress", Style.WAITING)
        return Line(SETUP_HINT * bool(self._setups) + END_HINT, Style.DIM)

    # --- drawing ---

    def _draw(self) -> None:
        """Draw the table, the totals and the keys; rows that do not fit any more stay above it."""
        while not self._ended.empty():
            self._rows.append(self._ended.get())
        if not is_in_foreground():
            return
        above: list[str] = []
        if self._is_continued:
            self._is_continued, self._shown = False, []
            above = self._painted(self._header)
        if (size := terminal_size()) != self._size:  # the terminal may have moved all lines
            self._size, self._shown = size, []
            above = [CLEAR + line if not index else line
                     for index, line in enumerate(self._painted(self._header))]  # fmt: skip
        while not self._notices.empty():
            above.append(self._notices.get())
        columns = columns_for(size[0] - 1)
        most = max(FEW_LINES, size[1] - len(self._header) - 4)
        live = self._live_lines(columns, most)
        while self._rows and len(self._rows) + len(live) > most:
            above += self._painted([request_line(self._rows.popleft(), columns)])
        rows = [*(request_line(row, columns) for row in self._rows), *live]
        table = [Line(""), head_line(columns), *rows] if rows else [Line("")]
        ends = [totals_line(self._service.activity.totals(), self._service.activity.live())]
        if not self._is_closing:
            ends.append(self._hint())
        self._write(above, self._painted([*table, *ends]))

    def _live_lines(self, columns: Sequence[Column], most: int) -> list[Line]:
        """Return the rows of requests in progress, those that wait last."""
        live = self._service.activity.live()
        waiting = sorted(
            (request for request in live if request.state == "waiting"), key=_queue_position
        )
        begun = [request for request in live if request.state != "waiting"]
        lines = [request_line(request, columns) for request in begun]
        lines += [request_line(request, columns, rank) for rank, request in enumerate(waiting, 1)]
        if len(lines) > most:
            left_out = len(lines) - most + 1
            lines[most - 1 :] = [Line(f"  and {left_out} more", Style.WAITING)]
        return lines

    def _painted(self, lines: Sequence[Line]) -> list[str]:
        width = self._size[0] - 1
        return [line.painted(width, has_colours=self._has_colours) for line in lines]

    def _write(self, above: Sequence[str], shown: list[str]) -> None:
        """Print lines that stay, and below them those that the next picture replaces."""
        if not above and shown == self._shown:
            return
        back = f"\x1b[{len(self._shown)}A" if self._shown else ""
        text = "".join(f"{line}\n" for line in (*above, *shown))
        self._shown = shown
        print(f"{BEGIN_FRAME}{back}\r\x1b[J{text}{END_FRAME}", end="", file=sys.stderr, flush=True)


def can_draw() -> bool:
    """Return True if stderr is a terminal that can redraw lines, and this process may do so."""
    if not sys.stderr.isatty():
        return False
    if sys.platform == "win32":
        os.system("")  # noqa: S605  # turns on escape sequences in the console
        return True
    return os.environ.get("TERM", "") not in NO_DRAWING and is_in_foreground()


def terminal_size() -> tuple[int, int]:
    """Return the columns and rows of the terminal."""
    try:
        size = os.get_terminal_size(sys.stderr.fileno())
    except (OSError, ValueError):
        return 80, 24
    return max(SMALLEST[0], size.columns), max(SMALLEST[1], size.lines)


def _queue_position(request: "ServedRequest") -> int:
    return request.place
