"""The progress of downloads: a line redrawn on a terminal, or a new one now and then."""

from __future__ import annotations

import shutil
import sys
import time
from contextlib import AbstractContextManager

from specchat.cli.progress_line import show_line, wipe_progress
from specchat.cli.terminal import say
from specchat.hub.download import Progress
from specchat.hub.tally import Tally

__all__ = ["ProgressLine"]

TERMINAL_SECONDS, PLAIN_SECONDS = 0.1, 5.0
"""Time between two lines on a terminal and elsewhere."""


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """The progress of several files in one line, wiped when `with` ends."""

    def __init__(self) -> None:
        """Start without files."""
        self._interval = TERMINAL_SECONDS if sys.stderr.isatty() else PLAIN_SECONDS
        self._shown_at = time.monotonic()
        self._tally = Tally(self._shown_at)
        self._note = ""

    def __exit__(self, *_: object) -> None:
        """Wipe the line."""
        wipe_progress()

    def update(self, progress: Progress) -> None:
        """Take the progress of one file, and show that of all when it is time."""
        self._tally.add(progress)
        now = time.monotonic()
        is_new = bool(progress.note) and progress.note != self._note
        self._note = progress.note or self._note
        if now < self._shown_at + self._interval and not is_new:
            return
        self._shown_at = now
        self._tally.take_sample(now)
        line = ", ".join([*self._tally.in_words(), *self._tally.files_in_words()])
        if sys.stderr.isatty():
            show_line(line[: shutil.get_terminal_size().columns - 1])
        else:
            say(line)
