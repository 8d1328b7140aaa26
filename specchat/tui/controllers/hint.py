"""The hint above the composer: starter pairs, running downloads, and a pair just installed."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from specchat.tui.commands import OFFER_COMMANDS, KeyOf
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.setup import Offer
from specchat.tui.texts.fitting import BETWEEN


@dataclass(slots=True)
class ModelHint:
    """Offers better pairs while only the demo pair is installed, and a pair just downloaded."""

    pulls: Pulls
    key_of: KeyOf
    is_first_run: bool
    _first: list[Offer] = field(default_factory=list)
    """The starter pairs; empty at first, as finding them takes a moment."""
    _is_hidden: bool = False

    def begin_with(self, offers: Iterable[Offer]) -> None:
        """Offer the recommended pair and the small trial pair."""
        missing = [offer for offer in offers if offer.choose is None]
        first = [each for each in missing if each.is_recommended or each.is_trial]
        self._first = sorted(first, key=lambda each: not each.is_recommended)

    def offered(self, index: int) -> Offer | None:
        """Return the pair that the command at `index` in `OFFER_COMMANDS` downloads, or None."""
        if self._is_hidden or self.pulls.arrived or index >= len(self._first):
            return None
        offer = self._first[index]
        return None if offer.name in self.pulls.running else offer

    def accepts(self, command: str) -> bool:
        """Return True if one of `OFFER_COMMANDS` has something to accept."""
        index = OFFER_COMMANDS.index(command)
        has_arrived = bool(self.pulls.arrived and index == 0)
        return has_arrived or self.offered(index) is not None

    def hide(self) -> None:
        """Show nothing until a download has finished."""
        self._is_hidden = True
        self.pulls.arrived = ""

    def end_first_run(self) -> None:
        """Stop offering starter pairs, because another pair is in use now."""
        self.is_first_run = False
        self._first = []
        self.pulls.arrived = ""

    def words(self) -> str:
        """Return the lines to show, the most important first, as small screens show only one."""
        lines = [news] if (news := self.news()) else []
        if not self._is_hidden:
            lines = lines or [self._first_run()] * self.is_first_run
            lines += [
                self._download(command, offer)
                for index, command in enumerate(OFFER_COMMANDS)
                if (offer := self.offered(index))
            ]
        return "\n".join(lines)

    def news(self) -> str:
        """Return the lines on downloads: one that has finished, and those that run."""
        lines = [self._arrived()] if self.pulls.arrived else []
        if not self._is_hidden:
            lines += [f"↓ {name}: {self.pulls.latest[name].words}" for name in self.pulls.running]
        return "\n".join(lines)

    def _arrived(self) -> str:
        switch = f"{self.key_of(OFFER_COMMANDS[0])} to switch, keeping the conversation"
        return f"{self.pulls.arrived} is installed · {switch} · {self.key_of('hide')}: hide"

    def _first_run(self) -> str:
        models, hide = self.key_of("models"), self.key_of("hide")
        return f"The demo pair is tiny · {models}: better models · {hide}: hide"

    def _download(self, command: str, offer: Offer) -> str:
        purpose = "to try things out" if offer.is_trial else "recommended here"
        facts = [f"{self.key_of(command)} downloads {offer.name}, {purpose}", offer.size]
        facts += [f"≈{offer.outlook.rate:.0f} tokens/s"] if offer.outlook.rate else []
        return BETWEEN.join(facts)
