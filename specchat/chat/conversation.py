"""A conversation: a tree of messages, of which one branch is read at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from specchat.chat.attachments import Attachment, with_attachments
from specchat.chat.turn import Turn

__all__ = ["Conversation", "Message", "Piece", "Role", "Tree"]

Role: TypeAlias = Literal["user", "assistant"]

Piece: TypeAlias = tuple[str, str]
"""A token's text and where it came from."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; `parent` is the one before it, so that siblings are versions of each other.

    `finish` says why an answer ended, None while it goes on. `statistics` and `pieces` belong to
    answers: the figures of the JSON contract and the tokens with their origins; `attachments` are
    the files that went with a question.
    """

    id: int
    parent: int | None
    role: Role
    text: str
    created: float
    finish: str | None = None
    statistics: Mapping[str, Any] = field(default_factory=dict)
    pieces: tuple[Piece, ...] = ()
    attachments: tuple[Attachment, ...] = ()


@dataclass(frozen=True, slots=True)
class Conversation:
    """What is known of a conversation without its messages.

    `leaf` ends the branch being read; `preset` is the name of the one it was asked with last.
    """

    id: int
    title: str
    created: float
    changed: float
    system_prompt: str = ""
    pair: str = ""
    leaf: int | None = None
    preset: str = ""


class Tree:
    """The messages of one conversation, by their branches."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Take messages in any order."""
        self._messages: dict[int, Message] = {}
        self._children: dict[int | None, list[int]] = {}
        for message in sorted(messages, key=lambda message: message.id):
            self.put(message)

    def put(self, message: Message) -> None:
        """Add a message, or put another state of it in its place."""
        if message.id not in self._messages:
            self._children.setdefault(message.parent, []).append(message.id)
        self._messages[message.id] = message

    def __getitem__(self, number: int) -> Message:
        """Return a message by its number."""
        return self._messages[number]

    def __contains__(self, number: object) -> bool:
        """Say whether there is such a message."""
        return number in self._messages

    @property
    def numbers(self) -> list[int]:
        """The numbers of all messages, oldest first."""
        return sorted(self._messages)

    def __len__(self) -> int:
        """Return the number of messages on all branches."""
        return len(self._messages)

    def branch(self, leaf: int | None) -> list[Message]:
        """Return the messages from the first one to a leaf."""
        found: list[Message] = []
        while leaf is not None and leaf in self._messages:
            found.append(self._messages[leaf])
            leaf = found[-1].parent
        return found[::-1]

    def siblings(self, number: int) -> list[int]:
        """Return all versions of a message, itself included, oldest first."""
        return self._children.get(self._messages[number].parent, [])

    def newest_leaf(self, number: int | None) -> int | None:
        """Return the end of the branch that goes on from a message by the newest versions."""
        while children := self._children.get(number):
            number = children[-1]
        return number

    def below(self, number: int) -> list[int]:
        """Return a message and all that follow it on any branch."""
        found = [number]
        for each in found:
            found.extend(self._children.get(each, []))
        return found

    def remove(self, number: int) -> list[Message]:
        """Take out a message and all that follow it, and return them."""
        taken = [self._messages.pop(each) for each in self.below(number)]
        self._children[taken[0].parent].remove(number)
        for message in taken:
            self._children.pop(message.id, None)
        return taken

    def turns(self, leaf: int | None, system_prompt: str = "") -> list[Turn]:
        """Return a branch as a model is asked to answer it.

        Many templates want questions and answers to take turns, so what came to nothing is left
        out: answers without a word, and the questions they belong to but the last.
        """
        turns: list[Turn] = [{"role": "system", "content": system_prompt}] if system_prompt else []
        said = [each for each in self.branch(leaf) if each.role == "user" or each.text]
        for each, following in zip_longest(said, said[1:]):
            if following is None or each.role != following.role:
                content = with_attachments(each.text, each.attachments)
                turns.append({"role": each.role, "content": content})
        return turns
