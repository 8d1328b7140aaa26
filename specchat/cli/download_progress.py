"""The progress of downloads: a line redrawn on a terminal, or a new one now and then."""

import shutil
import sys
from contextlib import AbstractContextManager

from specchat.cli.progress_line import show_line, wipe_progress
from specchat.cli.terminal import say
from specchat.hub.tally import Tally
from specchat.hub.transfer import DownloadProgress

TERMINAL_SECONDS, PLAIN_SECONDS = 0.1, 5.0
"""Time between two lines on a terminal and elsewhere."""


class ProgressLine(AbstractContextManager["ProgressLine"]):
    """The progress of several files in one line, wiped when `with` ends."""

    def __init__(self) -> None:
        """Start without files."""
        self._tally = Tally(TERMINAL_SECONDS if sys.stderr.isatty() else PLAIN_SECONDS)

    def __exit__(self, *_: object) -> None:
        """Wipe the line."""
        wipe_progress()

    def update(self, progress: DownloadProgress) -> None:
        """Record the progress of one file, and show the total when it is time."""
        if not self._tally.update(progress):
            return
        line = ", ".join([*self._tally.in_words(), *self._tally.files_in_words()])
        if sys.stderr.isatty():
            show_line(line[: shutil.get_terminal_size().columns - 1])
        else:
            say(line)
