"""What can be done about the context: look at it, pin messages, and summarise the conversation."""

from dataclasses import dataclass

from specchat.tui.controllers.chat_state import ChatState
from specchat.tui.main_view import MainView

SUMMARY_REQUEST = (
    "Summarise our conversation so far, so that it can go on without the messages above: what I"
    " want, the facts, names, numbers, decisions and code that matter, and what is still open."
    " Write the summary only."
)
LEAST_MESSAGES = 3
"""A conversation of one question and its answer is its own summary."""


@dataclass(frozen=True, slots=True)
class ContextActions:
    """Acts on what the model gets of the open conversation."""

    view: MainView
    state: ChatState

    def show(self) -> None:
        """Say how full the context is, and what drops out of it next."""
        self.view.notify(self.state.context_report.words(), timeout=15)

    def pin(self, message: int | None = None) -> None:
        """Pin or unpin a message, by default the last question."""
        chat = self.state.conversations
        if self.state.answers.is_busy_here():
            return
        questions = [each.id for each in chat.branch if each.role == "user"]
        message = message or next(reversed(questions), None)
        if message is None:
            self.view.notify("There is no message to pin yet.")
        elif chat.tree[message].mark == "summary":
            self.view.notify(f"A summary always stays. {self.state.key_of('undo')} takes it away.")
        else:
            is_pinned = self.state.changes.pin(message)
            if view := self.view.transcript.view_of(message):
                view.say_mark(chat.tree[message].mark)
            what = "stay in the context" if is_pinned else "may drop out of the context again"
            self._say(f"This question and its answer {what}.")

    async def compact(self) -> None:
        """Have the model summarise the conversation; the summary replaces it in the prompt."""
        chat = self.state.conversations
        if len(chat.tree.sent(chat.leaf)) < LEAST_MESSAGES:
            self.view.notify("There is too little to summarise yet.")
            return
        question = self.state.changes.ask_for_summary(SUMMARY_REQUEST)
        await self.state.questions.answer_again(question.id)
        self._say("The summary replaces what is above it once it is written.")

    def _say(self, words: str) -> None:
        self.view.composer.leaves_undo = True
        self.view.notify(f"{words} {self.state.key_of('undo')} undoes that.")
