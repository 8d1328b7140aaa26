"""Proxies on this machine for tests, which send every connection on to one server.

They take any host for that server, so a test can name one that only a proxy could reach.
"""

from __future__ import annotations

import base64
import selectors
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

NAME = "hub.example"
"""A host that only a proxy can reach."""

DEADLINE_SECONDS = 30.0


@dataclass
class ProxyServer:
    """A proxy: what it was asked for, and how it answers."""

    target: tuple[str, int]
    login: str = ""
    """NAME:PASSWORD, where it wants a login."""

    refusal: bytes = b""
    """Where set, the status line of every answer."""

    asked: list[str] = field(default_factory=list)
    address: str = ""
    """The address without a scheme."""


@contextmanager
def proxying(target: str, kind: str = "http", **options: Any) -> Iterator[ProxyServer]:
    """Run an HTTP or SOCKS proxy ("socks5") before a server until `with` ends."""
    parts = urlsplit(target)
    proxy = ProxyServer((parts.hostname or "", parts.port or 0), **options)
    handler = type("Handler", (_Socks if kind == "socks5" else _Http,), {"proxy": proxy})
    server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    proxy.address = f"127.0.0.1:{server.server_address[1]}"
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield proxy
    finally:
        server.shutdown()
        server.server_close()


class _Handler(socketserver.StreamRequestHandler):
    """A connection of a client."""

    proxy: ProxyServer
    rbufsize = 0
    timeout = DEADLINE_SECONDS

    def handle(self) -> None:
        """Serve it until one side ends it."""
        with suppress(OSError):
            self.serve()

    def serve(self) -> None:
        """Answer the client, and connect it with the server."""

    def connect(self, first: bytes = b"", answer: bytes = b"") -> None:
        """Send bytes to the server and to the client, then all that either sends to the other."""
        with socket.create_connection(self.proxy.target, DEADLINE_SECONDS) as server:
            server.sendall(first)
            self.request.sendall(answer)
            others = {self.request: server, server: self.request}
            with selectors.DefaultSelector() as selector:
                for each in others:
                    selector.register(each, selectors.EVENT_READ)
                while ready := selector.select(DEADLINE_SECONDS):
                    for key, _ in ready:
                        source: Any = key.fileobj
                        content = source.recv(65536)
                        if not content:
                            return
                        others[source].sendall(content)


class _Http(_Handler):
    """A request for a whole URL, or CONNECT; the rest of the connection goes to the server."""

    def serve(self) -> None:
        lines = []
        while (line := self.rfile.readline()) not in {b"\r\n", b""}:
            lines.append(line.strip())
        method, target, _ = lines[0].decode().split()
        self.proxy.asked.append(f"{method} {target}")
        login = base64.b64encode(self.proxy.login.encode())
        given = [line.rpartition(b" ")[2] for line in lines if line.lower().startswith(b"proxy-a")]
        refusal = self.proxy.refusal
        if self.proxy.login and given != [login]:
            refusal = b"407 Proxy Authentication Required"
        if refusal:
            self.request.sendall(b"HTTP/1.1 " + refusal + b"\r\nContent-Length: 0\r\n\r\n")
        elif method == "CONNECT":
            self.connect(answer=b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            self.connect(b"\r\n".join([*lines, b"Connection: close", b"", b""]))


class _Socks(_Handler):
    """SOCKS 5 with CONNECT, as RFC 1928 and 1929 describe it."""

    def serve(self) -> None:
        _, num_methods = self.rfile.read(2)
        methods = self.rfile.read(num_methods)
        wanted = 2 if self.proxy.login else 0
        self.request.sendall(bytes([5, wanted if wanted in methods else 255]))
        if wanted not in methods or (self.proxy.login and not self._is_right()):
            return
        _, _, _, kind = self.rfile.read(4)
        length = {1: 4, 4: 16}.get(kind) or self.rfile.read(1)[0]
        host = self.rfile.read(length)
        port = int.from_bytes(self.rfile.read(2), "big")
        name = host.decode() if kind == 3 else str(host)
        self.proxy.asked.append(f"{name}:{port}")
        self.connect(answer=bytes([5, 0, 0, 1, 0, 0, 0, 0, 0, 0]))

    def _is_right(self) -> bool:
        self.rfile.read(1)
        words = [self.rfile.read(self.rfile.read(1)[0]).decode() for _ in range(2)]
        is_right = ":".join(words) == self.proxy.login
        self.request.sendall(bytes([1, 0 if is_right else 1]))
        return is_right
