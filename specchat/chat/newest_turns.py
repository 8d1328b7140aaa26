"""Which turns of a conversation stay when it does not fit the context: the newest ones."""

from bisect import bisect_left
from collections.abc import Callable, Container, Sequence
from itertools import pairwise

from specchat.formats.chat_message import ChatMessage
from specchat.formats.messages import SYSTEM_ROLES

TURNS_AT_ONCE = 4
"""Turns left out at a time; each time, the model must evaluate the others again."""


def newest_turns(
    messages: Sequence[ChatMessage],
    count: Callable[[Sequence[ChatMessage]], int],
    limit: int,
    pinned: Container[int] = (),
) -> Sequence[ChatMessage]:
    """Return a conversation without its oldest turns, so that its `count` is within a limit.

    Whole turns are left out, so the rest begins with a question. System prompts, the last question
    and the turns with a message at one of the indices `pinned` always stay.
    """
    system = [message for message in messages if message["role"] in SYSTEM_ROLES]
    turns = _turns(messages)
    if count(messages) <= limit or not turns:
        return messages

    def kept(start: int) -> list[ChatMessage]:
        """Return the conversation from a turn on, with the pinned turns before it."""
        stays = [turn for turn in turns[:start] if any(index in pinned for index, _ in turn)]
        return [*system, *(message for turn in stays + turns[start:] for _, message in turn)]

    starts = [*range(TURNS_AT_ONCE, len(turns) - 1, TURNS_AT_ONCE), len(turns) - 1]
    # counting renders the whole template, so a binary search saves time
    first = bisect_left(starts[:-1], True, key=lambda start: count(kept(start)) <= limit)
    return kept(starts[first])


def _turns(messages: Sequence[ChatMessage]) -> list[list[tuple[int, ChatMessage]]]:
    """Return the messages with their indices by turn, without system prompts.

    A turn is a question with all that follows it.
    """
    others = [each for each in enumerate(messages) if each[1]["role"] not in SYSTEM_ROLES]
    begins = [place for place, (_, message) in enumerate(others) if message["role"] == "user"]
    bounds = [0, *begins[1:], len(others)] if begins else []
    return [others[begin:end] for begin, end in pairwise(bounds)]
