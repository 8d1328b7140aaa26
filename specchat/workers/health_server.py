"""The server of a worker's health: JSON over HTTP, from a few short-lived threads."""

import json
import secrets
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import TCPServer
from typing import Any

from specchat.workers.health import ALIVE, BYTES, REPORT, HealthReport

ID_BYTES = 8
REQUEST_SECONDS = 5.0
MOST_AT_ONCE = 16
BLOCK = bytes(1 << 18)
MOST_BLOCKS = 256


class HealthServer(ThreadingHTTPServer):
    """Answers what `specchat.workers.health` asks, until the process ends."""

    daemon_threads = True
    request_queue_size = MOST_AT_ONCE

    def __init__(
        self, family: int, place: tuple[Any, ...], report: Callable[[], HealthReport]
    ) -> None:
        """Bind a place of an address family; raises OSError."""
        self.address_family = family
        self.id, self.report = secrets.token_hex(ID_BYTES), report
        self._free = threading.Semaphore(MOST_AT_ONCE)
        super().__init__(place[:2], _Handler)

    def server_bind(self) -> None:
        """Bind without asking for this machine's name, which may take long."""
        TCPServer.server_bind(self)

    def start(self) -> None:
        """Answer from a thread."""
        threading.Thread(target=self.serve_forever, name="health", daemon=True).start()

    def process_request(self, request: Any, client_address: Any) -> None:
        """Answer on a thread, or not at all if too many wait."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        super().process_request(request, client_address)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer one request."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: the client is gone, or is none."""


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

        found: Any = {"id": self.server.id}
        if self.path == REPORT:
            found = {**msgspec.to_builtins(self.server.report()), **found}
        body = json.dumps(found).encode()
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
        """Say nothing."""
