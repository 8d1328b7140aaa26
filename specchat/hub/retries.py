"""Trying again: growing waits between tries, an end to them, and an ear for who wants to stop."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from specchat.errors import Cancelled
from specchat.hub.hub_errors import explain, is_passing, seconds_to_wait
from specchat.hub.references import Reference

__all__ = ["WAITS", "RetryPolicy"]

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries that bring nothing."""

LONGEST_WAIT = 60.0
"""A hub that asks to wait for longer is left alone: the user decides."""


class RetryPolicy:
    """Decides, error by error, whether to try again, and waits before it."""

    def __init__(
        self,
        reference: Reference,
        waits: Sequence[float],
        stop: threading.Event,
        note: Callable[[str], None],
    ) -> None:
        """Wait for so long between tries; `stop` ends a wait, `note` hears what goes on."""
        self._reference = reference
        self._waits = waits
        self._stop = stop
        self._note = note
        self._num_tries = 0

    def check(self) -> None:
        """Raise Cancelled if somebody wants to stop."""
        if self._stop.is_set():
            raise Cancelled

    def renew(self) -> None:
        """Begin to count again: something came."""
        self._num_tries = 0

    def wait(self, error: Exception) -> None:
        """Wait before the next try, or raise what there is to tell of the last one."""
        asked = seconds_to_wait(error) or 0.0
        is_hopeless = not is_passing(error) or asked > LONGEST_WAIT
        if is_hopeless or self._num_tries >= len(self._waits):
            raise explain(error, self._reference) from error
        seconds = max(self._waits[self._num_tries], asked)
        self._num_tries += 1
        self._note(f"trying again in {seconds:.0f} s")
        self._stop.wait(seconds)
        self.check()
        self._note("")
