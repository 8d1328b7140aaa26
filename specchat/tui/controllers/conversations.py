"""What is being talked about: the conversation, its branches, and keeping them; no widgets here."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from time import monotonic
from typing import Any

from specchat.chat.attachments import Attachment
from specchat.chat.conversation import Conversation, Message, Piece, Tree
from specchat.chat.store import Preset, Store
from specchat.chat.turn import Turn
from specchat.errors import StoreBusy

__all__ = ["Conversing"]

WRITING_INTERVAL = 0.45
"""Seconds between two writings of an answer that grows. Words come up to 0.75 seconds late, and no
more than a second of them may be lost."""


class Conversing:
    """One conversation of a store, the branch that is read, and the answer being written."""

    def __init__(self, store: Store, pair: str, system_prompt: str = "") -> None:
        """Begin with an empty conversation, kept once something is said."""
        self.store = store
        self.pair = pair
        self.usual_prompt = system_prompt
        """What the model is told first in a new conversation."""
        self.system_prompt = system_prompt
        self.preset = ""
        """The name of the preset that this conversation is asked with."""
        self.conversation: Conversation | None = None
        self.tree = Tree()
        self.leaf: int | None = None
        self._undo: list[Callable[[], None]] = []
        self._written = 0.0
        self._late: dict[int, Callable[[], None]] = {}

    @property
    def branch(self) -> list[Message]:
        """The messages being read."""
        return self.tree.branch(self.leaf)

    def begin(self) -> None:
        """Begin another conversation."""
        self.conversation, self.tree, self.leaf = None, Tree(), None
        self.system_prompt, self.preset = self.usual_prompt, ""

    def open(self, number: int, message: int | None = None) -> None:
        """Go on with a conversation, on the branch of a message if one is named."""
        self.settle()
        conversation, tree = self.store.conversation(number), self.store.tree(number)
        self.conversation, self.tree = conversation, tree
        self.system_prompt, self.preset = conversation.system_prompt, conversation.preset
        if message is not None and message in tree:
            self.leaf = tree.newest_leaf(message)
        else:
            self.leaf = conversation.leaf if conversation.leaf in tree else tree.newest_leaf(None)

    def ask(
        self,
        text: str,
        attachments: Sequence[Attachment] = (),
        *,
        instead_of: int | None = None,
    ) -> Message:
        """Add a question at the end, or as another version of an earlier one that is there."""
        is_there = instead_of is not None and instead_of in self.tree
        parent = self.tree[instead_of].parent if is_there and instead_of else self.leaf
        return self._add("user", text, parent, attachments)

    def attachments(self, message: int | None) -> Iterable[Attachment]:
        """Return the files that went with a question, none where there is no such question."""
        return self.tree[message].attachments if message in self.tree and message else ()

    def answer(self, question: int) -> Message:
        """Begin an answer to a question."""
        return self._add("assistant", "", question)

    def turns(self, leaf: int | None) -> list[Turn]:
        """Return what a model is asked to answer, up to a message."""
        return self.tree.turns(leaf, self.system_prompt)

    def write(self, message: int, text: str) -> None:
        """Keep a growing answer, now and then."""
        if monotonic() - self._written >= WRITING_INTERVAL:
            self._written = monotonic()
            self._late[message] = partial(self.store.write, message, text)
            self.settle()

    def finish(
        self,
        message: int,
        text: str,
        finish: str,
        figures: dict[str, Any],
        pieces: Sequence[Piece] = (),
    ) -> None:
        """Keep an answer that has ended, with its statistics."""
        state = replace(
            self.tree[message], text=text, finish=finish, statistics=figures, pieces=tuple(pieces)
        )
        self.tree.put(state)
        self._late[message] = partial(
            self.store.write, message, text, finish=finish, statistics=figures, pieces=pieces
        )
        self.settle()

    def settle(self) -> bool:
        """Write what waits for another program to end its writing; False where it still waits."""
        for message, write in list(self._late.items()):
            del self._late[message]
            try:
                write()
            except StoreBusy:
                self._late[message] = write
        return not self._late

    def turn_to(self, message: int, step: int) -> int | None:
        """Read another version of a message and return it; None where there is none that way."""
        versions = self.tree.siblings(message)
        place = versions.index(message) + step
        if not 0 <= place < len(versions):
            return None
        self._read_on(self.tree.newest_leaf(versions[place]))
        return versions[place]

    def version(self, message: int) -> tuple[int, int]:
        """Return which of how many versions a message is, counted from 1."""
        versions = self.tree.siblings(message)
        return versions.index(message) + 1, len(versions)

    def delete(self, message: int) -> None:
        """Delete a message and what follows it; `undo` brings them back."""
        parent, before = self.tree[message].parent, self.leaf
        number = self._number
        below = self.tree.below(message)
        self.store.delete_messages(below)
        self.tree.remove(message)
        self._read_on(self.tree.newest_leaf(parent))

        def bring_back() -> None:
            self.store.restore_messages(below)
            self.store.read_on(number, before)
            self.open(number)

        self._undo.append(bring_back)

    def delete_conversation(self, number: int) -> None:
        """Delete a conversation; `undo` brings it back, and opens it if it was open."""
        self.store.delete(number)
        is_open = self.conversation is not None and self.conversation.id == number

        def bring_back() -> None:
            self.store.restore(number)
            if is_open:
                self.open(number)

        self._undo.append(bring_back)

    def rename(self, title: str) -> None:
        """Give the conversation a title."""
        if self.conversation is not None:
            self.store.rename(self.conversation.id, title)
            self.conversation = self.store.conversation(self.conversation.id)

    def set_system_prompt(self, text: str) -> None:
        """Tell the model something else first, from the next answer on."""
        if self.conversation is not None:
            self.store.set_system_prompt(self.conversation.id, text.strip())
        self.system_prompt = text.strip()

    def use_preset(self, preset: Preset) -> None:
        """Ask with a preset from the next answer on."""
        self.set_system_prompt(preset.system_prompt)
        if self.conversation is not None:
            self.store.set_preset(self.conversation.id, preset.name)
        self.preset = preset.name

    def undo(self) -> bool:
        """Bring back what was deleted last, and read it; False where there is nothing."""
        if not self._undo:
            return False
        bring_back = self._undo.pop()
        try:
            bring_back()
        except StoreBusy:
            self._undo.append(bring_back)
            raise
        return True

    @property
    def _number(self) -> int:
        """The conversation's number; it begins here where nothing was said yet."""
        if self.conversation is None:
            self.conversation = self.store.begin(self.system_prompt, self.pair, self.preset)
        return self.conversation.id

    def _add(
        self, role: Any, text: str, parent: int | None, attachments: Sequence[Attachment] = ()
    ) -> Message:
        message = self.store.add(self._number, role, text, parent, attachments)
        self.tree.put(message)
        self.leaf = message.id
        if self.conversation is not None and not self.conversation.title:
            self.conversation = self.store.conversation(self.conversation.id)
        return message

    def _read_on(self, leaf: int | None) -> None:
        self.leaf = leaf
        if self.conversation is not None:
            self.store.read_on(self.conversation.id, leaf)
