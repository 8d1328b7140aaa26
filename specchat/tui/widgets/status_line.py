"""The line above the composer: what is going on, the most pressing subject first."""

from typing import get_args

from textual.widgets import Static

from specchat.chat.safe_text import harmless
from specchat.tui.controllers.chat_view import Subject

PRESSING: tuple[Subject, ...] = get_args(Subject)


class StatusLine(Static):
    """Empty while nothing is going on."""

    DEFAULT_CSS = "StatusLine { height: auto; color: $text-warning; padding: 0 2; }"

    def __init__(self) -> None:
        """Start empty."""
        super().__init__(id="status", markup=False)
        self._words: dict[Subject, str] = {}

    def say(self, words: str, about: Subject) -> None:
        """Set what is said about a subject; empty clears it."""
        self._words[about] = words
        shown = harmless(next(filter(None, map(self._words.get, PRESSING)), ""))
        if self.content != shown:
            self.update(shown)
