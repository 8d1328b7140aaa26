"""The messages of llama.cpp's RPC protocol that specchat itself sends.

A request is the number of a command (1 byte), the size of its data (8 bytes) and the data; an
answer is a size and data. Everything is little-endian. One client is served at a time: others can
connect, but get no answer until the one before them is gone.
"""

import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import TypeAlias

from specchat.workers.timed_socket import TimedSocket

GET_DEVICE_MEMORY, HELLO, DEVICE_COUNT = 11, 14, 15
CAPABILITIES = bytes(24)
"""The client's transports besides TCP: none."""
VERSION_SIZE = 4 + len(CAPABILITIES)
MOST_DEVICES = 16
SPOKEN = (7, 0, 0)
"""The version of the protocol in the pinned release of llama.cpp (ggml-rpc.h)."""

RpcVersion: TypeAlias = tuple[int, int, int]


class NotRpc(Exception):
    """Raised when something answers that is not llama.cpp's RPC backend."""


@dataclass(frozen=True, slots=True)
class RpcMemory:
    """The bytes of a device, as a server reports them."""

    free: int
    total: int


@dataclass(frozen=True, slots=True)
class RpcConnection:
    """An open connection to a server; every method raises OSError and NotRpc."""

    stream: TimedSocket

    def hello(self) -> RpcVersion:
        """Return the server's version; the first thing to ask."""
        version = self._ask(HELLO, CAPABILITIES, VERSION_SIZE)
        return version[0], version[1], version[2]

    def count_devices(self) -> int:
        """Return how many devices the server offers."""
        (count,) = struct.unpack("<I", self._ask(DEVICE_COUNT, b"", 4))
        if not 0 < count <= MOST_DEVICES:
            raise NotRpc
        return int(count)

    def memory(self, device: int) -> RpcMemory:
        """Return the memory of a device, counted from 0."""
        answer = self._ask(GET_DEVICE_MEMORY, struct.pack("<I", device), 16)
        return RpcMemory(*struct.unpack("<QQ", answer))

    def _ask(self, command: int, data: bytes, size: int) -> bytes:
        self.stream.send(struct.pack("<BQ", command, len(data)) + data)
        (announced,) = struct.unpack("<Q", self._read(8))
        if announced != size:
            raise NotRpc
        return self._read(size)

    def _read(self, size: int) -> bytes:
        content = b""
        while len(content) < size:
            part = self.stream.receive(size - len(content))
            if not part:
                raise NotRpc
            content += part
        return content


@contextmanager
def rpc_connection(
    host: str, port: int, connect_seconds: float, seconds: float
) -> Iterator[RpcConnection]:
    """Yield a connection to a server that is used for some seconds; raises OSError."""
    with socket.create_connection((host, port), connect_seconds) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield RpcConnection(TimedSocket(peer, monotonic() + seconds))
