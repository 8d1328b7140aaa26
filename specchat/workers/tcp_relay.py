"""Passes connections on: llama.cpp's RPC backend listens and connects with IPv4 alone."""

import socket
import threading
from contextlib import suppress

CHUNK = 1 << 18
KEEP_ALIVE = {"TCP_KEEPIDLE": 15, "TCP_KEEPINTVL": 5, "TCP_KEEPCNT": 3}
"""After how many seconds a silent peer is asked, how often, and how many times in vain."""


def keep_alive(connection: socket.socket) -> None:
    """Let the system end a connection whose other machine is gone. Raises OSError."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEP_ALIVE.items():
        if hasattr(socket, name):
            connection.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


class Relay:
    """Connects whoever connects to `listening` with a place, until it is closed."""

    def __init__(self, listening: socket.socket, host: str, port: int) -> None:
        """Take over a listening socket, and pass its connections on from a thread."""
        self._listening, self._host, self._port = listening, host, port
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def port(self) -> int:
        """The port to connect to."""
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _accept(self) -> None:
        while True:
            try:
                near, _ = self._listening.accept()
            except OSError:  # it is closed
                return
            threading.Thread(target=self._join, args=(near,), name="relay", daemon=True).start()

    def _join(self, near: socket.socket) -> None:
        """Copy what both sides say until one of them is gone."""
        with near:
            try:
                far = socket.create_connection((self._host, self._port))
            except OSError:
                return
            with far:
                with suppress(OSError):
                    keep_alive(near)
                for each in (near, far):
                    each.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=_copy, args=(far, near), name="relay", daemon=True)
                back.start()
                _copy(near, far)
                back.join()


def _copy(source: socket.socket, target: socket.socket) -> None:
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    with suppress(OSError):
        while size := source.recv_into(buffer):
            target.sendall(view[:size])
    for each in (source, target):  # the other direction ends too
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)
