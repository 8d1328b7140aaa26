"""A conversation: a tree of messages with a current branch; questions may have attached files."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal, TypeAlias, get_args

from specchat.decoding.chunk import Piece, ToolCall
from specchat.formats.chat_message import ChatMessage
from specchat.images.image import Image, with_images

Role: TypeAlias = Literal["user", "assistant"]

Mark: TypeAlias = Literal["", "pinned", "summary"]
"""What is special about a message: it never drops out of the context, or it is the question for a
summary, whose answer replaces all messages before it in the prompt."""
MARKS: frozenset[str] = frozenset(get_args(Mark))
WHOLE = frozenset({"stop", "length"})
"""How answers end that are whole enough to be named, or to replace the messages before them."""


@dataclass(frozen=True, slots=True)
class Attachment:
    """A text file under the name that the question used, with its contents at that time."""

    name: str
    content: str


@dataclass(frozen=True, slots=True)
class Message:
    """One message; messages with the same `parent` are versions of each other.

    `text` is a question, or an answer without its `reasoning` and `tool_calls`. `finish` is why an
    answer ended; None while it is being written. An answer has `statistics`, with the field names
    of `specchat ask --json`, and `pieces`, the texts of its tokens with their origins. A question
    may have `attachments` and `images`. `mark` says what is special about it. `schema` is the JSON
    Schema that an answer was asked to follow, empty for none.
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
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    mark: Mark = ""
    schema: str = ""
    images: tuple[Image, ...] = ()


@dataclass(frozen=True, slots=True)
class ChatSchema:
    """What the answers of a conversation look like, as the user typed it and as JSON Schema.

    A file that the user named was read once: what answers follow does not change with it.
    """

    typed: str
    source: str

    @property
    def name(self) -> str:
        """What to show where there is little room: on one line, and of a file the name alone."""
        path = Path(self.typed)
        return path.name if path.is_absolute() else " ".join(self.typed.split())


@dataclass(frozen=True, slots=True)
class Conversation:
    """A conversation without its messages.

    `leaf` is the last message of the current branch, `preset` the name of the preset used last.
    The title was given by the "user" or the "model", or is the first question if `titled_by` is
    empty. The next answers follow the `schema`, unless it is None.
    """

    id: int
    title: str
    created: float
    changed: float
    system_prompt: str = ""
    pair: str = ""
    leaf: int | None = None
    preset: str = ""
    titled_by: str = ""
    schema: ChatSchema | None = None


class Tree(dict[int, Message]):
    """The messages of one conversation by id, with methods for its branches."""

    def __init__(self, messages: Iterable[Message] = ()) -> None:
        super().__init__()
        self._children: dict[int | None, list[int]] = {}
        for message in sorted(messages, key=lambda message: message.id):
            self.put(message)

    def put(self, message: Message) -> None:
        """Add a message, or replace the one with its id."""
        if message.id not in self:
            self._children.setdefault(message.parent, []).append(message.id)
        self[message.id] = message

    def branch(self, leaf: int | None) -> list[Message]:
        """Return the messages from the first one to a leaf."""
        found: list[Message] = []
        while leaf is not None and leaf in self:
            found.append(self[leaf])
            leaf = found[-1].parent
        return found[::-1]

    def siblings(self, number: int) -> list[int]:
        """Return the ids of all versions of a message, including itself, oldest first."""
        return self._children.get(self[number].parent, [])

    def version(self, number: int) -> tuple[int, int]:
        """Return which version a message is, counted from 1, and how many there are."""
        versions = self.siblings(number)
        return versions.index(number) + 1, len(versions)

    def newest_leaf(self, number: int | None) -> int | None:
        """Return the end of the branch that follows the newest versions below a message."""
        while children := self._children.get(number):
            number = children[-1]
        return number

    def below(self, number: int) -> list[int]:
        """Return the ids of a message and of all messages below it, on any branch."""
        found = [number]
        for each in found:
            found.extend(self._children.get(each, []))
        return found

    def remove(self, number: int) -> list[Message]:
        """Remove a message and all messages below it, and return them."""
        taken = [self.pop(each) for each in self.below(number)]
        self._children[taken[0].parent].remove(number)
        for message in taken:
            self._children.pop(message.id, None)
        return taken

    def turns(self, leaf: int | None, system_prompt: str = "") -> list[ChatMessage]:
        """Return the turns to send to a model for a branch: the messages that `sent` returns."""
        turns: list[ChatMessage] = (
            [{"role": "system", "content": system_prompt}] if system_prompt else []
        )
        return turns + [_turn(each) for each in self.sent(leaf)]

    def images(self, leaf: int | None) -> tuple[Image, ...]:
        """Return the images in those turns."""
        return tuple(image for message in self.sent(leaf) for image in message.images)

    def pinned_turns(self, leaf: int | None, system_prompt: str = "") -> list[int]:
        """Return the indices of those turns, of all that `turns` returns, that must be sent."""
        flags = [is_pinned(exchange) for exchange in exchanges(self.sent(leaf)) for _ in exchange]
        return [index for index, flag in enumerate(flags, 1 if system_prompt else 0) if flag]

    def sent(self, leaf: int | None) -> list[Message]:
        """Return the messages of a branch that a model gets.

        Many chat templates require users and assistants to alternate, so empty answers are left
        out together with their questions, except for the last question. An answer without text or
        tool calls is empty, for example one that was stopped during its reasoning. A summary
        replaces the messages before it, except for pinned ones; an unfinished summary is left out.
        """
        said = [
            each
            for each in _without_open_summaries(self.branch(leaf))
            if each.role == "user" or each.text or each.tool_calls
        ]
        pairs = zip_longest(said, said[1:])
        kept = [one for one, next_one in pairs if next_one is None or one.role != next_one.role]
        # a summary that is just being written must see what it sums up
        starts = [place for place, each in enumerate(kept[:-1]) if each.mark == "summary"]
        if not starts:
            return kept
        pinned = [exchange for exchange in exchanges(kept[: starts[-1]]) if is_pinned(exchange)]
        return [*(message for each in pinned for message in each), *kept[starts[-1] :]]


def exchanges(messages: Iterable[Message]) -> list[list[Message]]:
    """Return messages grouped by question: each with what follows it."""
    found: list[list[Message]] = []
    for message in messages:
        if message.role == "user" or not found:
            found.append([])
        found[-1].append(message)
    return found


def is_pinned(exchange: Iterable[Message]) -> bool:
    """Return True if a question with its answer never drops out of the context."""
    return any(each.mark for each in exchange)


def _without_open_summaries(branch: Sequence[Message]) -> Iterator[Message]:
    """Yield the messages, without the question and the answer of summaries that did not end."""
    answers = zip_longest(branch, branch[1:])
    is_left_out = False
    for message, answer in answers:
        if message.role == "user":
            is_summary = message.mark == "summary" and answer is not None
            is_left_out = is_summary and answer.finish not in WHOLE
        if not is_left_out:
            yield message


def _turn(message: Message) -> ChatMessage:
    """Return a message in the form that is sent to a model, with the marks of its images."""
    content = with_images(with_attachments(message.text, message.attachments), message.images)
    turn: ChatMessage = {"role": message.role, "content": content}
    if message.reasoning:
        turn["reasoning_content"] = message.reasoning
    if message.tool_calls:
        turn["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": call.arguments},
            }
            for call in message.tool_calls
        ]
    return turn


def with_attachments(text: str, attachments: Iterable[Attachment]) -> str:
    """Return a question followed by the contents of its files, each in a code fence."""
    return "\n\n".join(
        [text, *(f"{attachment.name}:\n{fenced(attachment.content)}" for attachment in attachments)]
    )


def fenced(content: str) -> str:
    """Return a text in a code fence that is longer than any fence inside it."""
    longest = max((len(run) for run in re.findall(r"`+", content)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{content.rstrip()}\n{fence}"
