"""Passes connections on: llama.cpp's RPC backend listens and connects with IPv4 alone."""

import socket
import threading
from contextlib import suppress

from specchat.network.keep_alive import keep_alive

CHUNK = 1 << 18


class Relay:
    """Passes every connection to `listening` on to another address until it is closed."""

    def __init__(self, listening: socket.socket, host: str, port: int) -> None:
        """Take over a listening socket, and pass its connections on from a thread."""
        self._listening, self._host, self._port = listening, host, port
        self._clients: dict[int, str] = {}
        threading.Thread(target=self._accept, name="relay", daemon=True).start()

    @property
    def port(self) -> int:
        """The port to connect to."""
        return int(self._listening.getsockname()[1])

    def client_at(self, port: int) -> str | None:
        """Return which client the connection from a local port belongs to; None for no client."""
        return self._clients.get(port)

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
        """Copy bytes in both directions until one side has closed."""
        keep_alive(near)
        with near, suppress(OSError):
            far = self._connect(near)
            try:
                for sock in (near, far):
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                back = threading.Thread(target=_copy, args=(far, near), name="relay", daemon=True)
                back.start()
                _copy(near, far)
                back.join()
            finally:
                self._close(far)

    def _connect(self, near: socket.socket) -> socket.socket:
        """Connect to the other address; the client behind the connection is recorded before that.

        Raises OSError.
        """
        failure = OSError()
        for family, *_, socket_address in socket.getaddrinfo(
            self._host, self._port, type=socket.SOCK_STREAM
        ):
            far = socket.socket(family, socket.SOCK_STREAM)
            try:
                far.bind(("", 0))
                self._clients[far.getsockname()[1]] = str(near.getpeername()[0])
                far.connect(socket_address)
            except OSError as error:
                failure = error
                self._close(far)
            else:
                return far
        raise failure

    def _close(self, far: socket.socket) -> None:
        """Forget the connection's client, and close it."""
        self._clients.pop(far.getsockname()[1], None)
        far.close()


def _copy(source: socket.socket, target: socket.socket) -> None:
    buffer = bytearray(CHUNK)
    view = memoryview(buffer)
    with suppress(OSError):
        while size := source.recv_into(buffer):
            target.sendall(view[:size])
    for sock in (source, target):  # the other direction ends too
        with suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
