"""A server for tests that answers by a script, and whatever can go wrong between it and a client.

It listens on 127.0.0.1, with or without TLS, or on a Unix socket. What it answers comes from a
recording of a real server or from the test itself; what it is asked is kept.
"""

from __future__ import annotations

import json
import select
import shutil
import socket
import socketserver
import ssl
import struct
import subprocess
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias
from urllib.parse import urlsplit

Piece: TypeAlias = bytes | float | threading.Event
"""Bytes of a body, or what comes between them: seconds to wait, or an event to wait for."""

Framing: TypeAlias = Literal["chunked", "length", "close"]
Ending: TypeAlias = Literal["whole", "cut", "reset", "stall", "stale"]

JSON = {"Content-Type": "application/json"}
HTML = {"Content-Type": "text/html"}
EVENTS = {"Content-Type": "text/event-stream"}
DONE = b"data: [DONE]\n\n"
POLL_SECONDS = 0.01
DEADLINE_SECONDS = 30.0
"""How long anything waits before the test fails; nothing takes that long."""


@dataclass(frozen=True)
class Answer:
    """An answer: status, headers, the pieces of its body, and how it ends.

    `framing` tells the client where the body ends: by chunks, by its length, or by closing the
    connection. `ending`: whole; cut in the middle, by closing or by resetting the connection;
    stalled, where nothing follows until the client leaves; or stale, where the body is whole and
    the connection then closes without a word, although the client may keep it open.
    """

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    pieces: Sequence[Piece] = ()
    framing: Framing = "length"
    ending: Ending = "whole"

    @property
    def body(self) -> bytes:
        """All bytes of the body."""
        return b"".join(piece for piece in self.pieces if isinstance(piece, bytes))

    def cut(self, num_pieces: int, ending: Ending = "cut") -> Answer:
        """Return the answer as it is if the connection ends after some pieces of bytes."""
        kept, left = list[Piece](), num_pieces
        for piece in self.pieces:
            if isinstance(piece, bytes) and not left:
                break
            left -= isinstance(piece, bytes)
            kept.append(piece)
        return replace(self, pieces=kept, ending=ending)

    def hold(self, num_pieces: int, gate: threading.Event) -> Answer:
        """Return the answer as it is if it waits for `gate` after some pieces of bytes."""
        start = self.cut(num_pieces).pieces
        return replace(self, pieces=[*start, gate, *self.pieces[len(start) :]])

    def in_pieces(self, size: int) -> Answer:
        """Return the answer in pieces of a size, whatever characters and lines they break."""
        body = self.body
        return replace(self, pieces=[body[at : at + size] for at in range(0, len(body), size)])

    def with_bytes(self, change: Callable[[bytes], bytes]) -> Answer:
        """Return the answer with each piece of bytes changed."""
        changed = [change(piece) if isinstance(piece, bytes) else piece for piece in self.pieces]
        return replace(self, pieces=changed)


def json_answer(value: Any, status: int = 200, **headers: str) -> Answer:
    """Return an answer with JSON; `Retry_After="1"` makes the header Retry-After."""
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return Answer(status, {**JSON, **named}, [json.dumps(value).encode()])


def text_answer(text: str, status: int = 200, kind: str = "text/plain") -> Answer:
    """Return an answer with a text."""
    return Answer(status, {"Content-Type": kind}, [text.encode()])


def event_answer(events: Iterable[Any], *, is_done: bool = True) -> Answer:
    """Return a stream: bytes, floats and threading events as they are, all else as JSON."""
    pieces: list[Piece] = [
        event
        if isinstance(event, bytes | float | threading.Event)
        else b"data: " + json.dumps(event).encode() + b"\n\n"
        for event in events
    ]
    return Answer(200, EVENTS, [*pieces, DONE] if is_done else pieces, "chunked")


@dataclass(frozen=True)
class Seen:
    """A request that came; header names in lower case."""

    method: str
    target: str
    """As it was asked for: a path, or a whole URL if the client takes the server for a proxy."""
    headers: Mapping[str, str]
    body: bytes

    @property
    def path(self) -> str:
        """The path without the query."""
        return urlsplit(self.target).path

    def json(self) -> Any:
        """Return the body, decoded."""
        return json.loads(self.body)


@dataclass
class Route:
    """Answers for requests whose method, path and body fit; the last answer is for all others.

    `wanted` maps fields of the body, such as `stream_options.include_usage`, to their values;
    None is a field that is absent.
    """

    method: str
    path: str
    answers: list[Answer]
    wanted: Mapping[str, Any] = field(default_factory=dict)

    def fits(self, seen: Seen) -> bool:
        """Return True for a request that this answers."""
        if (seen.method, seen.path) != (self.method, self.path):
            return False
        if not self.wanted:
            return True
        with suppress(ValueError):
            body = seen.json()
            return all(_field(body, name) == value for name, value in self.wanted.items())
        return False

    def take(self) -> Answer:
        """Return the next answer."""
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]


def _field(body: Any, name: str) -> Any:
    for part in name.split("."):
        body = body.get(part) if isinstance(body, dict) else None
    return body


class ScriptedServer:
    """A server that answers by a script while `with` lasts.

    With a `certificate`, a file with a key and a certificate, it speaks TLS; with `unix` it listens
    at that path instead of a port.
    """

    def __init__(
        self,
        routes: Iterable[Route] = (),
        *,
        otherwise: Answer | None = None,
        certificate: Path | None = None,
        unix: Path | None = None,
    ) -> None:
        """Bind the address. `otherwise` is the answer to requests that no route fits."""
        self.seen: list[Seen] = []
        self.left: list[Seen] = []
        """Requests whose client went away before the answer was whole."""
        self.num_connections = 0
        self._routes = [replace(route, answers=list(route.answers)) for route in routes]
        self._otherwise = otherwise or json_answer({"detail": "Not Found"}, 404)
        self._changed = threading.Condition()
        self.stopped = threading.Event()
        self.certificate = certificate
        self._unix = unix
        handler = type("Handler", (_Handler,), {"server_of_test": self})
        place: Any = str(unix) if unix else ("127.0.0.1", 0)
        self._server = (_UnixServer if unix else _Server)(place, handler)

    def __enter__(self) -> Self:
        """Begin to answer."""
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop, also where an answer waits."""
        self.stopped.set()
        self._server.shutdown()
        self._server.server_close()

    @property
    def address(self) -> str:
        """The address, without a path."""
        if self._unix:
            return f"unix:{self._unix}"
        scheme = "https" if self.certificate else "http"
        return f"{scheme}://127.0.0.1:{self._server.server_address[1]}"

    def put(self, method: str, path: str, *answers: Answer, **wanted: Any) -> None:
        """Answer requests in this way from now on, before all other routes.

        `put("POST", "/v1/chat/completions", answer, stream=True)` is for streams alone.
        """
        with self._changed:
            self._routes.insert(0, Route(method, path, list(answers), wanted))

    def asked(self, path: str) -> list[Seen]:
        """Return the requests for a path, so far."""
        with self._changed:
            return [seen for seen in self.seen if seen.path == path]

    def wait_until_asked(self, path: str, times: int = 1) -> Seen:
        """Return the last request for a path, once there were so many."""
        return self._wait(lambda: [seen for seen in self.seen if seen.path == path], times)

    def wait_until_left(self, path: str) -> Seen:
        """Return a request whose client went away before the answer was whole."""
        return self._wait(lambda: [seen for seen in self.left if seen.path == path], 1)

    def _wait(self, found: Callable[[], list[Seen]], times: int) -> Seen:
        with self._changed:
            came = self._changed.wait_for(lambda: len(found()) >= times, DEADLINE_SECONDS)
            assert came, f"asked so far: {[seen.target for seen in self.seen]}"
            return found()[-1]

    def note(self, seen: Seen) -> Answer:
        """Keep a request and return its answer."""
        with self._changed:
            self.seen.append(seen)
            self._changed.notify_all()
            route = next((route for route in self._routes if route.fits(seen)), None)
            return route.take() if route else self._otherwise

    def note_left(self, seen: Seen) -> None:
        """Keep a request whose client went away."""
        with self._changed:
            self.left.append(seen)
            self._changed.notify_all()

    def note_connection(self) -> None:
        """Count a connection."""
        with self._changed:
            self.num_connections += 1


class _Server(socketserver.ThreadingTCPServer):
    """Listens on a port."""

    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 64


class _UnixServer(_Server):
    """Listens at a path."""

    address_family = getattr(socket, "AF_UNIX", socket.AF_INET)
    allow_reuse_address = False


class _ClientLeft(Exception):
    """Raised where the client has gone, or the test has ended."""


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    protocol_version = "HTTP/1.1"
    server_of_test: ScriptedServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- as it is inherited
        """Log nothing."""

    def setup(self) -> None:
        """Begin TLS, in this thread: a client that fails at it holds up no other."""
        self.server_of_test.note_connection()
        if self.server_of_test.certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.server_of_test.certificate)
            self.request.settimeout(DEADLINE_SECONDS)
            self.request = context.wrap_socket(
                self.request, server_side=True, do_handshake_on_connect=False
            )
        super().setup()

    def handle(self) -> None:
        """Answer requests until the client has no more, or cannot be talked to."""
        with suppress(OSError, _ClientLeft):
            if isinstance(self.connection, ssl.SSLSocket):
                self.connection.do_handshake()
            super().handle()

    def finish(self) -> None:
        """Close, although the client may have closed before."""
        with suppress(OSError):
            super().finish()
        if isinstance(self.connection, ssl.SSLSocket):  # socketserver knows only what is under it
            self.connection.close()

    def do_GET(self) -> None:
        """Answer a GET."""
        self._answer()

    def do_HEAD(self) -> None:
        """Answer a HEAD."""
        self._answer()

    def do_POST(self) -> None:
        """Answer a POST."""
        self._answer()

    def do_CONNECT(self) -> None:
        """Refuse to be a proxy, but keep that it was asked."""
        self._answer()

    def _answer(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        headers = {name.lower(): text for name, text in self.headers.items()}
        seen = Seen(self.command, self.path, headers, body)
        answer = self.server_of_test.note(seen)
        try:
            self._send(answer)
        except (OSError, _ClientLeft):
            self.server_of_test.note_left(seen)
            self.close_connection = True

    def _send(self, answer: Answer) -> None:
        has_body = self.command != "HEAD"
        self._send_head(answer)
        for piece in answer.pieces if has_body else ():
            if not isinstance(piece, bytes):
                self._pause(piece)
            elif answer.framing == "chunked":
                self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if piece else b"")
            else:
                self._write(piece)
        if answer.ending == "stall":
            self._pause(threading.Event())
        elif answer.ending in {"cut", "reset"}:
            self.close_connection = True
            if answer.ending == "reset":
                self._reset()
        elif answer.framing == "chunked" and has_body:
            self._write(b"0\r\n\r\n")
        if answer.framing == "close" or answer.ending == "stale":
            self.close_connection = True

    def _send_head(self, answer: Answer) -> None:
        status = answer.status
        phrase = HTTPStatus(status).phrase if status in set(HTTPStatus) else "Unknown"
        headers = dict(answer.headers)
        if answer.framing == "chunked":
            headers["Transfer-Encoding"] = "chunked"
        elif answer.framing == "close":
            headers["Connection"] = "close"
        else:
            # more than is sent, if the connection is to be cut
            length = len(answer.body) + (answer.ending in {"cut", "reset", "stall"})
            headers.setdefault("Content-Length", str(length))
        lines = [f"HTTP/1.1 {status} {phrase}"]
        lines += [f"{name}: {text}" for name, text in headers.items()]
        self._write("\r\n".join([*lines, "", ""]).encode("latin-1"))

    def _write(self, data: bytes) -> None:
        self.connection.sendall(data)

    def _pause(self, until: float | threading.Event) -> None:
        """Wait. Raises _ClientLeft as soon as the client goes away or the test ends."""
        end = time.monotonic() + (until if isinstance(until, float) else DEADLINE_SECONDS)
        while time.monotonic() < end:
            if isinstance(until, threading.Event) and until.is_set():
                return
            if self.server_of_test.stopped.is_set() or self._is_left():
                raise _ClientLeft
            time.sleep(POLL_SECONDS)

    def _is_left(self) -> bool:
        if isinstance(self.connection, ssl.SSLSocket):  # it has no MSG_PEEK
            return False
        readable, _, _ = select.select([self.connection], [], [], 0)
        return bool(readable) and not self.connection.recv(1, socket.MSG_PEEK)

    def _reset(self) -> None:
        """Close without the usual goodbye: the client's next read fails."""
        linger = struct.pack("ii", 1, 0)
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        self.rfile.close()  # it keeps the socket open; `wfile` does not, and is still flushed
        self.connection.close()


def write_certificate(folder: Path) -> Path | None:
    """Write a self-signed certificate for 127.0.0.1 and its key into one file and return its path.

    Returns None where the program openssl is missing.
    """
    if shutil.which("openssl") is None:
        return None
    key, certificate, both = (folder / name for name in ("key.pem", "one.pem", "server.pem"))
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
    command += ["-keyout", str(key), "-out", str(certificate), "-subj", "/CN=127.0.0.1"]
    command += ["-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost"]
    subprocess.run(command, check=True, capture_output=True)
    both.write_bytes(key.read_bytes() + certificate.read_bytes())
    return both
