"""How the app takes in messages: like Textual's `on`, but our own errors become notices."""

from collections.abc import Callable
from dataclasses import dataclass
from inspect import isawaitable
from typing import Any, TypeVar

from textual import on
from textual.message import Message

from specchat.tui.events import Event

MessageType = TypeVar("MessageType", bound=Message)


@dataclass
class Reported(Message):
    """A thread reports an event."""

    event: Event


def handles(
    kind: type[MessageType],
) -> Callable[[Callable[[Any, MessageType], Any]], Callable[[Any, MessageType], Any]]:
    """Return a decorator for the method that handles a kind of message.

    Textual would end the app on any error that a handler raises; `ChatApp.reporting` shows ours.
    """

    def decorate(method: Callable[[Any, MessageType], Any]) -> Callable[[Any, MessageType], Any]:
        async def handler(app: Any, message: MessageType) -> None:
            with app.reporting():
                result = method(app, message)
                if isawaitable(result):
                    await result

        handler.__doc__ = method.__doc__
        return on(kind)(handler)

    return decorate
