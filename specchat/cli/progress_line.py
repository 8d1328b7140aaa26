"""One line on stderr, redrawn in place on a terminal, that shows the progress of a long task."""

import sys

from specchat.engine.api import STAGES, Stage
from specchat.percentage import percent


def show_line(line: str) -> None:
    """Replace the last progress line by another one; do nothing without a terminal."""
    if sys.stderr.isatty():
        print(f"\r\x1b[K{line}", end="", file=sys.stderr, flush=True)


def wipe_progress() -> None:
    """Clear the progress line."""
    show_line("")


def show_loading(stage: Stage, share: float) -> None:
    """Show the progress of loading a model or reading a prompt; clear the line at the end."""
    show_line("" if share >= 1 else f"{STAGES[stage]} {percent(share):>5}")


def show_measuring(done: int, total: int, seconds_left: float) -> None:
    """Show how many answers have been measured and how long the others will take."""
    left = f", {seconds_left / 60:.1f} minutes left" if done else ""
    show_line(f"measuring answer {min(done + 1, total)} of {total}{left}")
