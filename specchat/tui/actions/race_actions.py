"""Actions on the race of the last answer: run, play and save it."""

import asyncio
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from specchat.bench.race_picture import ENDINGS, card_path
from specchat.bench.race_record import Race
from specchat.chat.export import write_export
from specchat.errors import InvalidOption
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.screens.race_screen import RaceScreen

QUICK_SECONDS = 0.3
"""Writing takes no notice if it is over sooner."""
USAGE = f"Use /race, or /race save NAME; the name ends in {', '.join(ENDINGS)}."


@dataclass(frozen=True, slots=True)
class RaceActions:
    """Carries out the race command and the race screen's requests."""

    view: MainView
    state: ChatState

    async def act(self, words: str = "") -> None:
        """Play the race of the last answer, running it first if needed, or save it.

        Raises InvalidOption for other words than those in `USAGE`.
        """
        verb, _, name = words.partition(" ")
        race = self.state.races.last
        if words and (verb != "save" or not name):
            raise InvalidOption(USAGE)
        if words and race is None:
            self.view.notify("The last answer has not been raced yet. Use /race first.")
        elif race is None:
            await self.state.races.run(self._play)
        elif words:
            self._begin_to_save(race, name)
        else:
            self._play(race)

    def _play(self, race: Race) -> None:
        screen = RaceScreen(race, partial(self._begin_to_save, race))
        self.view.app.push_screen(screen, self._on_closed)

    def _on_closed(self, wanted: str | None) -> None:
        if wanted == "again" and not self.state.answers.is_busy():
            self.view.app.run_worker(self.state.races.run(self._play))

    def _begin_to_save(self, race: Race, name: str) -> None:
        """Write a race to a new file while the chat goes on: a long animation takes seconds."""
        self.view.app.run_worker(self._save(race, name.strip()))

    async def _save(self, race: Race, name: str) -> None:
        path = card_path(name)
        writing = asyncio.create_task(asyncio.to_thread(_write, race, path))
        _, unfinished = await asyncio.wait({writing}, timeout=QUICK_SECONDS)
        if unfinished:
            self.view.notify(f"Saving {path.name}…")
        await writing
        self.view.notify(f"Saved to {path}.")


def _write(race: Race, path: Path) -> None:
    write_export(path, ENDINGS[path.suffix]([race]))
