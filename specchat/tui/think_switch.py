"""The thinking switch: how much the model reasons before it answers, in this session."""

from specchat.chat.safe_text import in_one_line
from specchat.engine.api import EngineFacts
from specchat.tui.controllers.answers import AUTO
from specchat.tui.main_view import Actions
from specchat.tui.screens.dialogs import ChoiceScreen, ListEntry

DETAILS = {AUTO: "the model's default", "on": "reason first", "off": "answer at once"}
LEVEL = "a level of this model"


def thinking_words(facts: EngineFacts | None) -> tuple[str, ...]:
    """Return the words for the loaded model's switch; empty without one, or without a model."""
    return (AUTO, *facts.thinking) if facts is not None and facts.thinking else ()


class ThinkSwitch(Actions):
    """Sets the switch to a word that the loaded model knows."""

    def act(self, word: str = "") -> None:
        """Set the switch from the next answer on; without a word, let the user choose one."""
        facts, word = self.app.pair_controller.facts, word.lower()
        known = thinking_words(facts)
        if facts is None:
            self.app.notify("The model is not loaded yet. Try again once it is.")
        elif not known and word != AUTO:
            self.app.notify(f"The chat template of {facts.target} has no thinking switch.")
        elif not word:
            self.app.run_worker(self._choose(known))
        elif word not in {AUTO, *known}:
            given, words = in_one_line(word), ", ".join(known)
            self.app.notify(f"/think takes one of {words}, not {given}.", severity="warning")
        else:
            self._set(word)

    async def _choose(self, known: tuple[str, ...]) -> None:
        choices = [ListEntry(word, word, DETAILS.get(word, LEVEL)) for word in known]
        marked = self.app.answers.thinking
        screen = ChoiceScreen("Thinking, from the next answer on", choices, marked=marked)
        word = await self.app.push_screen_wait(screen)
        if word:
            self._set(word)

    def _set(self, word: str) -> None:
        self.app.answers.changed["think"] = word
        self.app.view.show_state()
        self.app.notify(f"Thinking: {word}, from the next answer on.")
