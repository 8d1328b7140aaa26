"""The race of the last answer: decoding it both ways, playing it, and writing it to a file."""

from functools import partial
from pathlib import Path
from secrets import randbelow
from time import time

from specchat.bench.race_picture import EXPORTS
from specchat.bench.race_record import Lane, Race
from specchat.chat.export import write_export
from specchat.decoding.statistics import Statistics
from specchat.drafter_registry import PLAIN
from specchat.tui.controllers.comparisons import speedup_record
from specchat.tui.controllers.writing import Writing
from specchat.tui.main_view import Actions
from specchat.tui.screens.race_screen import RaceScreen

NUM_SEEDS = 2**32
USAGE = "Use /race, or /race export NAME.svg; the name may also end in .cast or .json."


class RaceActions(Actions):
    """Decodes the last answer again, plainly and then speculatively; the result stays with it."""

    async def act(self, words: str = "") -> None:
        """Play the race of the last answer, which is decoded first if needed, or export it."""
        verb, _, name = words.partition(" ")
        last = self.app.conversations.last
        race = Race.of_record(last.statistics.get("race", {})) if last else None
        if verb == "export":
            self._export(race, name.strip())
        elif words:
            self.app.notify(USAGE, severity="warning")
        elif race:
            self._show(race)
        else:
            await self._decode()

    async def _decode(self) -> None:
        """Decode the answer plainly, then speculatively: with one seed, so that the texts agree."""
        seed = self.app.answers.options.get("seed")
        options = {"seed": randbelow(NUM_SEEDS) if seed is None else seed}
        then = partial(self._plain_ended, options)
        writing = Writing(words="race, first without speculation", then=then)
        await self.app.comparisons.decode_again(writing, drafter=PLAIN, **options)

    def _plain_ended(
        self, options: dict[str, int], writing: Writing, statistics: Statistics
    ) -> None:
        plain = Lane.of(writing.steps, statistics)
        then = partial(self._ended, plain)
        ours = Writing(display=writing.display, words="race, now with speculation", then=then)
        last = self.app.conversations.last
        if last is not None:
            self.app.comparisons.repeat(ours, last, **options)

    def _ended(self, plain: Lane, writing: Writing, statistics: Statistics) -> None:
        """Keep the race with the answer, and play it."""
        conversations, facts = self.app.conversations, self.app.pair_controller.facts
        last = conversations.last
        if last is None or facts is None:
            return
        question = conversations.tree[last.parent].text if last.parent is not None else ""
        speculative = Lane.of(writing.steps, statistics)
        race = Race(question, facts.target, facts.draft, plain, speculative)
        measured = {"race": race.as_record()}
        if race.is_same_text and race.speedup:  # else they differ in more than the drafts
            rates = [lane.tokens_per_second for lane in race.lanes]
            measured |= speedup_record("in the race", *rates)
        self.app.comparisons.keep(writing, last, measured)
        self._show(race)

    def _show(self, race: Race) -> None:
        self.app.push_screen(RaceScreen(race), partial(self._leave, race))

    def _leave(self, race: Race, wanted: str | None) -> None:
        if wanted == "again":
            if not self.app.answers.is_busy():
                self.app.run_worker(self._decode())
        elif wanted == "export":
            self._export(race, "")

    def _export(self, race: Race | None, name: str) -> None:
        """Write a race to a new file in the current folder, by default an animated SVG."""
        path = Path.cwd() / (name or f"specchat-race-{int(time())}.svg")
        if race is None:
            self.app.notify("The last answer has no race yet: /race decodes it both ways.")
        elif path.suffix not in EXPORTS:
            self.app.notify(USAGE, severity="warning")
        else:
            write_export(path, EXPORTS[path.suffix](race))
            self.app.notify(f"Exported to {path}.")
