"""Questions for the tokens of images, which an engine's process answers beside all else."""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import NamedTuple, TypeVar

from specchat.errors import EngineFailed, SpecchatError
from specchat.images.image import Image, distant

Result = TypeVar("Result")


class _Question(NamedTuple):
    """To the process: an image without its bytes, which it asks for if it needs them."""

    number: int
    image: Image


class _Reply(NamedTuple):
    """From the process: the tokens of the image with a number, or the error it failed with."""

    number: int
    tokens: Sequence[int]
    error: SpecchatError | None


class ImageQuestions:
    """Asks about one image after the other, from any thread.

    A question that is interrupted is answered all the same, so replies have its number.
    """

    def __init__(self, connection: Connection, end_process: Callable[[], None]) -> None:
        """Ask through a connection; if half a message was sent, no other can follow."""
        self._connection, self._end_process = connection, end_process
        self._lock = threading.Lock()
        self._number = 0

    def tokens_of(self, image: Image) -> list[int]:
        """Return an image as tokens. Raises what the engine does, and EngineFailed if it ends."""
        with self._lock:
            self._number += 1
            try:
                reply = self._reply_to(_Question(self._number, distant(image)))
            except (EOFError, OSError):
                raise EngineFailed("the engine ended while it read an image: try again") from None
        if reply.error is not None:
            raise reply.error
        return list(reply.tokens)

    def close(self) -> None:
        """Close the connection, and let go of the process, whose descriptors go with it."""
        self._connection.close()
        self._end_process = lambda: None

    def _reply_to(self, question: _Question) -> _Reply:
        self._uncut(lambda: self._connection.send(question))
        while True:
            self._connection.poll(None)  # an interrupt here leaves a whole reply to be skipped
            reply: _Reply = self._uncut(self._connection.recv)
            if reply.number == question.number:
                return reply

    def _uncut(self, act: Callable[[], Result]) -> Result:
        """Send or receive a message; an interrupt, which may cut it, ends the process."""
        try:
            return act()
        except KeyboardInterrupt:
            self._end_process()
            raise


def answer(
    connection: Connection,
    tokens_of: Callable[[Image], list[int]],
    readable: Callable[[Exception], SpecchatError],
) -> None:
    """Answer questions in the process until the client is gone; `readable` is for any error."""
    with connection, suppress(EOFError, OSError, MemoryError):  # the client then sees its end
        while True:
            question: _Question = connection.recv()
            tokens, failure = list[int](), None
            try:
                tokens = tokens_of(question.image)
            except Exception as error:  # noqa: BLE001  # the client must receive every error
                failure = readable(error)
            connection.send(_Reply(question.number, tokens, failure))
