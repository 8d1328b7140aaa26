"""The bytes of images, which an engine's process asks its client for when it needs them.

The process keeps what it makes of an image by the image's digest, so the bytes go to it once.
"""

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import chain
from multiprocessing.connection import Connection

from specchat.errors import EngineFailed, SpecchatError
from specchat.images.image import Image, distant


class LentImages:
    """The images of what an engine's process is asked for, and a thread that gives their bytes."""

    def __init__(self, connection: Connection) -> None:
        """Start the thread, which ends with the process and closes the connection."""
        self._lent: dict[object, Sequence[Image]] = {}
        # the thread must not hold this object, which is let go of with the engine
        arguments = connection, self._lent
        self._thread = threading.Thread(target=_give, args=arguments, daemon=True)
        self._thread.start()

    @contextmanager
    def during(self, images: Sequence[Image]) -> Iterator[None]:
        """Lend images for as long as the process may need them; any thread may."""
        self._lent[question := object()] = images
        try:
            yield
        finally:
            del self._lent[question]

    def wait(self, seconds: float) -> None:
        """Wait some seconds for the thread, once the process has ended."""
        self._thread.join(seconds)


def _give(connection: Connection, lent: Mapping[object, Sequence[Image]]) -> None:
    """Send the bytes of images, or why there are none, until the process has ended."""
    with connection, suppress(EOFError, OSError):
        while True:
            connection.send(_bytes_of(connection.recv(), tuple(lent.values())))


def _bytes_of(digest: bytes, lent: Sequence[Sequence[Image]]) -> bytes | SpecchatError:
    for image in chain.from_iterable(lent):
        if image.digest == digest:
            try:
                return image.data
            except SpecchatError as error:
                return error
            except Exception as error:  # noqa: BLE001  # a class of the user's may raise anything
                return EngineFailed(f"{image.name} cannot be read: {error}")
    return EngineFailed("the question about an image was given up")


class BorrowedImages:
    """Images in the engine's process, whose bytes any of its threads may ask for."""

    def __init__(self, connection: Connection) -> None:
        """Ask through a connection."""
        self._connection = connection
        self._lock = threading.Lock()

    def of(self, image: Image) -> Image:
        """Return an image that came without its bytes as one whose bytes can be read."""
        return distant(image, self._read)

    def _read(self, digest: bytes) -> bytes:
        with self._lock:
            self._connection.send(digest)
            reply: bytes | SpecchatError = self._connection.recv()
        if isinstance(reply, SpecchatError):
            raise reply
        return reply
