"""What earlier answers say of speculation: seconds saved, unused drafts; no Textual here."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias

from specchat.errors import SpecchatError
from specchat.tui.texts.figures import Figures

Drafting: TypeAlias = tuple[object, ...]
"""The pair, and how it drafts."""


@dataclass(slots=True)
class Gains:
    """Counts answers, and gives each one's figures what was counted before it."""

    saved_seconds: Callable[[], tuple[float, float]]
    """Returns the seconds that all stored answers saved, today and ever; it reads the store."""
    _num_paused: Counter[Drafting] = field(default_factory=Counter)
    """Answers in a row that ended with the draft model unused."""
    _saved: tuple[float, float] | None = None

    def begin(self, figures: Figures, drafting: Drafting) -> None:
        """Give the figures of an answer that begins what is known of earlier ones."""
        figures.num_paused_before = self._num_paused[drafting]
        self.add_up(figures)

    def add_up(self, figures: Figures) -> None:
        """Give figures the seconds that all stored answers saved."""
        if self._saved is None:
            try:
                self._saved = self.saved_seconds()
            except SpecchatError:  # the store reports it elsewhere
                return
        figures.saved_before = self._saved

    def correct(self, figures: Figures) -> None:
        """Add the seconds up anew: a race has changed what one of the answers saved."""
        self._saved = None
        self.add_up(figures)

    def count(self, figures: Figures, drafting: Drafting, saved_s: float) -> None:
        """Count an answer that has ended."""
        if figures.statistics.draft_off_reason is None:
            del self._num_paused[drafting]
        else:
            self._num_paused[drafting] += 1
        if self._saved is not None:
            today, ever = self._saved
            self._saved = figures.saved_before = today + saved_s, ever + saved_s
        figures.is_counted = True
