"""The server of a worker's health: JSON over HTTP, from a few short-lived threads."""

import json
import secrets
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from time import monotonic
from typing import Any

from specchat.workers.health import ALIVE, BYTES, REPORT, HealthReport

ID_BYTES = 8
REQUEST_SECONDS = 5.0
"""How long a request may take from its first byte to the last one of its answer."""
MOST_AT_ONCE = 16
BLOCK = bytes(1 << 18)
MOST_BLOCKS = 256


@dataclass(frozen=True, slots=True)
class _Request:
    """A connection and the time of `monotonic` at which it was accepted."""

    connection: socket.socket
    began: float


def _end(connection: socket.socket) -> None:
    """End what is read from a connection and written to it; its thread closes it."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)


class HealthServer(ThreadingHTTPServer):
    """Answers what `specchat.workers.health` asks, until the process ends."""

    daemon_threads = True
    request_queue_size = MOST_AT_ONCE

    def __init__(
        self, family: int, address: tuple[Any, ...], report: Callable[[], HealthReport]
    ) -> None:
        """Bind an address of an address family. Raises OSError."""
        self.address_family = family
        self.id, self.report = secrets.token_hex(ID_BYTES), report
        self._begun: list[_Request] = []
        self._lock = threading.Lock()
        super().__init__(address[:2], _Handler)

    def server_bind(self) -> None:
        """Bind without asking for this machine's name, which may take long."""
        TCPServer.server_bind(self)

    def start(self) -> None:
        """Answer from a thread."""
        threading.Thread(target=self.serve_forever, name="health", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread; end the oldest request if there are too many."""
        with self._lock:
            if len(self._begun) >= MOST_AT_ONCE:
                _end(self._begun.pop(0).connection)
            self._begun.append(_Request(request, monotonic()))
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            with self._lock:
                self._begun = [begun for begun in self._begun if begun.connection is not request]

    def service_actions(self) -> None:
        """End the requests that take too long, however many bytes still come."""
        latest = monotonic() - REQUEST_SECONDS
        with self._lock:
            while self._begun and self._begun[0].began < latest:
                _end(self._begun.pop(0).connection)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: the client has left, or never was one."""


class _Handler(BaseHTTPRequestHandler):
    server: HealthServer
    timeout = REQUEST_SECONDS
    server_version, sys_version = "specchat", ""

    def do_GET(self) -> None:  # the name that http.server calls
        """Answer a request."""
        if self.path == BYTES:
            self._send_bytes()
            return
        if self.path not in {ALIVE, REPORT}:
            self.send_error(404)
            return
        import msgspec

        content: Any = {"id": self.server.id}
        if self.path == REPORT:
            content = {**msgspec.to_builtins(self.server.report()), **content}
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _send_bytes(self) -> None:
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):  # it has enough
            for _ in range(MOST_BLOCKS):
                self.wfile.write(BLOCK)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""
