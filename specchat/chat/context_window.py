"""Which messages are left out of a conversation that is longer than the context."""

from bisect import bisect_left
from collections.abc import Callable, Sequence

from specchat.chat.chat_message import ChatMessage

TURNS_AT_ONCE = 4
"""Turns left out at a time: each time the model must evaluate all others again."""


def without_oldest(messages: Sequence[ChatMessage], num_left_out: int) -> Sequence[ChatMessage]:
    """Return the conversation without its oldest messages; system prompts stay."""
    system = [message for message in messages if message["role"] == "system"]
    others = [message for message in messages if message["role"] != "system"]
    return [*system, *others[num_left_out:]] if num_left_out else messages


def num_too_many(
    messages: Sequence[ChatMessage], count: Callable[[Sequence[ChatMessage]], int], limit: int
) -> int:
    """Return how many of the oldest messages to leave out so that `count` is within a limit.

    Whole turns are left out, so the rest begins with a question; the last question always stays.
    """
    others = [message["role"] for message in messages if message["role"] != "system"]
    if count(messages) <= limit:
        return 0
    begins = [place for place, role in enumerate(others) if role == "user"]
    if not begins:
        return 0
    places = begins[TURNS_AT_ONCE:-1:TURNS_AT_ONCE]

    def fits(place: int) -> bool:
        return count(without_oldest(messages, place)) <= limit

    # counting renders the whole template, so not every place is tried
    first = bisect_left(places, True, key=fits)
    return places[first] if first < len(places) else begins[-1]
