"""Reads a server's counters during an answer, for servers that report drafts in no other way."""

from contextlib import suppress
from time import monotonic, sleep

from specchat.connection.http_session import HttpSession, PendingAnswer
from specchat.connection.probing import ServerFacts
from specchat.connection.prometheus_counters import Counts, read_counters
from specchat.connection.reported_figures import ReportedFigures
from specchat.errors import SpecchatError

POLL_SECONDS = 1.0
SETTLE_SECONDS = 0.1
"""A server may count a token a moment after it has sent it."""
MOST_LOOKS = 3
SLACK = 64
"""Tokens that a server may have counted and not sent yet."""


class CounterWatch:
    """Gives an answer's figures the drafts that were counted since it began.

    The counters sum over all requests, so they are ignored if the server has generated more tokens
    meanwhile than this answer has.
    """

    def __init__(self, session: HttpSession, server: ServerFacts) -> None:
        """Ask for the counters once, without waiting for them, if the server has any."""
        self._session = session
        self._names = server.dialect.counters if server.has_counters else None
        self._before: Counts | None = None
        self._pending = self._ask() if self._names else None
        self._asked_at = monotonic()

    def update(self, figures: ReportedFigures) -> None:
        """Take counters that have arrived, and ask for new ones now and then; never wait."""
        if self._names is None or not figures.needs_counts:
            return
        if self._pending is not None and self._pending.is_done:
            self._take(figures, is_over=False)
        elif self._pending is None and monotonic() - self._asked_at >= POLL_SECONDS:
            self._pending, self._asked_at = self._ask(), monotonic()

    def end(self, figures: ReportedFigures) -> None:
        """Take the counters at the end of an answer."""
        if self._names is None or not figures.needs_counts:
            self.close()
            return
        if self._before is None:
            self._take(figures, is_over=False)
        for _ in range(MOST_LOOKS if self._before else 0):
            self.close()
            self._pending = self._ask()
            if self._take(figures, is_over=True):
                return
            sleep(SETTLE_SECONDS)

    def close(self) -> None:
        """Stop asking for counters."""
        if self._pending is not None:
            self._pending.cancel()
            self._pending = None

    def _ask(self) -> PendingAnswer:
        return self._session.ask_text("/metrics")

    def _take(self, figures: ReportedFigures, *, is_over: bool) -> bool:
        """Take counters, waiting for them if needed; return True if they are this answer's."""
        pending, self._pending = self._pending, None
        counts = None
        with suppress(SpecchatError):
            counts = read_counters(pending.text(), self._names) if pending and self._names else None
        if counts is None:
            return False
        if self._before is None:
            self._before = counts
            return False
        since, own = counts.since(self._before), figures.statistics.generated_tokens
        is_own = since.generated == own if is_over else 0 <= since.generated - own <= SLACK
        if is_own:
            figures.take_counts(since)
        return is_own
