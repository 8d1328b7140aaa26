"""A conversation: a tree of messages with one current branch."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from typing import Any, Literal, TypeAlias

from specchat.chat.attachments import Attachment, with_attachments
from specchat.chat.chat_message import ChatMessage

Role: TypeAlias = Literal["user", "assistant"]

Piece: TypeAlias = tuple[str, str]
"""A token's text and its origin."""


@dataclass(frozen=True, slots=True)
class Message:
    """One message; messages with the same `parent` are versions of each other.

    `finish` is the reason an answer ended, None while it is written. An answer has `statistics`,
    with the field names of `specchat ask --json`, and `pieces`, its tokens with their origins. A
    question may have `attachments`.
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
    """A conversation without its messages.

    `leaf` is the last message of the current branch; `preset` the name of the preset last used.
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
    """The messages of one conversation and their branches."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        """Build the tree from messages in any order."""
        self._messages: dict[int, Message] = {}
        self._children: dict[int | None, list[int]] = {}
        for message in sorted(messages, key=lambda message: message.id):
            self.put(message)

    def put(self, message: Message) -> None:
        """Add a message, or replace it by its new state."""
        if message.id not in self._messages:
            self._children.setdefault(message.parent, []).append(message.id)
        self._messages[message.id] = message

    def __getitem__(self, number: int) -> Message:
        """Return a message by its id."""
        return self._messages[number]

    def __contains__(self, number: object) -> bool:
        """Return True if the tree has a message of this id."""
        return number in self._messages

    @property
    def numbers(self) -> list[int]:
        """The ids of all messages, oldest first."""
        return sorted(self._messages)

    def __len__(self) -> int:
        """Return the number of messages on all branches."""
        return len(self._messages)

    def branch(self, leaf: int | None) -> list[Message]:
        """Return the messages from the first to a leaf."""
        found: list[Message] = []
        while leaf is not None and leaf in self._messages:
            found.append(self._messages[leaf])
            leaf = found[-1].parent
        return found[::-1]

    def siblings(self, number: int) -> list[int]:
        """Return the ids of all versions of a message, itself included, oldest first."""
        return self._children.get(self._messages[number].parent, [])

    def newest_leaf(self, number: int | None) -> int | None:
        """Return the last message reached by following the newest versions."""
        while children := self._children.get(number):
            number = children[-1]
        return number

    def below(self, number: int) -> list[int]:
        """Return the ids of a message and of all below it, on any branch."""
        found = [number]
        for each in found:
            found.extend(self._children.get(each, []))
        return found

    def remove(self, number: int) -> list[Message]:
        """Remove a message and all below it, and return them."""
        taken = [self._messages.pop(each) for each in self.below(number)]
        self._children[taken[0].parent].remove(number)
        for message in taken:
            self._children.pop(message.id, None)
        return taken

    def turns(self, leaf: int | None, system_prompt: str = "") -> list[ChatMessage]:
        """Return the turns to send to a model for a branch.

        Many chat templates require users and assistants to alternate, so empty answers are left
        out, and so are their questions, except the last.
        """
        turns: list[ChatMessage] = (
            [{"role": "system", "content": system_prompt}] if system_prompt else []
        )
        said = [each for each in self.branch(leaf) if each.role == "user" or each.text]
        for each, following in zip_longest(said, said[1:]):
            if following is None or each.role != following.role:
                content = with_attachments(each.text, each.attachments)
                turns.append({"role": each.role, "content": content})
        return turns
