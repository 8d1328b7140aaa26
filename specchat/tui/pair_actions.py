"""What can be done with pairs: listing, switching, starting with one, restarting the engine."""

import asyncio
from collections.abc import Callable

from specchat.hub.client import is_offline
from specchat.settings.editor import write_setting
from specchat.settings.sources import settings_path
from specchat.tui.main_view import Actions
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.setup import Offer, PairChoice


class PairActions(Actions):
    """Does what the model screen and the commands for pairs ask for."""

    async def show(self, words: str = "") -> None:
        """Show the pairs to use or to pull; use the file, or the installed pair, of that name."""
        if words.lower().endswith(".gguf"):
            await self.open_file(words)
            return
        found = await asyncio.to_thread(self.offers) if words else []
        named = [each for each in found if each.name == words]
        if named and named[0].choose:
            self.use(named[0])
            return
        self.app.push_screen(ModelScreen(self, words))

    def offers(self) -> list[Offer]:
        """Return all pairs, the one named on the command line among them; it may take a moment."""
        offers, first = list(self.app.setup.offers()), self.app.setup.pair
        if not any(offer.choose and offer.name == first.name for offer in offers):
            offers.insert(0, Offer(first.name, first.description, choose=lambda: first))
        return offers

    async def open_file(self, name: str) -> None:
        """Use a GGUF file with the best draft model on this machine."""
        self.use(await asyncio.to_thread(self.app.setup.open_file, name))

    def keep(self, offer: Offer) -> None:
        """Start with a pair from now on."""
        write_setting(settings_path(), "model.pair", offer.name)
        self.app.notify(f"specchat now starts with {offer.name}.")

    def use(self, offer: Offer) -> None:
        """Load another pair, unless an answer is being written; start the engine if it is lost."""
        chat = self.app
        is_other = offer.name != chat.pair_controller.pair.name
        if offer.choose is None or (is_other and chat.answers.is_busy()):
            return
        if self.app.view.model_screen is not None:
            self.app.view.model_screen.dismiss()
        chat.hint.end_first_run()
        self.app.view.show_hint()
        if is_other:
            self.app.run_worker(self._switch(offer.choose), group="pair", exclusive=True)
        elif chat.pair_controller.session is None:
            self.restart()

    def improve(self) -> None:
        """Take the advice of the stats panel."""
        advice, changed = self.app.adviser.advice(), self.app.answers.changed
        if advice is None:
            self.app.notify("Nothing to improve now: the panel gives advice when it has some.")
            return
        if advice.offer and advice.offer.choose and self.app.answers.is_busy():
            return
        self.app.adviser.take()
        if advice.offer is None:
            changed.update(advice.options)
            undo = f"To take it back, change {' and '.join(advice.options)} in F9."
            self.app.notify(f"From the next answer on: {advice.words}. F5 answers again. {undo}")
            self.app.view.show_state()
        elif advice.offer.choose is None:
            self.app.pulls.start(advice.offer)
        else:
            changed.pop("drafter", None)
            self.use(advice.offer)

    def restart(self) -> None:
        """Restart the engine."""
        self.app.answers.end("cancelled")
        self.app.pair_controller.restart()

    def hide_hint(self) -> None:
        """Hide the hint; the one of the first run does not come back."""
        hint, pulls = self.app.hint, self.app.pulls
        if hint.is_first_run and hint.words() and not (pulls.running or pulls.arrived):
            write_setting(settings_path(), "screen.offer_models", value=False)
        hint.hide()
        self.app.view.show_hint()

    async def find_first_pairs(self) -> None:
        """Offer pairs to begin with, unless none can be downloaded."""
        if is_offline():
            return
        self.app.hint.begin_with(await asyncio.to_thread(self.offers))
        self.app.view.show_hint()

    def accepts(self, number: int) -> bool:
        """Return True if one of the hint's keys does something."""
        has_arrived = bool(self.app.pulls.arrived and number == 0)
        return has_arrived or self.app.hint.at_key(number) is not None

    def accept(self, number: int) -> None:
        """Download the pair that the hint offers at a key, or switch to the one that arrived."""
        if offer := self.app.hint.at_key(number):
            self.app.pulls.start(offer)
        elif self.app.pulls.arrived and not self.app.answers.is_busy():
            self.app.run_worker(self._use_arrived(self.app.pulls.arrived), group="offers")

    async def _use_arrived(self, name: str) -> None:
        for offer in await asyncio.to_thread(self.offers):
            if offer.name == name:
                self.use(offer)
                self.app.notify(f"Using {name} now. F8, then d, makes it the default.")

    async def _switch(self, choose: Callable[[], PairChoice]) -> None:
        choice = await asyncio.to_thread(choose)
        self.app.pulls.recent = ""
        self.app.conversations.pair = choice.name
        self.app.pair_controller.use(choice)
