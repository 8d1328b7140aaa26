"""A Python package index on this machine for tests, and the small wheels that it serves."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from io import BytesIO
from typing import Any

INFO = "small_model-1.0.dist-info"
WHEEL_NAME = "small_model-1.0-py3-none-any.whl"
CODE = "open('imported', 'w').close()\n"
"""What the package would do if anybody imported it."""


def write_wheel(files: Mapping[str, bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    """Return a wheel that pip accepts, with some files beside its code."""
    metadata = {
        "small_model/__init__.py": CODE.encode(),
        f"{INFO}/METADATA": b"Metadata-Version: 2.1\nName: small-model\nVersion: 1.0\n",
        f"{INFO}/WHEEL": b"Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    members = {**metadata, **files}
    rows = [f"{name},sha256={_digest(content)},{len(content)}" for name, content in members.items()]
    members[f"{INFO}/RECORD"] = "\n".join([*rows, f"{INFO}/RECORD,,", ""]).encode()
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", compression) as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return buffer.getvalue()


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


@dataclass
class IndexServer:
    """An index with one package, and the paths that were asked for."""

    address: str
    wheel: bytes = b""
    seen: list[str] = field(default_factory=list)
    gate: threading.Event | None = None
    """Until this is set, the second half of the wheel is held back."""


@contextmanager
def serving() -> Iterator[IndexServer]:
    """Serve an index until `with` ends."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Handler)
    server.daemon_threads = True
    index = IndexServer(f"http://127.0.0.1:{server.server_address[1]}/simple/")
    _Handler.index = index
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers as a simple index does."""

    index: IndexServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- as it is inherited
        """Log nothing."""

    def do_GET(self) -> None:
        """List the one wheel, or send it."""
        index = self.index
        index.seen.append(self.path)
        is_wheel = self.path.endswith(".whl")
        body = index.wheel if is_wheel else f'<a href="/{WHEEL_NAME}">{WHEEL_NAME}</a>'.encode()
        is_known = is_wheel or self.path == "/simple/small-model/"
        self.send_response(200 if is_known else 404)
        self.send_header("Content-Type", "text/html")
        self.send_header("Content-Length", str(len(body) if is_known else 0))
        self.end_headers()
        if not is_known:
            return
        half = len(body) // 2 if is_wheel and index.gate else len(body)
        try:
            self.wfile.write(body[:half])
            while half < len(body) and index.gate and not index.gate.is_set():
                time.sleep(0.01)
            self.wfile.write(body[half:])
        except OSError:
            self.close_connection = True
