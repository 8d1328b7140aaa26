"""The offer to race an answer that drafts have sped up; no Textual here."""

from contextlib import suppress
from dataclasses import dataclass

from specchat.chat.answer_statistics import RACE, gain_of
from specchat.errors import SpecchatError
from specchat.settings.editor import write_setting
from specchat.settings.sources import settings_path
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.races import Races


@dataclass(slots=True)
class RaceOffer:
    """Offers the race of one answer, the first that drafts sped up beyond its error."""

    conversations: Conversations
    answers: Answers
    races: Races
    key_of: KeyOf
    is_due: bool
    """Whether the offer is still to be made; the settings keep that it has been."""
    _answer: int | None = None
    """The answer whose race is offered."""

    def answered(self, number: int) -> None:
        """Offer the race of the answer that has ended, if it is on the screen and was faster."""
        answer = self.conversations.last
        if not self.is_due or answer is None or answer.id != number:
            return
        if gain_of(answer.statistics).kind == "faster" and self.races.can_race(answer):
            self._answer, self.is_due = number, False
            with suppress(SpecchatError):  # else the next session offers one, too
                write_setting(settings_path(), "screen.offer_race", value=False)

    def hide(self) -> None:
        """Withdraw the offer."""
        self._answer = None

    def words(self) -> str:
        """Return the offer; empty unless its answer is the last one and has no race yet."""
        last = self.conversations.last
        is_open = last is not None and last.id == self._answer and RACE not in last.statistics
        if not is_open or self.answers.current is not None:
            return ""
        race, hide = self.key_of("compare"), self.key_of("hide")
        return f"Faster with drafts: {race} races this answer with and without · {hide}: hide"
