"""Actions on the race of the last answer: run, play and export it."""

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from time import time

from specchat.bench.race_picture import EXPORTS
from specchat.bench.race_record import Race
from specchat.chat.export import write_export
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.screens.race_screen import RaceScreen

USAGE = "Use /race, or /race export NAME.svg; the name may also end in .cast or .json."


@dataclass(frozen=True, slots=True)
class RaceActions:
    """Carries out the race command and the race screen's requests."""

    view: MainView
    state: ChatState

    async def act(self, words: str = "") -> None:
        """Play the race of the last answer, running it first if needed, or export it."""
        verb, _, name = words.partition(" ")
        race = self.state.races.last
        if verb == "export":
            self._export(race, name.strip())
        elif words:
            self.view.notify(USAGE, severity="warning")
        elif race:
            self._play(race)
        else:
            await self.state.races.run(self._play)

    def _play(self, race: Race) -> None:
        self.view.app.push_screen(RaceScreen(race), partial(self._on_closed, race))

    def _on_closed(self, race: Race, wanted: str | None) -> None:
        if wanted == "again":
            if not self.state.answers.is_busy():
                self.view.app.run_worker(self.state.races.run(self._play))
        elif wanted == "export":
            self._export(race, "")

    def _export(self, race: Race | None, name: str) -> None:
        """Write a race to a new file in the current folder, by default an animated SVG."""
        path = Path.cwd() / (name or f"specchat-race-{int(time())}.svg")
        if race is None:
            self.view.notify("The last answer has not been raced yet. Use /race first.")
        elif path.suffix not in EXPORTS:
            self.view.notify(USAGE, severity="warning")
        else:
            write_export(path, EXPORTS[path.suffix](race))
            self.view.notify(f"Exported to {path}.")
