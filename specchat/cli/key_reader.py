"""Reads the terminal's keys as they are pressed, while the program keeps working."""

import os
import sys
from contextlib import suppress
from select import select
from time import monotonic, sleep
from typing import Any, Self

POLL_SECONDS = 0.05
"""How often Windows is asked for a key."""


class KeyReader:
    """Reads keys without Enter and without echo; Ctrl+C stays a signal.

    Without a terminal as standard input there are no keys. In the background of a shell the
    terminal is left alone: changing it would stop the process.
    """

    def __init__(self) -> None:
        """Remember how the terminal is set."""
        self._has_keys = bool(sys.stdin and sys.stdin.isatty())
        self._before: list[Any] | None = None

    def __enter__(self) -> Self:
        self._take_over()
        return self

    def __exit__(self, *_: object) -> None:
        if sys.platform != "win32" and self._before is not None and is_in_foreground():
            import termios

            with suppress(termios.error, OSError):
                termios.tcsetattr(sys.stdin.fileno(), termios.TCSADRAIN, self._before)

    def read(self, seconds: float) -> str:
        """Wait for a key for some seconds; return it, or "" for none and for special keys."""
        if not self._has_keys or not is_in_foreground():
            sleep(seconds)
            return ""
        if sys.platform == "win32":
            return _windows_key(seconds)
        self._take_over()
        if not select([sys.stdin], [], [], seconds)[0]:
            return ""
        pressed = os.read(sys.stdin.fileno(), 16)  # special keys send several bytes
        if not pressed:  # the terminal is gone
            self._has_keys = False
        return pressed.decode("utf-8", "replace") if len(pressed) == 1 else ""

    def _take_over(self) -> None:
        """Set the terminal for reading keys, also again after the shell has reset it."""
        if not self._has_keys or sys.platform == "win32" or not is_in_foreground():
            return
        import termios
        import tty

        terminal = sys.stdin.fileno()
        with suppress(termios.error, OSError):
            modes = termios.tcgetattr(terminal)
            if modes[3] & termios.ICANON:
                self._before = self._before or modes
                tty.setcbreak(terminal, termios.TCSADRAIN)


def is_in_foreground() -> bool:
    """Return True unless the terminal listens to another job of the shell that started this one."""
    if sys.platform == "win32":
        return True
    try:
        return os.tcgetpgrp(sys.stderr.fileno()) == os.getpgrp()
    except OSError:  # not the terminal of this session, which has no jobs there
        return True


def _windows_key(seconds: float) -> str:
    if sys.platform != "win32":
        return ""
    import msvcrt

    until = monotonic() + seconds
    while not msvcrt.kbhit():
        if monotonic() >= until:
            return ""
        sleep(POLL_SECONDS)
    pressed = msvcrt.getwch()
    if pressed in {"\x00", "\xe0"}:  # a special key: its code follows
        msvcrt.getwch()
        return ""
    return pressed
