"""A hub on this machine for tests: the protocol of the real one, and whatever can go wrong with it.

It answers as the hub does: HEAD and GET of /org/repo/resolve/revision/file name the commit, the
size and the sha256, and send on to a storage at another address, which knows ranges and has tags of
its own.
"""

from __future__ import annotations

import hashlib
import json
import socket
import ssl
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Fault:
    """A fault of the next few answers to HEAD, GET, at the storage or for a list."""

    on: str
    status: int | None = None
    headers: dict[str, str] = field(default_factory=dict)
    cut_at: int | None = None
    """Bytes of the answer, its head included, after which the connection ends."""

    cut_body_at: int | None = None
    flipped: int | None = None
    """The byte of the file that comes over wrong."""

    seconds_per_piece: float = 0.0
    gate: threading.Event | None = None
    """Until this is set, the second half of a slow answer comes byte by byte."""

    body: bytes | None = None
    """What comes in place of the body."""

    knows_ranges: bool = True
    more: bytes = b""
    times: int = 1


@dataclass(frozen=True)
class Seen:
    """A request that came."""

    method: str
    path: str
    range: str | None
    authorization: str | None
    agent: str | None


class HubServer:
    """A hub and its storage, each on a port of its own."""

    def __init__(self, host: str = "127.0.0.1", certificate: Path | None = None) -> None:
        """Begin without any repository; with a certificate and its key in a file, it speaks TLS."""
        self.files: dict[tuple[str, str, str], bytes] = {}
        self.branches: dict[str, str] = {}
        self.small: set[str] = set()
        self.faults: list[Fault] = []
        self.seen: list[Seen] = []
        self.num_sent = 0
        self.listing: threading.Event | None = None
        """Where set, a list of files waits for it."""
        self.lists: dict[str, bytes] = {}
        """What is answered instead of a list, by path with the query but "recursive"."""
        self.links: dict[str, str] = {}
        """The next page of a list, by the path of a page."""
        self.endless = False
        """Whether a list of files never ends."""
        self.left_out: set[str] = set()
        """Headers that this mirror leaves out, in small letters."""
        self.tag = '"{}"'
        """How it writes the tag of a file."""
        self.has_storage = True
        """Whether it sends on to the storage; otherwise it has the bytes itself."""
        self.has_api = True
        """Whether it lists the files and the commits of a repository."""
        self.root = ""
        """The path behind which it lies."""
        self.tokens: set[str] | None = None
        """Where set, a token that is not in it is refused."""
        self.refusal = {"X-Error-Message": "Invalid credentials in Authorization header"}
        self.page: bytes | None = None
        """Where set, every answer is this web page, as in a network that asks for a login."""
        self._certificate = certificate
        self._lock = threading.Lock()
        kinds = (_HubHandler, _StorageHandler)
        self._servers = [_server(self, kind, host, certificate) for kind in kinds]

    def __enter__(self) -> Self:
        """Begin to answer."""
        for server in self._servers:
            threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop answering."""
        for server in self._servers:
            server.shutdown()
            server.server_close()

    @property
    def address(self) -> str:
        """The hub's address, for HF_ENDPOINT."""
        return self._address(0)

    @property
    def storage(self) -> str:
        """The storage's address."""
        return self._address(1)

    def _address(self, number: int) -> str:
        host, port = self._servers[number].server_address[:2]
        shown = f"[{host!s}]" if ":" in str(host) else host
        return f"http{'s' if self._certificate else ''}://{shown!s}:{port}"

    def put(self, repository: str, file: str, content: bytes, commit: str = "") -> str:
        """Commit a file to a repository's main branch and return the commit."""
        commit = commit or hashlib.sha1(content + file.encode()).hexdigest()  # noqa: S324 -- a name
        self.files[repository, commit, file] = content
        self.branches[repository] = commit
        return commit

    def take_fault(self, on: str) -> Fault:
        """Return what goes wrong with this answer."""
        with self._lock:
            for fault in self.faults:
                if fault.on == on and fault.times:
                    fault.times -= 1
                    return fault
        return Fault("")

    def note(self, seen: Seen) -> None:
        """Remember a request."""
        with self._lock:
            self.seen.append(seen)

    def count(self, num_bytes: int) -> None:
        """Count bytes of files that went out."""
        with self._lock:
            self.num_sent += num_bytes


class _Handler(BaseHTTPRequestHandler):
    """What both have in common: an answer that can go wrong at any byte."""

    protocol_version = "HTTP/1.1"
    hub: HubServer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 -- as it is inherited
        """Log nothing."""

    def note(self) -> None:
        """Remember the request."""
        headers = self.headers
        self.hub.note(
            Seen(
                self.command,
                self.path,
                headers.get("Range"),
                headers.get("Authorization"),
                headers.get("User-Agent"),
            )
        )

    def answer(
        self, status: int, headers: dict[str, str], body: bytes = b"", fault: Fault | None = None
    ) -> None:
        """Send an answer, as far as the fault lets it."""
        fault = fault or Fault("")
        body = body if fault.body is None else fault.body
        headers = {"Content-Length": str(len(body)), **headers, **fault.headers}
        left_out = self.hub.left_out
        headers = {name: text for name, text in headers.items() if name.lower() not in left_out}
        lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        head = "\r\n".join([*lines, "", ""]).encode()
        whole = head + (b"" if self.command == "HEAD" else body)
        cut = fault.cut_at
        if fault.cut_body_at is not None:
            cut = len(head) + fault.cut_body_at
        sent = whole if cut is None else whole[:cut]
        piece = max(1, len(sent) // 50 if fault.seconds_per_piece else len(sent))
        if self.command == "GET" and status in {200, 206}:
            self.hub.count(max(0, len(sent) - len(head)))
        try:
            start = 0
            while start < len(sent):
                is_held = fault.gate and start > len(sent) // 2 and not fault.gate.is_set()
                end = start + 1 if is_held else start + piece
                self.wfile.write(sent[start:end])
                start = end
                time.sleep(fault.seconds_per_piece)
        except OSError:
            self.close_connection = True
        if cut is not None:
            self.close_connection = True
            self.connection.shutdown(socket.SHUT_WR)


class _HubHandler(_Handler):
    """Lists files and redirects to the storage."""

    def do_HEAD(self) -> None:
        """Answer a HEAD."""
        self._resolve()

    def do_GET(self) -> None:
        """Answer a GET."""
        self._resolve()

    def _resolve(self) -> None:
        self.note()
        if self.hub.page is not None:
            self.answer(200, {"Content-Type": "text/html; charset=utf-8"}, self.hub.page)
            return
        token = (self.headers.get("Authorization") or "").removeprefix("Bearer ")
        if token and self.hub.tokens is not None and token not in self.hub.tokens:
            self.answer(401, self.hub.refusal)
            return
        if "/api/models" in self.path:
            (self._describe if "/api/models/" in self.path else self._search)()
            return
        if "/resolve/" not in self.path:
            self.answer(404, {})
            return
        fault = self.hub.take_fault(self.command)
        if fault.status:
            self.answer(fault.status, {}, b"{}", fault)
            return
        path = urlsplit(self.path).path.removeprefix(self.hub.root)
        names = path.lstrip("/").split("/")
        repository, revision, file = "/".join(names[:2]), unquote(names[3]), "/".join(names[4:])
        if repository not in self.hub.branches:
            self.answer(401, {"X-Error-Code": "RepoNotFound"})
            return
        commit = self.hub.branches[repository] if revision == "main" else revision
        if not any(key[:2] == (repository, commit) for key in self.hub.files):
            self.answer(404, {"X-Error-Code": "RevisionNotFound"})
            return
        content = self.hub.files.get((repository, commit, unquote(file)))
        if content is None:
            self.answer(404, {"X-Error-Code": "EntryNotFound", "X-Repo-Commit": commit})
            return
        self._send_on(commit, content, file, fault)

    def _describe(self) -> None:
        repository, _, rest = self.path.partition("/api/models/")[2].partition("/revision/")
        if not self.hub.has_api or (rest and repository not in self.hub.branches):
            self.answer(404, {})
        elif rest:
            self.answer(200, {}, json.dumps({"sha": self.hub.branches[repository]}).encode())
        else:
            self._list()

    def _list(self) -> None:
        if self.hub.listing:
            self.hub.listing.wait(60)
        fault = self.hub.take_fault("list")
        if fault.status:
            self.answer(fault.status, {}, b"{}", fault)
            return
        page = self.path.removesuffix("?recursive=true")
        if page in self.hub.lists:
            link = self.hub.links.get(page)
            headers = {"Link": f'<{link}>; rel="next"'} if link else {}
            self.answer(200, headers, self.hub.lists[page])
            return
        names = self.path.removeprefix("/api/models/").partition("/tree/")
        files = [
            {"type": "file", "path": file, "size": len(content), "oid": "", "lfs": _large(content)}
            for (repository, _, file), content in self.hub.files.items()
            if repository == names[0]
        ]
        if names[0] not in self.hub.branches and not self.hub.endless:
            self.answer(401, {"X-Error-Code": "RepoNotFound"})
            return
        kind = {"Content-Type": "application/json"}
        if not self.hub.endless:
            self.answer(200, kind, json.dumps(files).encode())
            return
        self.answer(200, {**kind, "Content-Length": str(1 << 40)}, b"[")
        with suppress(OSError):
            while True:
                self.wfile.write(b" " * 65536)

    def _search(self) -> None:
        query = {key: values[0] for key, values in parse_qs(urlsplit(self.path).query).items()}
        found = [
            {"id": name}
            for name in self.hub.branches
            if name.startswith(f"{query['author']}/") and query["search"].lower() in name.lower()
        ]
        self.answer(200, {"Content-Type": "application/json"}, json.dumps(found).encode())

    def _send_on(self, commit: str, content: bytes, file: str, fault: Fault) -> None:
        path = urlsplit(self.path).path.removeprefix(self.hub.root)
        if file in self.hub.small:  # kept in git itself, not in the storage
            head = f"blob {len(content)}\0".encode()
            etag = hashlib.sha1(head + content).hexdigest()  # noqa: S324 -- as git does
            self.answer(200, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}, content, fault)
            return
        sha256 = hashlib.sha256(content).hexdigest()
        if not self.hub.has_storage:
            tagged = {"X-Repo-Commit": commit, "ETag": self.hub.tag.format(sha256)}
            self.answer(200, tagged, content, fault)
            return
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(len(content)),
            "X-Linked-ETag": self.hub.tag.format(sha256),
            "ETag": f'"{commit}"',
            "Location": f"{self.hub.storage}{path}?signed=1",
        }
        self.answer(302, headers, b"", fault)


class _StorageHandler(_Handler):
    """Has the bytes."""

    def do_HEAD(self) -> None:
        """Answer a HEAD."""
        self.do_GET()

    def do_GET(self) -> None:
        """Answer a GET, of a range if one is asked for."""
        self.note()
        fault = self.hub.take_fault("storage")
        if fault.status:
            self.answer(fault.status, {}, b"", fault)
            return
        names = self.path.partition("?")[0].lstrip("/").split("/")
        repository, revision = "/".join(names[:2]), unquote(names[3])
        commit = self.hub.branches[repository] if revision == "main" else revision
        content = self.hub.files[repository, commit, unquote("/".join(names[4:]))]
        if fault.flipped is not None:
            at = fault.flipped
            content = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        first, _, last = (self.headers.get("Range") or "bytes=0-")[6:].partition("-")
        start, end = int(first), min(int(last or len(content)), len(content) - 1) + 1
        if not self.headers.get("Range") or not fault.knows_ranges:
            self.answer(200, {"ETag": '"of-the-storage"'}, content + fault.more, fault)
        elif start >= len(content):
            self.answer(416, {"Content-Range": f"bytes */{len(content)}"})
        else:
            content_range = f"bytes {start}-{end - 1}/{len(content)}"
            self.answer(206, {"Content-Range": content_range}, content[start:end], fault)


def _large(content: bytes) -> dict[str, Any]:
    """Return what a list of files says of one that lies in the storage."""
    return {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}


class _IPv6Server(ThreadingHTTPServer):
    """Listens on an IPv6 address."""

    address_family = socket.AF_INET6


def _server(
    hub: HubServer, kind: type[_Handler], host: str, certificate: Path | None
) -> ThreadingHTTPServer:
    handler = type(kind.__name__, (kind,), {"hub": hub})
    server = (_IPv6Server if ":" in host else ThreadingHTTPServer)((host, 0), handler)
    server.daemon_threads = True
    if certificate:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(certificate)
        server.socket = context.wrap_socket(
            server.socket, server_side=True, do_handshake_on_connect=False
        )
    return server
