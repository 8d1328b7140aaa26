"""Actions on pairs: list, switch, make one the default, and restart the engine."""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace

from specchat.catalogue.outlook import Outlook
from specchat.catalogue.projectors import missing_projector
from specchat.chat.answer_statistics import AnswerTotals, measured_pairs
from specchat.errors import SpecchatError
from specchat.hub.names import looks_like_name
from specchat.hub.references import Reference
from specchat.settings.editor import write_setting
from specchat.settings.sources import settings_path
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.screens.dialogs import ConfirmScreen
from specchat.tui.screens.model_screen import ModelScreen, question_before_pull
from specchat.tui.setup import Offer, PairChoice
from specchat.wording import size_text

NUM_ANSWERS = 300
"""The latest answers that say how fast pairs are; reading them takes 15 ms of the screen's time."""


@dataclass(frozen=True, slots=True)
class PairActions:
    """Carries out the models screen's actions and the commands for pairs."""

    view: MainView
    state: ChatState

    async def show(self, words: str = "") -> None:
        """Open the models screen, or switch to the file or installed pair that is named.

        A file of the hub is downloaded if the user agrees.
        """
        if names_file(words):
            await self.open_file(words)
            return
        found = await asyncio.to_thread(self.offers) if words else []
        named = [each for each in found if each.name == words]
        if named and named[0].choose:
            self.use(named[0])
            return
        self.view.app.push_screen(
            ModelScreen(self, self.state.pulls, self.state.pair_controller.pair.name, words)
        )

    def offers(self) -> list[Offer]:
        """Return all pairs, including the one named on the command line; may take a moment."""
        offers, first = list(self.state.setup.offers()), self.state.setup.pair
        if not any(offer.choose and offer.name == first.name for offer in offers):
            offers.insert(0, _offer_of(first))
        return offers

    def with_drafts(self) -> list[Offer]:
        """Return all pairs, and other drafts for the target in use; may take a moment."""
        others = self.state.setup.other_drafts(self.state.pair_controller.pair)
        return [*self.offers(), *others]

    def outlook(self, offer: Offer) -> Outlook:
        """Return what a pair takes on this machine, once the loaded one has freed its memory."""
        session = self.state.pair_controller.session
        return self.state.setup.foresee(offer, session.held_bytes() if session else 0)

    def measured(self) -> Mapping[str, AnswerTotals]:
        """Return how fast the pairs of the latest answers were, by name."""
        return measured_pairs(self.state.conversations.store.statistics(NUM_ANSWERS))

    async def open_file(self, name: str) -> None:
        """Use a GGUF file with the best draft model on this machine, or ask to download it."""
        offer = await asyncio.to_thread(self.state.setup.open_file, name)
        if offer.choose is None:
            self.pull(offer)
        else:
            self.use(offer)

    def keep(self, offer: Offer) -> None:
        """Make a pair the default, or a server."""
        self.view.app.run_worker(self._keep(offer))

    async def _keep(self, offer: Offer) -> None:
        for name, value in (offer.server_settings or {"model.pair": offer.name}).items():
            await asyncio.to_thread(write_setting, settings_path(), name, value)
        self.view.notify(f"specchat now starts with {offer.name}.")

    def pull(self, offer: Offer) -> None:
        """Ask whether to download a pair, and do so in the background."""
        self.view.app.run_worker(self._ask_to_pull(offer))

    async def _ask_to_pull(self, offer: Offer) -> None:
        question = question_before_pull(offer)
        looking = self.view.app.run_worker(_offer_projector(question, offer))
        if await self.view.app.push_screen_wait(question):
            more = (looking.result,) if question.chose_more and looking.result else ()
            self.state.pulls.start(replace(offer, references=(*offer.references, *more)))

    def use(self, offer: Offer) -> None:
        """Load another pair, unless an answer is being written; restart an ended engine."""
        is_other = offer.name != self.state.pair_controller.pair.name
        if offer.choose is None or (is_other and self.state.answers.is_busy()):
            return
        if self.view.model_screen is not None:
            self.view.model_screen.dismiss()
        self.state.hint.end_first_run()
        self.view.show_hint()
        if is_other:
            self.view.app.run_worker(self.switch(offer.choose), group="pair", exclusive=True)
        elif self.state.pair_controller.session is None:
            self.restart()

    def improve(self) -> None:
        """Follow the advice of the stats panel."""
        advice, changed = self.state.adviser.advice(), self.state.options.changed
        if advice is None:
            self.view.notify("Nothing to improve now: the panel gives advice when it has some.")
            return
        if advice.offer and advice.offer.choose and self.state.answers.is_busy():
            return
        self.state.adviser.take()
        if advice.offer is None:
            self.state.changes.change_options(advice.options, self._improvement_undone)
            again, undo = map(self.state.key_of, ("regenerate", "undo"))
            words = f"From the next answer on: {advice.words}. {again} answers again."
            self.view.composer.leaves_undo = True
            self.view.notify(f"{words} {undo} undoes that.")
            self.view.show_state()
        elif advice.offer.choose is None:
            self.pull(advice.offer)
        else:
            changed.pop("drafter", None)
            self.use(advice.offer)

    def _improvement_undone(self) -> None:
        self.state.adviser.offer_again()
        self.view.notify("Undone: the next answer is drafted as before.")

    def unload(self) -> None:
        """Free the memory of the models until the next question."""
        self.state.pair_controller.unload("Unloaded: the memory is free.")

    def restart(self) -> None:
        """Restart the engine."""
        self.state.answers.end("cancelled")
        self.state.pair_controller.restart()

    async def switch(self, choose: Callable[[], PairChoice]) -> None:
        """Load another pair, once its draft model is chosen; that ends what was asked meanwhile."""
        choice = await asyncio.to_thread(choose)
        self.state.answers.end("cancelled")
        self.state.pulls.recent = ""
        self.state.conversations.pair = choice.name
        self.state.pair_controller.use(choice)


async def _offer_projector(question: ConfirmScreen, offer: Offer) -> Reference | None:
    """Offer to download what makes the target read images, too, and return it."""
    for reference in offer.references:
        if reference.name != offer.outlook.target:  # a draft, or a head
            continue
        with suppress(OSError, SpecchatError):  # it is only not offered
            if found := await asyncio.to_thread(missing_projector, reference):
                projector, num_bytes = found
                size = f" ({size_text(num_bytes)})" if num_bytes else ""
                question.offer_more(f"With {projector.name}{size}, to read images")
                return projector
    return None


def names_file(words: str) -> bool:
    """Return True if words name a file, or a repository of the hub, rather than a pair."""
    return words.lower().endswith(".gguf") or looks_like_name(words)


def _offer_of(choice: PairChoice) -> Offer:
    """Return the offer of what answered first."""
    if (server := choice.server) is not None:
        return Offer.of_server(lambda: choice, server.name, server.url, server.model)
    return Offer(choice.name, choice.description, choose=lambda: choice)
