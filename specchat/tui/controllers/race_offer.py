"""The offer to race an answer that drafts have sped up; no Textual here."""

from dataclasses import dataclass

from specchat.chat.answer_statistics import RACE, gain_of
from specchat.decoding.step_times import judged
from specchat.tui.commands import KeyOf
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.races import Races


@dataclass(slots=True)
class RaceOffer:
    """Offers the race of the first answer of all that drafts sped up beyond its error."""

    view: ChatView
    conversations: Conversations
    answers: Answers
    races: Races
    key_of: KeyOf
    _answer: int | None = None
    """The answer whose race is offered."""
    _is_made: bool = False

    def answered(self) -> None:
        """Offer the race of the answer that has ended if no earlier one was faster."""
        answer = self.conversations.last
        if self._is_made or answer is None or gain_of(answer.statistics).kind != "faster":
            return
        self._is_made = True
        earlier = self.conversations.store.speedups(answer.id)
        if not any(judged(*each) == "faster" for each in earlier) and self.races.can_race(answer):
            self._answer = answer.id
            self.view.show_state()

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
