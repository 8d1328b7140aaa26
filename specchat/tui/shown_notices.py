"""The notices of the chat: the newest is shown until it expires, then the one before it."""

from collections.abc import Callable
from time import monotonic

from textual.app import App
from textual.notifications import Notification

LEAST_SECONDS = 15.0
"""How long an error is shown at least."""
UNREAD_SECONDS = 24 * 3600.0
"""How long it waits for a key, which says that somebody is there to read it."""


class Notices:
    """The notices that have not expired."""

    def __init__(self, app: App[None], show: Callable[[Notification | None], None]) -> None:
        """Begin without any; `show` draws one, or removes it."""
        self.latest: list[Notification] = []
        self._app, self._show = app, show
        self._error_until = 0.0

    def add(self, notice: Notification) -> None:
        """Show a notice, once the event at hand is handled."""
        if notice.severity == "error":
            self._error_until = monotonic() + LEAST_SECONDS
        self.latest.append(notice)
        self._app.call_later(self.show_newest)

    def clear(self) -> None:
        """Remove all."""
        self.latest.clear()
        self.show_newest()

    def drop(self) -> None:
        """Remove the notices about earlier actions, unless one is an error to read."""
        if monotonic() >= self._error_until:
            self._app.clear_notifications()

    def read(self) -> None:
        """Take a key as a sign that the errors shown have been read."""
        if self._error_until and monotonic() >= self._error_until:
            self._error_until = 0.0
            self._app.clear_notifications()

    def show_newest(self) -> None:
        """Draw the newest notice anew; none is left once all have expired."""
        self.latest = [notice for notice in self.latest if not notice.has_expired]
        newest = self.latest[-1] if self.latest else None
        self._show(newest)
        if newest is not None:
            self._app.set_timer(max(0.0, newest.time_left) + 0.1, self.show_newest)
