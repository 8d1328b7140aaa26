"""Frees the models' memory after some minutes without a question; no Textual here."""

from dataclasses import dataclass, field
from time import monotonic

from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.serving import Serving

POLL_SECONDS = 10.0
"""How often to look for how long no question was asked."""


@dataclass(slots=True)
class IdleUnloader:
    """Unloads the pair once it has been idle for `minutes`; never if that is 0.

    While it is served to other programs, it is not idle. A server's model takes no memory here.
    """

    view: ChatView
    answers: Answers
    pair_controller: PairController
    serving: Serving
    minutes: int
    _idle_since: float = field(default_factory=monotonic)

    def watch(self) -> None:
        """Unload the pair if it is time to, and look again every few seconds."""
        self._look()
        self.view.later(POLL_SECONDS, self.watch)

    def _look(self) -> None:
        """Unload the pair if it is idle for long enough. While it loads, it is not idle."""
        pair = self.pair_controller
        takes_memory = pair.facts is not None and pair.pair.server is None
        if self.answers.current is not None or not takes_memory or self.serving.is_open:
            self._idle_since = monotonic()
            return
        idle_seconds = monotonic() - max(self._idle_since, pair.asked_at)
        if self.minutes and idle_seconds >= 60 * self.minutes:
            pair.unload(f"Unloaded after {self.minutes} min without a question.")
