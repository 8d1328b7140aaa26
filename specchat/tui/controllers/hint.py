"""The line above the composer: pairs to begin with, downloads, and the pair that has arrived."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from specchat.tui.controllers.pulls import Pulls
from specchat.tui.setup import Offer

FIRST_RUN = "The demo pair is tiny · F8: better models · Ctrl+O: hide"
KEYS = ("Ctrl+Y", "Ctrl+S")
"""The keys that download the pairs to begin with; the first also switches to what has arrived."""


@dataclass(slots=True)
class Hint:
    """Offers real pairs where only the demo pair is installed, and the one that has arrived."""

    pulls: Pulls
    is_first_run: bool
    _first: list[Offer] = field(default_factory=list)
    """The pairs to begin with; finding them takes a moment."""
    _is_hidden: bool = False

    def begin_with(self, offers: Iterable[Offer]) -> None:
        """Offer the recommended pair and the one to try things out with."""
        missing = [each for each in offers if each.choose is None]
        first = [each for each in missing if each.is_recommended or each.is_trial]
        self._first = sorted(first, key=lambda each: not each.is_recommended)

    def at_key(self, number: int) -> Offer | None:
        """Return the pair that one of the keys downloads, None for none."""
        if self._is_hidden or self.pulls.arrived or number >= len(self._first):
            return None
        offer = self._first[number]
        return None if offer.name in self.pulls.running else offer

    def hide(self) -> None:
        """Show nothing more until a download has ended."""
        self._is_hidden = True
        self.pulls.arrived = ""

    def end_first_run(self) -> None:
        """Offer no more pairs to begin with: another pair is in use."""
        self.is_first_run = False
        self._first = []
        self.pulls.arrived = ""

    def words(self) -> str:
        """Return the lines to show, the most important first: a small screen has room for one."""
        pulls = self.pulls
        arrived = f"{pulls.arrived} is installed · {KEYS[0]} to switch, keeping the conversation"
        lines = [f"{arrived} · Ctrl+O: hide"] if pulls.arrived else []
        if not self._is_hidden:
            lines += [f"↓ {name}: {pulls.latest[name].words}" for name in pulls.running]
            lines = lines or [FIRST_RUN] * self.is_first_run
            keys = enumerate(KEYS)
            lines += [_step(key, step) for place, key in keys if (step := self.at_key(place))]
        return "\n".join(lines)


def _step(key: str, offer: Offer) -> str:
    purpose = "to try things out" if offer.is_trial else "recommended for this machine"
    return f"{key} downloads {offer.name} ({offer.size}, {purpose})"
