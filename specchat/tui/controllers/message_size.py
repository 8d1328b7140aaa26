"""How many tokens the message being written has, and whether it fits; no Textual here."""

import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from specchat.chat.conversation import with_attachments
from specchat.errors import SpecchatError
from specchat.formats.chat_message import ChatMessage
from specchat.requests.prompt_size import PromptSize
from specchat.tui.commands import is_slash
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.answers import Answers
from specchat.tui.controllers.chat_view import ChatView
from specchat.tui.controllers.conversations import Conversations
from specchat.tui.controllers.pair_controller import PairController
from specchat.tui.controllers.questions import Questions
from specchat.tui.controllers.session import Post, Sizing
from specchat.tui.mentions import named_files
from specchat.tui.texts.schema_text import structure_of

QUIET_SECONDS = 0.25
"""A message is counted once nothing was typed for this long."""
BYTES_PER_TOKEN = 4
"""For an estimate while no model can count."""


@dataclass(slots=True)
class MessageSize:
    """Counts the message in the composer with the model's tokenizer, in the engine's process.

    Until that has counted, for example during an answer, the size is estimated.
    """

    view: ChatView
    conversations: Conversations
    questions: Questions
    answers: Answers
    options: AnswerOptions
    pair_controller: PairController
    post: Post
    written: Callable[[], tuple[str, str]] = lambda: ("", "")
    """Returns the text of the composer, and that with its pasted texts in full."""
    size: PromptSize | None = None
    """None while there is no message."""
    is_estimate: bool = False
    _count: int = 0
    """The number of changes so far: what belongs to an earlier one is dropped."""
    _is_waiting: bool = False

    def changed(self, *, is_empty: bool = False) -> None:
        """Count the message again, once nothing more is typed; called at every key."""
        self._count += 1
        if is_empty:
            self._show(None)
        if not self._is_waiting:
            self._is_waiting = True
            self._look_later()

    def _look_later(self) -> None:
        self.view.later(QUIET_SECONDS, partial(self._look, self._count))

    def _look(self, number: int) -> None:
        """Count the message, unless something was typed since; then wait again."""
        if number != self._count:
            self._look_later()
            return
        self._is_waiting = False
        written, text = self.written()
        if not text.strip() or is_slash(written.rstrip()):
            self._show(None)
        elif "@" in written:
            arguments = number, written, text, Path.cwd()
            threading.Thread(target=self._read_files, args=arguments, daemon=True).start()
        else:
            self._ask(number, text)

    def _read_files(self, number: int, written: str, text: str, folder: Path) -> None:
        """Read the files that the message names, in a thread of its own."""
        try:
            files = named_files(written, folder).attachments
        except SpecchatError:  # sending it says what is wrong
            files = []
        self.post(self._ask, number, with_attachments(text, files))

    def _ask(self, number: int, content: str) -> None:
        """Ask the engine for the size; show an estimate until it answers."""
        if number != self._count:
            return
        estimate = -(-len(content.encode("utf-8", "replace")) // BYTES_PER_TOKEN)
        session = self.pair_controller.session
        if session is None or not session.is_loaded or self.answers.current is not None:
            self._show(PromptSize(estimate), is_estimate=True)
        if session is None:
            return
        session.size(self._sizing(number, content, estimate))

    def _sizing(self, number: int, content: str, estimate: int) -> Sizing:
        """Return the request for the prompt with which the message would be asked now."""
        chat = self.conversations
        edited = chat.tree.get(self.questions.editing or 0)
        before = edited.parent if edited else chat.leaf
        turns = chat.tree.turns(before, chat.system_prompt)
        if turns and turns[-1]["role"] == "user":  # its answer is empty so far
            turns.pop()
        options = {
            "think": self.options.thinking,
            "max_tokens": self.options.current.get("max_tokens"),
            "pinned": chat.tree.pinned_turns(before, chat.system_prompt),
            "structure": structure_of(chat.schema.source) if chat.schema else None,
        }
        asked: ChatMessage = {"role": "user", "content": content}
        return Sizing([*turns, asked], options, partial(self._counted, number, estimate))

    def _counted(self, number: int, estimate: int, size: PromptSize | None) -> None:
        """Show the size, or the estimate where the engine cannot count."""
        if number == self._count:
            self._show(size or PromptSize(estimate), is_estimate=size is None)

    def _show(self, size: PromptSize | None, *, is_estimate: bool = False) -> None:
        if (size, is_estimate) != (self.size, self.is_estimate):
            self.size, self.is_estimate = size, is_estimate
            self.view.show_frame()
