"""Answering the last question again: as before, with other sampling options, or by another pair."""

import asyncio
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specchat.tui.actions.pair_actions import PairActions
from specchat.tui.commands import slash_of
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.setup import Offer
from specchat.tui.texts.sampling_text import read_sampling

OPTION = re.compile(r"(?<!\S)([\w-]+)=(\S*)")


@dataclass(frozen=True, slots=True)
class Regeneration:
    """Adds another version of the last answer."""

    view: MainView
    state: ChatState
    pair_actions: PairActions

    async def act(self, words: str = "") -> None:
        """Answer again; `words` may have options such as `temperature=0.2`, and name a pair."""
        name, options = read_words(words)
        if not name or name == self.state.pair_controller.pair.name:
            await self.state.questions.regenerate(options)
        elif not self.state.questions.can_regenerate():
            return
        else:
            self.view.app.run_worker(self._by_another(words, name, options))

    async def _by_another(self, words: str, name: str, options: Mapping[str, Any]) -> None:
        offer = await asyncio.to_thread(self._find, name)
        if offer is None or offer.choose is None:
            models = self.state.key_of("models")
            self.view.put_back(f"{slash_of('regenerate')} {words}")
            reason = f"No pair {name} on this machine: {models} lists all."
            self.view.notify(reason, severity="warning")
        elif not self.state.answers.is_busy():
            await self.pair_actions.switch(offer.choose)
            await self.state.questions.regenerate(options)

    def _find(self, name: str) -> Offer | None:
        """Return an installed pair, or the pair of a GGUF file. Raises ModelNotFound."""
        offers = self.pair_actions.offers()
        if found := next((offer for offer in offers if offer.name == name), None):
            return found
        is_file = name.lower().endswith(".gguf")
        return self.state.setup.open_file(name) if is_file else None


def read_words(words: str) -> tuple[str, dict[str, Any]]:
    """Return the name of a pair, which may be empty, and the options that stand beside it.

    Raises InvalidOption for an option that is not known or whose value is out of range.
    """
    lines = [f"{key.replace('-', '_')}={value}" for key, value in OPTION.findall(words)]
    return " ".join(OPTION.sub(" ", words).split()), read_sampling("\n".join(lines))
