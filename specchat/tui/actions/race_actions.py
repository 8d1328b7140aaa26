"""Actions on the race of the last answer: run, play and save it."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from specchat.bench.race_picture import ENDINGS, require_ending
from specchat.bench.race_record import Race
from specchat.chat.export import write_export
from specchat.errors import InvalidOption
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.screens.race_screen import RaceScreen

USAGE = f"Use /race, or /race save NAME; the name ends in {', '.join(ENDINGS)}."


@dataclass(frozen=True, slots=True)
class RaceActions:
    """Carries out the race command and the race screen's requests."""

    view: MainView
    state: ChatState

    async def act(self, words: str = "") -> None:
        """Play the race of the last answer, running it first if needed, or save it."""
        verb, _, name = words.partition(" ")
        race = self.state.races.last
        if words and (verb != "save" or not name):
            self.view.notify(USAGE, severity="warning")
        elif words and race is None:
            self.view.notify("The last answer has not been raced yet. Use /race first.")
        elif race is None:
            await self.state.races.run(self._play)
        elif words:
            await self._save(race, name)
        else:
            self._play(race)

    def _play(self, race: Race) -> None:
        def save(name: str) -> None:
            self.view.app.run_worker(self._save(race, name))

        self.view.app.push_screen(RaceScreen(race, save), self._on_closed)

    def _on_closed(self, wanted: str | None) -> None:
        if wanted == "again" and not self.state.answers.is_busy():
            self.view.app.run_worker(self.state.races.run(self._play))

    async def _save(self, race: Race, name: str) -> None:
        """Write a race to a new file, in a thread: an animation of a long one takes seconds."""
        path = await asyncio.to_thread(_saved, race, name.strip())
        self.view.notify(f"Saved to {path}.")


def _saved(race: Race, name: str) -> Path:
    """Write a race to a new file, and return its path."""
    require_ending(name)
    try:
        path = Path.cwd() / Path(name).expanduser()
    except RuntimeError as error:  # no such user
        raise InvalidOption(f"{name}: {error}") from None
    return write_export(path, ENDINGS[path.suffix](race))
