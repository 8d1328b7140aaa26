"""What is being talked about: the conversation, its branches, and keeping them; no widgets here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import monotonic
from typing import Any

from specchat.chat.conversation import Conversation, Message, Piece, Tree
from specchat.chat.store import Store
from specchat.chat.turn import Turn
from specchat.decoding.statistics import Statistics

__all__ = ["Conversing"]

WRITING_INTERVAL = 0.9
"""Seconds between two writings of an answer that grows."""


class Conversing:
    """One conversation of a store, the branch that is read, and the answer being written."""

    def __init__(self, store: Store, pair: str, system_prompt: str = "") -> None:
        """Begin with an empty conversation, kept once something is said."""
        self.store = store
        self.pair = pair
        self.system_prompt = system_prompt
        self.conversation: Conversation | None = None
        self.tree = Tree()
        self.leaf: int | None = None
        self._undo: list[Callable[[], None]] = []
        self._written = 0.0

    @property
    def branch(self) -> list[Message]:
        """The messages being read."""
        return self.tree.branch(self.leaf)

    def begin(self) -> None:
        """Begin another conversation."""
        self.conversation, self.tree, self.leaf = None, Tree(), None

    def open(self, number: int, message: int | None = None) -> None:
        """Go on with a conversation, on the branch of a message if one is named."""
        self.conversation = self.store.conversation(number)
        self.system_prompt = self.conversation.system_prompt
        self.tree = self.store.tree(number)
        if message is not None and message in self.tree:
            self.leaf = self.tree.newest_leaf(message)
        else:
            self.leaf = self.conversation.leaf
            if self.leaf is not None and self.leaf not in self.tree:
                self.leaf = self.tree.newest_leaf(None)

    def ask(self, text: str, *, instead_of: int | None = None) -> Message:
        """Add a question at the end, or as another version of an earlier one."""
        parent = self.leaf if instead_of is None else self.tree[instead_of].parent
        return self._add("user", text, parent)

    def answer(self, question: int) -> Message:
        """Begin an answer to a question."""
        return self._add("assistant", "", question)

    def turns(self, leaf: int | None) -> list[Turn]:
        """Return what a model is asked to answer, up to a message."""
        turns = self.tree.turns(leaf, self.system_prompt)
        return [turn for turn in turns if turn["content"] or turn["role"] != "assistant"]

    def write(self, message: int, text: str) -> None:
        """Keep a growing answer, now and then."""
        if monotonic() - self._written >= WRITING_INTERVAL:
            self._written = monotonic()
            self.store.write(message, text)

    def finish(
        self,
        message: int,
        text: str,
        finish: str,
        statistics: Statistics | None = None,
        pieces: Sequence[Piece] = (),
        **more: Any,
    ) -> None:
        """Keep an answer that has ended, with its statistics."""
        figures = {**statistics.as_dict(), **more} if statistics else more
        self.store.write(message, text, finish=finish, statistics=figures, pieces=pieces)
        old = self.tree[message]
        self.tree.put(
            Message(
                message, old.parent, old.role, text, old.created, finish, figures, tuple(pieces)
            )
        )

    def turn_to(self, message: int, step: int) -> bool:
        """Read another version of a message; False where there is none in that direction."""
        versions = self.tree.siblings(message)
        place = versions.index(message) + step
        if not 0 <= place < len(versions):
            return False
        self._read_on(self.tree.newest_leaf(versions[place]))
        return True

    def version(self, message: int) -> tuple[int, int]:
        """Return which of how many versions a message is, counted from 1."""
        versions = self.tree.siblings(message)
        return versions.index(message) + 1, len(versions)

    def delete(self, message: int) -> None:
        """Delete a message and what follows it; `undo` brings them back."""
        parent, before = self.tree[message].parent, self.leaf
        taken = self.tree.remove(message)
        self.store.delete_messages([each.id for each in taken])
        self._read_on(self.tree.newest_leaf(parent) if parent is not None else None)

        def bring_back() -> None:
            self.store.restore_messages([each.id for each in taken])
            for each in taken:
                self.tree.put(each)
            self._read_on(before)

        self._undo.append(bring_back)

    def delete_conversation(self, number: int) -> None:
        """Delete a conversation; `undo` brings it back."""
        self.store.delete(number)
        self._undo.append(lambda: self.store.restore(number))

    def rename(self, title: str) -> None:
        """Give the conversation a title."""
        if self.conversation is not None:
            self.store.rename(self.conversation.id, title)
            self.conversation = self.store.conversation(self.conversation.id)

    def set_system_prompt(self, text: str) -> None:
        """Tell the model something else first, from the next answer on."""
        self.system_prompt = text.strip()
        if self.conversation is not None:
            self.store.set_system_prompt(self.conversation.id, self.system_prompt)

    def undo(self) -> bool:
        """Bring back what was deleted last; False where there is nothing."""
        if not self._undo:
            return False
        self._undo.pop()()
        return True

    def forget_undo(self) -> None:
        """Leave what was deleted as it is."""
        self._undo.clear()

    def _add(self, role: Any, text: str, parent: int | None) -> Message:
        if self.conversation is None:
            self.conversation = self.store.begin(self.system_prompt, self.pair)
        message = self.store.add(self.conversation.id, role, text, parent)
        self.tree.put(message)
        self.leaf = message.id
        return message

    def _read_on(self, leaf: int | None) -> None:
        self.leaf = leaf
        if self.conversation is not None:
            self.store.read_on(self.conversation.id, leaf)
