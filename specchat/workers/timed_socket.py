"""A connection on which every wait ends at a deadline."""

import socket
from dataclasses import dataclass
from time import monotonic


@dataclass(frozen=True, slots=True)
class TimedSocket:
    """An open connection with a deadline, a moment of `monotonic`.

    Every method raises OSError, which is TimeoutError after the deadline.
    """

    peer: socket.socket
    deadline: float

    def send(self, data: bytes) -> None:
        """Send all of some bytes."""
        self._set_timeout()
        self.peer.sendall(data)

    def receive(self, limit: int) -> bytes:
        """Return the bytes that come next, up to a limit; none at the end."""
        self._set_timeout()
        return self.peer.recv(limit)

    def _set_timeout(self) -> None:
        left = self.deadline - monotonic()
        if left <= 0:
            raise TimeoutError
        self.peer.settimeout(left)
