"""Actions of the hint above the composer: finding pairs to offer, accepting, and hiding it."""

import asyncio
from dataclasses import dataclass

from specchat.hub.client import is_offline
from specchat.settings.editor import write_setting
from specchat.settings.sources import settings_path
from specchat.tui.actions.pair_actions import PairActions
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.hint import ModelHint
from specchat.tui.controllers.pulls import Pulls
from specchat.tui.main_view import MainView


@dataclass(frozen=True, slots=True)
class HintActions:
    """Finds pairs for the hint to offer, and carries out an accepted offer."""

    view: MainView
    hint: ModelHint
    pulls: Pulls
    answers: Answers
    pair_actions: PairActions
    key_of: KeyOf

    async def find_first_pairs(self) -> None:
        """Offer starter pairs, unless none can be downloaded."""
        if is_offline():
            return
        self.hint.begin_with(await asyncio.to_thread(self.pair_actions.offers))
        self.view.show_hint()

    def accepts(self, index: int) -> bool:
        """Return True if the command at `index` in `OFFER_COMMANDS` has something to accept."""
        has_arrived = bool(self.pulls.arrived and index == 0)
        return has_arrived or self.hint.offered(index) is not None

    def accept(self, index: int) -> None:
        """Ask to download the pair that the hint offers, or switch to the one that has arrived."""
        if offer := self.hint.offered(index):
            self.pair_actions.pull(offer)
        elif self.pulls.arrived and not self.answers.is_busy():
            self.view.app.run_worker(self._use_arrived(self.pulls.arrived), group="offers")

    def hide(self) -> None:
        """Hide the hint; the first-run hint does not come back."""
        hint, pulls = self.hint, self.pulls
        if hint.is_first_run and hint.words() and not (pulls.running or pulls.arrived):
            write_setting(settings_path(), "screen.offer_models", value=False)
        hint.hide()
        self.view.show_hint()

    async def _use_arrived(self, name: str) -> None:
        for offer in await asyncio.to_thread(self.pair_actions.offers):
            if offer.name == name:
                self.pair_actions.use(offer)
                models = self.key_of("models")
                self.view.notify(f"Using {name} now. {models}, then d, makes it the default.")
