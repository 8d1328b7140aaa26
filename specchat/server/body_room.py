"""Receives the bodies of requests, as many at once as there is room for."""

from collections.abc import AsyncIterable, AsyncIterator
from contextlib import asynccontextmanager

from specchat.server.guard import LARGEST_BODY
from specchat.sharing.tickets import QueueFull

MOST_BODIES = 256
MOST_BYTES = 4 * LARGEST_BODY
SMALL_BODY = 2**18
"""Bytes that a body may have however many others there are: most conversations have fewer, and are
not held up by the images and files of others."""


class BodyRoom:
    """The bodies that are being sent or read, which may never be sent to their end."""

    def __init__(self) -> None:
        """Begin with none."""
        self._count = self._num_bytes = 0

    @asynccontextmanager
    async def body(self, parts: AsyncIterable[bytes]) -> AsyncIterator[bytearray]:
        """Receive a body, and keep its room while it is read. Raises QueueFull."""
        if self._count >= MOST_BODIES:
            raise QueueFull(f"{self._count} requests are being sent: try again later")
        self._count += 1
        received = bytearray()  # not its parts: malloc would keep small blocks
        try:
            async for part in parts:
                received += part
                self._num_bytes += len(part)
                if len(received) > SMALL_BODY and self._num_bytes > MOST_BYTES:
                    raise QueueFull(
                        f"the requests that are being sent have {MOST_BYTES >> 20} MiB: try again"
                        " later"
                    )
            yield received
        finally:
            self._count -= 1
            self._num_bytes -= len(received)
