"""Actions of the hint above the composer: finding pairs to offer, accepting, and hiding it."""

import asyncio
from dataclasses import dataclass
from functools import partial

from specchat.hub.offline import is_offline
from specchat.settings.editor import write_setting
from specchat.settings.sources import settings_path
from specchat.tui.actions.pair_actions import PairActions
from specchat.tui.commands import OFFER_COMMANDS
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView


@dataclass(frozen=True, slots=True)
class HintActions:
    """Finds pairs for the hint to offer, and carries out an accepted offer."""

    view: MainView
    state: ChatState
    pair_actions: PairActions

    async def find_first_pairs(self) -> None:
        """Offer starter pairs on a first run, unless none can be downloaded."""
        if is_offline() or not self.state.setup.is_first_run:
            return
        self.state.hint.begin_with(await asyncio.to_thread(self.pair_actions.offers))
        self.view.show_hint()

    def accept(self, command: str) -> None:
        """Ask to download the pair that the hint offers, or switch to the one that has arrived."""
        if offer := self.state.hint.offered(OFFER_COMMANDS.index(command)):
            self.pair_actions.pull(offer)
        elif self.state.pulls.arrived and not self.state.answers.is_busy():
            self.view.app.run_worker(self._use_arrived(self.state.pulls.arrived), group="offers")

    def hide(self) -> None:
        """Hide the hint; the first-run hint does not come back."""
        if self.state.race_offer.words():
            self.state.race_offer.hide()
            self.view.show_hint()
            return
        hint, pulls = self.state.hint, self.state.pulls
        if hint.is_first_run and hint.words() and not (pulls.running or pulls.arrived):
            write = partial(write_setting, settings_path(), "screen.offer_models", value=False)
            self.view.app.run_worker(write, group="offers", thread=True)
        hint.hide()
        self.view.show_hint()

    async def _use_arrived(self, name: str) -> None:
        for offer in await asyncio.to_thread(self.pair_actions.with_drafts):
            if offer.name == name and offer.choose:
                self.pair_actions.use(offer)
                self.view.notify(f"Using {name} now.")
