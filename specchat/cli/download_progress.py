"""How far a download is: a line redrawn on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time

from specchat.cli.progress_line import show_line, wipe_progress
from specchat.cli.terminal import say
from specchat.hub.download import Progress
from specchat.hub.tally import Tally

__all__ = ["Transfers"]

REDRAW = 0.1
"""Seconds between two lines on a terminal."""

PLAIN = 5.0
"""Seconds between two lines where there is none."""


class Transfers:
    """Several files on their way, told in one line."""

    def __init__(self) -> None:
        """Begin with nothing on its way."""
        self._pace = REDRAW if sys.stderr.isatty() else PLAIN
        self._shown_at = time.monotonic()
        self._tally = Tally(self._shown_at)
        self._note = ""

    def tell(self, progress: Progress) -> None:
        """Hear of one file, and show all of them if it is time."""
        self._tally.add(progress)
        now = time.monotonic()
        is_new = bool(progress.note) and progress.note != self._note
        self._note = progress.note or self._note
        if now < self._shown_at + self._pace and not is_new:
            return
        self._shown_at = now
        self._tally.take_sample(now)
        if sys.stderr.isatty():
            show_line(self.line()[: shutil.get_terminal_size().columns - 1])
        else:
            say(self.line())

    def wipe(self) -> None:
        """Take the line away."""
        wipe_progress()

    def line(self) -> str:
        """Return how far all of it is, and then each file."""
        return ", ".join([*self._tally.in_words(), *self._tally.files_in_words()])
