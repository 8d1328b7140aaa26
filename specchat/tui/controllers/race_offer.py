"""The offer to race an answer that drafts have sped up; no Textual here."""

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

from specchat.chat.answer_statistics import RACE, gain_of
from specchat.system.private_files import FOLDERS, read_json, write_json
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.races import Races


@dataclass(slots=True)
class _Made:
    """The content of the file of offers that were made."""

    race: bool = False


def offers_path() -> Path:
    """Return the path of that file."""
    return FOLDERS.user_state_path / "offers.json"


@dataclass(slots=True)
class RaceOffer:
    """Offers the race of one answer, the first that drafts sped up beyond its error.

    The offer stands until the next answer ends, the race was run, or it is hidden. It is made once:
    no other session makes it again.
    """

    conversations: Conversations
    answers: Answers
    races: Races
    key_of: KeyOf
    is_due: bool
    """Whether the offer may still be made."""
    _answer: int | None = None
    """The answer whose race is offered."""

    def answered(self, number: int) -> None:
        """Offer the race of the answer that has ended, if it is on the screen and was faster."""
        self.hide()
        answer = self.conversations.last
        if not self.is_due or answer is None or answer.id != number:
            return
        if gain_of(answer.statistics).kind == "faster" and self.races.can_race(answer):
            self.is_due = False
            if not read_json(offers_path(), _Made, _Made()).race:
                self._answer = number
                Thread(target=_note_made, name="offers").start()

    def turn(self, *, is_on: bool) -> None:
        """Make the offer when an answer calls for it, or withdraw it and make it no more."""
        self.is_due = is_on
        if not is_on:
            self.hide()

    def hide(self) -> None:
        """Withdraw the offer."""
        self._answer = None

    def words(self) -> str:
        """Return the offer; empty unless its answer is the last one and has no race yet."""
        last = self.conversations.last
        if last is None or last.id != self._answer or RACE in last.statistics:
            return ""
        if self.answers.current is not None:
            return ""
        race, hide = self.key_of("compare"), self.key_of("hide")
        return f"Faster with drafts: {race} races this answer with and without · {hide}: hide"


def _note_made() -> None:
    """Note in the file that the offer was made; no program needs to wait for another to say so."""
    with suppress(OSError):  # else it comes once more
        write_json(offers_path(), _Made(race=True))
