"""Requests sent byte by byte, as no client's library would."""

from __future__ import annotations

import socket
from contextlib import closing, suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

SECONDS = 30


@dataclass(frozen=True)
class Reply:
    """An answer: its status, headers by lower-case name, and body."""

    status: int
    headers: dict[str, str]
    body: bytes


def connect(address: str) -> socket.socket:
    """Return a connection to a server."""
    parts = urlsplit(address)
    return socket.create_connection((parts.hostname, parts.port or 80), SECONDS)


def exchange(address: str, data: bytes, *, rest: bytes = b"") -> Reply:
    """Send a request and read the reply; `rest` is sent only until the server has had enough."""
    with closing(connect(address)) as connection:
        connection.sendall(data)
        with suppress(ConnectionError):  # the server does not want more, and has answered
            connection.sendall(rest)
        return read_reply(connection)


def read_reply(connection: socket.socket) -> Reply:
    """Read one reply that has a length or ends with the connection."""
    received = b""
    while b"\r\n\r\n" not in received:
        part = connection.recv(65536)
        if not part:
            raise ConnectionError(f"closed after {received!r}")
        received += part
    head, _, body = received.partition(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").split("\r\n")
    headers = {
        name.lower(): text.strip() for name, _, text in (line.partition(":") for line in lines)
    }
    length = int(headers.get("content-length", -1))
    while length < 0 or len(body) < length:
        part = connection.recv(65536)
        if not part:
            break
        body += part
    return Reply(int(first.split()[1]), headers, body)
