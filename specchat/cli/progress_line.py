"""One line on stderr, where it is a terminal, that says how far a long measurement is."""

from __future__ import annotations

import sys

__all__ = ["show_line", "show_progress", "wipe_progress"]


def show_progress(done: int, total: int, seconds_left: float) -> None:
    """Show how many answers are measured, and how long the rest will take."""
    left = f", {seconds_left / 60:.1f} minutes left" if done else ""
    show_line(f"measuring {min(done + 1, total)} of {total} answers{left}")


def show_line(line: str) -> None:
    """Put a line in the place of the last one."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def wipe_progress() -> None:
    """Take the line away."""
    show_line("")
