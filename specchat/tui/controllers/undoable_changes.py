"""Changes that can be undone: pins, summaries, deletions, advice taken; no Textual here."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from specchat.chat.conversation import Mark, Message
from specchat.errors import StoreFailed
from specchat.tui.controllers.answer_options import AnswerOptions
from specchat.tui.controllers.conversations import Conversations


class UndoableChanges:
    """Makes changes, and undoes them, the last one first."""

    def __init__(self, conversations: Conversations, options: AnswerOptions) -> None:
        """Begin with nothing to undo."""
        self._chat, self._options = conversations, options
        self._undo: list[Callable[[], bool | None]] = []

    def pin(self, message: int) -> bool:
        """Pin a message, or unpin it; return True if it is pinned now. `undo` reverts that."""
        chat = self._chat
        before, number = chat.tree[message].mark, chat.stored_number()
        self._set_mark(message, "" if before else "pinned")

        def restore() -> None:
            if number != chat.number:
                chat.open(number)
            self._set_mark(message, before)

        self._undo.append(restore)
        return not before

    def ask_for_summary(self, text: str) -> Message:
        """Add the question for a summary, which replaces what is before it once it is answered.

        `undo` takes the summary away again, or makes it an ordinary message if others follow.
        """
        chat = self._chat
        before = chat.leaf
        question = chat.ask(text, mark="summary")
        number = chat.stored_number()

        def restore() -> None:
            if number != chat.number:
                chat.open(number)
            if len(chat.tree.below(question.id)) > 2:
                self._set_mark(question.id, "")
                return
            chat.withdraw(question.id, before)

        self._undo.append(restore)
        return question

    def delete(self, message: int) -> None:
        """Delete a message and what follows it; `undo` restores them."""
        chat = self._chat
        parent, before = chat.tree[message].parent, chat.leaf
        number = chat.stored_number()
        below = chat.tree.below(message)

        def restore() -> None:
            chat.store.delete_messages(below, undo=True)
            chat.store.change(number, leaf=before)
            chat.open(number)

        chat.store.delete_messages(below)
        self._undo.append(restore)  # even if the next write fails
        chat.tree.remove(message)
        chat.set_leaf(chat.tree.newest_leaf(parent))

    def delete_conversation(self, number: int) -> None:
        """Delete a conversation; `undo` restores it, and opens it if it was open."""
        chat = self._chat
        chat.store.delete(number)
        is_open = chat.number == number

        def restore() -> None:
            chat.store.restore(number)
            if is_open:
                chat.open(number)

        self._undo.append(restore)

    def change_options(self, options: Mapping[str, Any], on_undo: Callable[[], None]) -> None:
        """Change options of the next answers; `undo` restores them, and calls `on_undo`.

        What was changed since stays.
        """
        changed = self._options.changed
        before = {name: changed[name] for name in options if name in changed}
        changed.update(options)

        def restore() -> bool:
            if any(changed.get(name) != value for name, value in options.items()):
                return self.undo()  # they were changed since: what was done before them
            for name in options:
                del changed[name]
            changed.update(before)
            on_undo()
            return True

        self._undo.append(restore)

    def undo(self) -> bool:
        """Undo the last change that can be undone; False if there is nothing to restore."""
        if not self._undo:
            return False
        restore = self._undo.pop()
        try:
            return restore() is not False
        except StoreFailed:
            self._undo.append(restore)
            raise

    def _set_mark(self, message: int, mark: Mark) -> None:
        """Mark a message, or take its mark away."""
        chat = self._chat
        if message in chat.tree:  # it may have been deleted since
            chat.store.mark(message, mark)
            chat.tree.put(replace(chat.tree[message], mark=mark))
