"""The thread that fetches a pair, so that the user goes on chatting meanwhile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from time import monotonic

from textual.message import Message

from specchat.errors import Cancelled, SpecchatError
from specchat.hub.download import Progress, download
from specchat.hub.references import Reference
from specchat.hub.tally import Tally
from specchat.tui.events import PullEnded, PullProgressed

__all__ = ["Pull"]

INTERVAL = 0.25
"""Seconds between two reports: a line of figures is read no faster."""


class Pull:
    """A download of the files of one pair; what happens is posted, nothing here touches a widget.

    What is cut off is kept, and the next pull goes on from there.
    """

    def __init__(
        self, name: str, references: Sequence[Reference], post: Callable[[Message], object]
    ) -> None:
        """Begin to fetch what is not here of some files."""
        self._name = name
        self._references = references
        self._post = post
        self._tally = Tally(monotonic())
        self._told_at = 0.0
        self._note = ""
        self._cancelled = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"pull {name}", daemon=True)
        self._thread.start()

    def cancel(self) -> None:
        """Stop fetching; the thread ends soon after."""
        self._cancelled.set()

    def wait(self, seconds: float) -> None:
        """Wait until the thread has ended, so long at most."""
        self._thread.join(seconds)

    def _run(self) -> None:
        reason = ""
        try:
            download(self._references, self._tell, self._cancelled.is_set)
        except Cancelled:
            self._post(PullEnded(self._name, is_cancelled=True))
            return
        except SpecchatError as error:
            reason = str(error)
        except Exception as error:  # noqa: BLE001  # a thread that ends without a word is worse
            reason = f"an error of specchat's own ({type(error).__name__}: {error})"
        self._post(PullEnded(self._name, reason))

    def _tell(self, progress: Progress) -> None:
        """Hear how far a file is, one call at a time, and tell of all of them now and then."""
        tally, now = self._tally, monotonic()
        tally.add(progress)
        is_news = tally.note != self._note
        if now < self._told_at + INTERVAL and not is_news:
            return
        self._told_at, self._note = now, tally.note
        tally.take_sample(now)
        words = ", ".join(filter(None, (*tally.in_words(), tally.note)))
        self._post(PullProgressed(self._name, tally.share, words))
