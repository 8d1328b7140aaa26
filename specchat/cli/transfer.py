"""How far a download is: a line redrawn on a terminal, a plain one now and then elsewhere."""

from __future__ import annotations

import shutil
import sys
import time
from collections import deque

from specchat.catalogue.cache import size_in_words
from specchat.catalogue.download import Progress
from specchat.catalogue.references import Reference
from specchat.cli.progress import show_line, wipe_progress
from specchat.cli.terminal import say

__all__ = ["Transfers"]

REDRAW = 0.1
"""Seconds between two lines on a terminal."""

PLAIN = 5.0
"""Seconds between two lines where there is none."""

WINDOW = 10.0
"""Seconds over which the rate is taken."""


class Transfers:
    """Several files on their way, told in one line."""

    def __init__(self) -> None:
        """Begin with nothing on its way."""
        self._files: dict[Reference, Progress] = {}
        self._pace = REDRAW if sys.stderr.isatty() else PLAIN
        self._shown_at = time.monotonic()
        self._samples: deque[tuple[float, int]] = deque([(self._shown_at, 0)])
        self._note = ""

    def tell(self, progress: Progress) -> None:
        """Hear of one file, and show all of them if it is time."""
        self._files[progress.reference] = progress
        now = time.monotonic()
        is_new = bool(progress.note) and progress.note != self._note
        self._note = progress.note or self._note
        if now < self._shown_at + self._pace and not is_new:
            return
        self._shown_at = now
        self._take_sample(now)
        if sys.stderr.isatty():
            show_line(self.line()[: shutil.get_terminal_size().columns - 1])
        else:
            say(self.line())

    def wipe(self) -> None:
        """Take the line away."""
        wipe_progress()

    def line(self) -> str:
        """Return how many bytes are here, how fast more come, and how long the rest takes."""
        files = self._files.values()
        done, total = sum(each.done for each in files), sum(each.total for each in files)
        rate = self._rate()
        words = [f"{size_in_words(done)} of {size_in_words(total)}"]
        if total:
            words.append(f"{done / total:.0%}")
        if rate:
            words += [f"{size_in_words(rate)}/s", f"{_duration((total - done) / rate)} left"]
        words += [
            f"{each.reference.name} {each.note or f'{each.done / max(1, each.total):.0%}'}"
            for each in files
        ]
        return ", ".join(words)

    def _take_sample(self, now: float) -> None:
        self._samples.append((now, sum(each.fetched for each in self._files.values())))
        while len(self._samples) > 2 and self._samples[0][0] < now - WINDOW:
            self._samples.popleft()

    def _rate(self) -> float:
        """Return bytes per second, of those that came over the network."""
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        return (after - before) / (end - begin) if end > begin else 0.0


def _duration(seconds: float) -> str:
    """Return a time that somebody waits for."""
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min {seconds % 60:.0f} s"
    return f"{seconds // 3600:.0f} h {seconds % 3600 // 60:.0f} min"
