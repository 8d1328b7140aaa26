"""An answer in progress: where it is shown, where it is kept, and how often the screen follows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from time import perf_counter, process_time
from typing import Any

from specchat.tui.widgets.message_views import AnswerView

__all__ = ["Answering", "Tempo"]

LEAST_INTERVAL, MOST_INTERVAL = 0.04, 0.75
FIGURES_INTERVAL, SPARING_INTERVAL = 0.5, 1.0
"""The figures follow more slowly than the text: nobody reads them faster. The second is for where
the engine has all cores."""
BUSY_SHARE, FREE_SHARE = 0.02, 0.3
"""Share of a core that the screen may take while the engine has all cores, or leaves some."""


@dataclass(slots=True)
class Answering:
    """The answer that is being written.

    A comparison is an answer decoded plainly for its speed; it has no place on the screen.
    """

    number: int
    message: int | None = None
    view: AnswerView | None = None
    begun: str = ""
    """What the answer said before it was continued."""
    figures: Mapping[str, Any] = field(default_factory=dict)
    """Its statistics before that."""
    is_comparison: bool = False


@dataclass(slots=True)
class Tempo:
    """Chooses how often the screen follows the engine: what it draws with is the engine's too."""

    has_room: bool = False
    """Whether the engine leaves processors to the screen."""
    interval: float = field(init=False)
    _shown: float = 0.0
    _seen: float = field(init=False)
    _used: float = field(init=False)

    def __post_init__(self) -> None:
        """Begin slowly where the engine has all cores: a quick answer is over before one learns."""
        self.interval = LEAST_INTERVAL if self.has_room else MOST_INTERVAL
        self._seen, self._used = perf_counter(), process_time()

    def is_time_for_figures(self) -> bool:
        """Say whether the figures are to follow now."""
        now = perf_counter()
        is_time = now - self._shown >= (FIGURES_INTERVAL if self.has_room else SPARING_INTERVAL)
        self._shown = now if is_time else self._shown
        return is_time

    def adapt(self) -> float:
        """Look at what the screen has used of late; return the seconds to wait between updates."""
        now, used = perf_counter(), process_time()
        passed = now - self._seen
        if passed < 0.5:
            return self.interval
        share = (used - self._used) / passed
        self._seen, self._used = now, used
        is_too_much = share > (FREE_SHARE if self.has_room else BUSY_SHARE)
        self.interval *= 1.3 if is_too_much else 0.85
        self.interval = min(max(self.interval, LEAST_INTERVAL), MOST_INTERVAL)
        return self.interval
