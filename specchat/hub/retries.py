"""Retries after network errors, with growing waits that a cancellation ends."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeVar

from specchat.errors import Cancelled, SpecchatError
from specchat.hub.hub_errors import explain, is_passing, seconds_to_wait
from specchat.hub.references import Reference

Result = TypeVar("Result")

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries without progress."""

PROGRESS_BYTES = 1 << 18
"""New bytes between two failures that count as progress."""

LONGEST_WAIT = 60.0
"""Where the hub asks for a longer wait, the download fails and the user decides."""


@dataclass(slots=True)
class RetryPolicy:
    """Decides after each error whether to try again, and waits before it.

    `waits` are the seconds between tries; `stop` ends a wait, `on_note` gets a note on each.
    """

    reference: Reference
    waits: Sequence[float]
    stop: threading.Event
    on_note: Callable[[str], None]
    _num_tries: int = 0
    _position: int = 0

    def check(self) -> None:
        """Raise Cancelled if the download was cancelled."""
        if self.stop.is_set():
            raise Cancelled

    def run(self, request: Callable[[], Result]) -> Result:
        """Return what a request returns, repeated after errors of the network."""
        while True:
            self.check()
            try:
                return request()
            except SpecchatError:
                raise
            except Exception as error:  # noqa: BLE001 -- raised again unless it is the network's
                self.wait(error)

    def wait(self, error: Exception, position: int = 0) -> None:
        """Wait before the next try, or raise DownloadFailed if there is none.

        Tries are counted anew once a download is further on than at the last error.
        """
        if position >= self._position + PROGRESS_BYTES:
            self._position = position
            self._num_tries = 0
        asked = seconds_to_wait(error) or 0.0
        is_final = not is_passing(error) or asked > LONGEST_WAIT
        if is_final or self._num_tries >= len(self.waits):
            raise explain(error, self.reference) from error
        seconds = max(self.waits[self._num_tries], asked)
        self._num_tries += 1
        self.on_note(f"retrying in {seconds:.0f} s")
        self.stop.wait(seconds)
        self.check()
        self.on_note("")
