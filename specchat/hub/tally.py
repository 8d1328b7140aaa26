"""The progress of several downloads together: bytes, rate and time left."""

import re
import time
from collections import deque

from specchat.hub.transfer import DownloadProgress
from specchat.wording import duration_text, progress_percent, size_text

WINDOW = 10.0
"""Seconds over which the rate is averaged."""

LONGEST_ESTIMATE = 24 * 3600.0
"""Seconds; a longer time left is not an estimate but a connection that hardly moves."""


class Tally:
    """The total progress of several downloads."""

    def __init__(self, interval: float) -> None:
        """Start empty; the total is shown every `interval` seconds."""
        self._interval = interval
        self._files: dict[str, DownloadProgress] = {}
        self._samples: deque[tuple[float, int]] = deque([(time.monotonic(), 0)])
        self._shown_note = ""

    def update(self, progress: DownloadProgress) -> bool:
        """Record the progress of one file; return True if it is time to show the total.

        Nothing is shown before the size of a file is known, except for what delays that. A delay is
        shown at once, its countdown no more often than the rest.
        """
        self._files[str(progress.reference).lower()] = progress  # the hub may use another case
        now, note = time.monotonic(), re.sub(r"\d+", "", self.note)
        if not (self.note or any(file.total for file in self._files.values())):
            return False
        if now < self._samples[-1][0] + self._interval and note == self._shown_note:
            return False
        self._shown_note = note
        self._samples.append((now, sum(file.fetched for file in self._files.values())))
        while len(self._samples) > 2 and self._samples[0][0] < now - WINDOW:
            self._samples.popleft()
        return True

    def _sizes(self) -> tuple[int, int]:
        """Return the bytes so far, and the total of the files whose size is known."""
        files = self._files.values()
        return sum(file.done for file in files), sum(file.total for file in files)

    @property
    def share(self) -> float:
        """The share of the bytes that have arrived, from 0 to 1."""
        done, total = self._sizes()
        return done / total if total else 0.0

    def in_words(self) -> list[str]:
        """Return the bytes so far, the rate and the time left, for display."""
        (begin, before), (end, after) = self._samples[0], self._samples[-1]
        rate = (after - before) / (end - begin) if end > begin else 0.0
        done, total = self._sizes()
        if not total:
            return []
        parts = [f"{size_text(done)} of {size_text(total)}", progress_percent(self.share)]
        if rate:
            parts.append(f"{size_text(rate)}/s")
        if rate and (left := (total - done) / rate) <= LONGEST_ESTIMATE:
            parts.append(f"{duration_text(left)} left")
        return parts

    def files_in_words(self) -> list[str]:
        """Return the progress of each file, or what delays it."""
        return [f"{file.reference.name} {_state(file)}".strip() for file in self._files.values()]

    @property
    def note(self) -> str:
        """What delays one of the files; empty if nothing does."""
        return next((file.note for file in self._files.values() if file.note), "")


def _state(progress: DownloadProgress) -> str:
    """Return how much of a file is here, or what delays it; empty if neither is known."""
    share = progress_percent(progress.done / progress.total) if progress.total else ""
    return progress.note or share
