"""The line above the composer: pairs to begin with, downloads, and the pair that has arrived."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from specchat.tui.commands import OFFER_COMMANDS, KeyOf
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.setup import Offer


@dataclass(slots=True)
class Hint:
    """Offers real pairs where only the demo pair is installed, and the one that has arrived."""

    pulls: Pulls
    key_of: KeyOf
    is_first_run: bool
    _first: list[Offer] = field(default_factory=list)
    """The pairs to begin with; finding them takes a moment."""
    _is_hidden: bool = False

    def begin_with(self, offers: Iterable[Offer]) -> None:
        """Offer the recommended pair and the one to try things out with."""
        missing = [each for each in offers if each.choose is None]
        first = [each for each in missing if each.is_recommended or each.is_trial]
        self._first = sorted(first, key=lambda each: not each.is_recommended)

    def offered(self, index: int) -> Offer | None:
        """Return the pair that one of the `OFFER_COMMANDS` downloads, None for none."""
        if self._is_hidden or self.pulls.arrived or index >= len(self._first):
            return None
        offer = self._first[index]
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
        lines = [self._arrived()] if self.pulls.arrived else []
        if not self._is_hidden:
            lines += [f"↓ {name}: {self.pulls.latest[name].words}" for name in self.pulls.running]
            lines = lines or [self._first_run()] * self.is_first_run
            lines += [
                self._download(command, offer)
                for index, command in enumerate(OFFER_COMMANDS)
                if (offer := self.offered(index))
            ]
        return "\n".join(lines)

    def _arrived(self) -> str:
        switch = f"{self.key_of(OFFER_COMMANDS[0])} to switch, keeping the conversation"
        return f"{self.pulls.arrived} is installed · {switch} · {self.key_of('hide')}: hide"

    def _first_run(self) -> str:
        models, hide = self.key_of("models"), self.key_of("hide")
        return f"The demo pair is tiny · {models}: better models · {hide}: hide"

    def _download(self, command: str, offer: Offer) -> str:
        purpose = "to try things out" if offer.is_trial else "recommended for this machine"
        return f"{self.key_of(command)} downloads {offer.name} ({offer.size}, {purpose})"
