"""Pairs: choosing one, fetching others in the background, and starting the engine again."""

from __future__ import annotations

import asyncio

from textual import on, work

from specchat.errors import SpecchatError
from specchat.settings import settings_path, write_setting
from specchat.tui.changing import Changing
from specchat.tui.controllers.session import SECONDS_TO_END
from specchat.tui.events import PullEnded, PullProgressed
from specchat.tui.pull_thread import Pull
from specchat.tui.screens.model_screen import ModelScreen
from specchat.tui.setup import Offer, PairChoice, Setup
from specchat.tui.widgets.hint import Hint

__all__ = ["Choosing"]

FIRST_RUN = "The demo pair knows little. F8: others · Ctrl+O: hide"


class Choosing(Changing):
    """Commands for pairs."""

    def __init__(self, setup: Setup) -> None:
        """Begin with nothing on its way."""
        super().__init__(setup)
        self._pulls: dict[str, Pull] = {}
        self._told: dict[str, PullProgressed | PullEnded] = {}
        self._recent = ""
        """The pair that was pulled last, which is likely the one to look for."""
        self._has_pulled = False

    def action_models(self) -> None:
        """Choose a pair, or pull one."""
        self.push_screen(ModelScreen(self._offers, self._pair.name, self._told, self._recent))

    def action_hide(self) -> None:
        """Take the hint away; the one of the first run does not come again."""
        hint = self.query_one(Hint)
        if hint.display and not self._has_pulled:
            try:
                write_setting(settings_path(), "screen.offer_models", value=False)
            except SpecchatError as error:
                self.notify(str(error), severity="error", timeout=15)
        hint.display = False

    def action_restart(self) -> None:
        """Start the engine again, ending one that is there, whatever it is doing."""
        if self._session is not None:
            self._session.close()
        self._keep_answer("cancelled")
        self._say("starting the engine again")
        self._start()

    def action_stop(self) -> None:
        """Stop the answer, and say what can be done about an engine that does not."""
        super().action_stop()
        answering = self._answering

        def tell() -> None:
            if answering is not None and self._answering is answering:
                self._say("The engine does not stop: Ctrl+R ends it and starts it again.")

        self.set_timer(SECONDS_TO_END, tell)

    def _offers(self) -> list[Offer]:
        """Return all pairs, with the one that was named on the command line."""
        offers, first = list(self._setup.offers()), self._setup.pair
        if not any(offer.choose and offer.name == first.name for offer in offers):
            offers.insert(0, Offer(first.name, first.description, choose=lambda: first))
        return offers

    @property
    def _model_screen(self) -> ModelScreen | None:
        """The model screen, while it is open."""
        screens = (screen for screen in self.screen_stack if isinstance(screen, ModelScreen))
        return next(screens, None)

    @on(ModelScreen.Chosen)
    @work(exclusive=True)
    async def _pair_chosen(self, event: ModelScreen.Chosen) -> None:
        """Load another pair, unless an answer is being written."""
        offer = event.offer
        is_other = offer.name != self._pair.name
        if offer.choose is None or (is_other and self._is_busy()):
            return
        if self._model_screen is not None:
            self._model_screen.dismiss()
        self.query_one(Hint).display = False
        if not is_other:
            if self._session is None:
                self.action_restart()
            return
        try:
            choice = await asyncio.to_thread(offer.choose)
        except SpecchatError as error:
            self.notify(str(error), severity="error", timeout=15)
        else:
            self._recent = ""
            self._use_pair(choice)

    @on(ModelScreen.Kept)
    def _pair_kept(self, event: ModelScreen.Kept) -> None:
        """Write down which pair to begin with from now on."""
        write_setting(settings_path(), "model.pair", event.name)
        self.notify(f"specchat opens with {event.name} from now on.")

    @on(ModelScreen.Pulling)
    def _pull(self, event: ModelScreen.Pulling) -> None:
        """Begin to fetch a pair."""
        offer = event.offer
        if offer.name not in self._pulls:
            self._recent = offer.name
            self._pulls[offer.name] = Pull(offer.name, offer.references, self.post_message)
            self._pull_progressed(PullProgressed(offer.name, offer.share, "asking the hub"))

    @on(ModelScreen.Cancelling)
    def _pull_cancelled(self, event: ModelScreen.Cancelling) -> None:
        """Give up fetching a pair."""
        if event.name in self._pulls:
            self._pulls[event.name].cancel()

    @on(PullProgressed)
    def _pull_progressed(self, event: PullProgressed) -> None:
        """Show how far a pair is, in the model screen and above the chat."""
        if event.name in self._pulls:  # a thread that is given up may still say something
            self._told[event.name] = event
            self._show_pull(event.name)

    @on(PullEnded)
    def _pull_ended(self, event: PullEnded) -> None:
        """Say how it ended, and offer a pair that is here now."""
        del self._pulls[event.name]
        self._told[event.name] = event
        screen = self._model_screen
        if event.reason and screen is None:
            self.notify(event.reason, title=f"{event.name} was not pulled", severity="error")
        if not event.reason and not event.is_cancelled:
            self._has_pulled = True
            self.query_one(Hint).say(f"{event.name} is here. F8: use it · Ctrl+O: hide")
        if screen is not None and screen.is_mounted:  # else it will look for pairs yet
            screen.find_again()
        self._show_pull(event.name)

    def _show_pull(self, name: str) -> None:
        if self._model_screen is not None:
            self._model_screen.show_pull(name)
        self._show_top()

    def _pulls_in_words(self) -> str:
        """Return the sign above the chat: what is on its way, and how far."""
        told = [self._told[name] for name in self._pulls]
        shares = [each.share for each in told if isinstance(each, PullProgressed)]
        if not shares:
            return ""
        what = told[0].name if len(told) == 1 else f"{len(told)} pairs"
        return f"↓ {what} {sum(shares) / len(shares):.0%}"

    def _end_pulls(self) -> None:
        """Stop what is on its way; what came is kept."""
        for pull in self._pulls.values():
            pull.cancel()
        for pull in self._pulls.values():
            pull.wait(3.0)

    def _use_pair(self, pair: PairChoice) -> None:
        self._pair = pair
        self._conversing.pair = pair.name
        self._say("")
        self._start()
        self._show_top()
