"""Several files on their way: how many bytes are here, how fast more come, how long it takes."""

from __future__ import annotations

from collections import deque

from specchat.hub.cache import size_in_words
from specchat.hub.transfer import Progress

__all__ = ["Tally"]

WINDOW = 10.0
"""Seconds over which the rate is taken."""


class Tally:
    """What was told of the files of one download, added up."""

    def __init__(self, now: float) -> None:
        """Begin with nothing on its way; times are seconds of one clock."""
        self._files: dict[str, Progress] = {}
        self._samples: deque[tuple[float, int]] = deque([(now, 0)])

    def add(self, progress: Progress) -> None:
        """Hear how far one file is."""
        self._files[str(progress.reference).lower()] = progress  # as a hub may write it

    def take_sample(self, now: float) -> None:
        """Note how much has come over the network up to now."""
        self._samples.append((now, sum(each.fetched for each in self._files.values())))
        while len(self._samples) > 2 and self._samples[0][0] < now - WINDOW:
            self._samples.popleft()

    @property
    def done(self) -> int:
        """Bytes that are here."""
        return sum(each.done for each in self._files.values())

    @property
    def total(self) -> int:
        """Bytes of all files, as far as they are known."""
        return sum(each.total for each in self._files.values())

    @property
    def share(self) -> float:
        """How much of it is here, from 0 to 1."""
        return self.done / self.total if self.total else 0.0

    def in_words(self) -> list[str]:
        """Return how many bytes are here, how fast more come, and how long the rest takes."""
        rate = self._rate()
        words = [f"{size_in_words(self.done)} of {size_in_words(self.total)}"]
        if self.total:
            words.append(f"{self.share:.0%}")
        if rate:
            left = _duration((self.total - self.done) / rate)
            words += [f"{size_in_words(rate)}/s", f"{left} left"]
        return words

    def files_in_words(self) -> list[str]:
        """Return how far each file is, or what holds it up."""
        return [
            f"{each.reference.name} {each.note or f'{each.done / max(1, each.total):.0%}'}"
            for each in self._files.values()
        ]

    @property
    def note(self) -> str:
        """What holds a file up, if anything does."""
        return next((each.note for each in self._files.values() if each.note), "")

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
