"""Titles written by the model while it is idle; no Textual here."""

from dataclasses import dataclass, field
from functools import partial

from specchat.chat.conversation import WHOLE
from specchat.chat.model_title import MOST_TOKENS, REQUEST, title_from
from specchat.drafter_registry import PLAIN
from specchat.errors import ConversationNotFound, StoreFailed
from specchat.options.declarations import AUTO_THINK
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.session import Aside

QUIET_SECONDS = 3.0
"""After how long without a question a title is written."""
OFF = "off"


@dataclass(slots=True)
class Titles:
    """Has the model title the open conversation, unless the user or the model has done so.

    What the model writes is used only if it is a title; otherwise the first question stays it.
    """

    view: ChatView
    conversations: Conversations
    answers: Answers
    pair_controller: PairController
    _tried: set[int] = field(default_factory=set)
    """The conversations for which the model wrote no title."""

    def answered(self) -> None:
        """Write a title soon, if nothing else is asked for until then."""
        if self._is_wanted():
            self.view.later(QUIET_SECONDS, partial(self._write, self.conversations.leaf))

    def _is_wanted(self) -> bool:
        """Return True if the conversation has no title yet, and the model can write one."""
        conversation, last = self.conversations.conversation, self.conversations.last
        facts = self.pair_controller.facts
        if conversation is None or last is None or facts is None or not facts.has_chat_template:
            return False
        is_answered = last.role == "assistant" and bool(last.text) and last.finish in WHOLE
        is_new = not conversation.titled_by and conversation.id not in self._tried
        return is_answered and is_new and (not facts.thinking or self._thinking() == OFF)

    def _thinking(self) -> str:
        """Return the word that switches reasoning off, if the model has it."""
        facts = self.pair_controller.facts
        words = [each.lower() for each in facts.thinking] if facts else []
        return OFF if OFF in words else AUTO_THINK

    def _write(self, leaf: int | None) -> None:
        """Ask for a title, unless something has happened since the answer with the id `leaf`."""
        chat, session = self.conversations, self.pair_controller.session
        is_idle = self.answers.current is None and chat.leaf == leaf
        if session is None or not is_idle or not self._is_wanted() or chat.number is None:
            return
        turns = chat.turns(leaf)
        options = {
            "images": chat.tree.images(leaf),
            "temperature": 0.0,
            "max_tokens": MOST_TOKENS,
            "drafter": PLAIN,
            "think": self._thinking(),
        }
        ended = partial(self._ended, chat.number)
        session.write_aside(Aside([*turns, {"role": "user", "content": REQUEST}], options, ended))

    def _ended(self, number: int, text: str, finish: str) -> None:
        """Keep a title, unless the conversation got one meanwhile or is gone."""
        if finish == "cancelled":
            return  # the next answer asks again
        self._tried.add(number)
        title = title_from(text) if finish == "stop" else ""
        try:
            if title and not self.conversations.store.conversation(number).titled_by:
                self.conversations.rename(number, title, "model")
                self.view.show_conversations()
                self.view.show_state()
        except (ConversationNotFound, StoreFailed):
            pass
