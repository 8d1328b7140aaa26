"""The thinking switch: how much the model reasons before it answers, in this session."""

from dataclasses import dataclass

from specchat.engine.api import EngineFacts
from specchat.errors import InvalidOption
from specchat.options.declarations import AUTO_THINK, THINK_NUMBER, think_values
from specchat.safe_text import in_one_line
from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView
from specchat.tui.screens.dialogs import ChoiceScreen, ListEntry

NUMBER = THINK_NUMBER.lower()
DETAILS = {
    AUTO_THINK: "the default: reasoning on, or as the template decides",
    "on": "reason first",
    "off": "answer at once",
    NUMBER: "a token limit: type the number",
}
LEVEL = "a level this model supports"


def thinking_words(facts: EngineFacts | None) -> tuple[str, ...]:
    """Return the values that the loaded model's switch accepts; empty without a model or switch."""
    words = [] if facts is None else [each.lower() for each in facts.thinking]
    return (AUTO_THINK, *words) if words else ()


@dataclass(frozen=True, slots=True)
class ThinkSwitch:
    """Sets the switch to a value that the loaded model supports."""

    view: MainView
    state: ChatState

    def act(self, word: str = "") -> None:
        """Set the switch from the next answer on; without a value, let the user choose one.

        Raises InvalidOption for a value that the model does not support.
        """
        facts, word = self.state.pair_controller.facts, word.lower()
        known = thinking_words(facts)
        if facts is None:
            self.state.pair_controller.require_session()  # it may have been unloaded
            self.view.notify("The model is not loaded yet. Try again once it is.")
        elif not known and word != AUTO_THINK:
            name = self.state.pair_controller.pair.name
            self.view.notify(f"{in_one_line(name)} has no reasoning to switch.")
        elif not word:
            self.view.app.run_worker(self._choose(known))
        elif word in {AUTO_THINK, *known} - {NUMBER} or (NUMBER in known and word.isdecimal()):
            self._set(word)
        else:
            given, values = in_one_line(word), think_values(known[1:])
            raise InvalidOption(f"/think does not accept {given}: use {values}.")

    async def _choose(self, known: tuple[str, ...]) -> None:
        choices = [ListEntry(word, word, DETAILS.get(word, LEVEL)) for word in known]
        marked = self.state.options.thinking
        screen = ChoiceScreen("Thinking, from the next answer on", choices, marked=marked)
        word = await self.view.app.push_screen_wait(screen)
        if word == NUMBER:
            self.view.rewrite("/think ")
        elif word:
            self._set(word)

    def _set(self, word: str) -> None:
        self.state.options.changed["think"] = word
        self.view.show_state()
        self.view.notify(f"Reasoning: {word} from the next answer.")
