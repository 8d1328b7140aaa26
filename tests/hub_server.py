"""A hub on this machine for tests: the protocol of the real one, and whatever can go wrong with it.

It answers as the hub does: HEAD and GET of /org/repo/resolve/revision/file name the commit, the
size and the sha256, and send on to a storage at another address, which knows ranges and has tags of
its own.
"""

from __future__ import annotations

import hashlib
import json
import socket
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit


@dataclass
class Fault:
    """A fault of the next few answers to HEAD, GET or at the storage."""

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

    def __init__(self) -> None:
        """Begin without any repository."""
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
        self._lock = threading.Lock()
        self._servers = [_server(self, _HubHandler), _server(self, _StorageHandler)]

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
        return _address(self._servers[0])

    @property
    def storage(self) -> str:
        """The storage's address."""
        return _address(self._servers[1])

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
        """Say nothing."""

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
        headers = {"Content-Length": str(len(body)), **headers, **fault.headers}
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
        if self.path.startswith("/api/models/"):
            self._list()
            return
        if self.path.startswith("/api/models?"):
            self._search()
            return
        if "/resolve/" not in self.path:
            self.answer(404, {})
            return
        fault = self.hub.take_fault(self.command)
        if fault.status:
            self.answer(fault.status, {}, b"{}", fault)
            return
        names = urlsplit(self.path).path.lstrip("/").split("/")
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

    def _list(self) -> None:
        if self.hub.listing:
            self.hub.listing.wait(60)
        page = self.path.removesuffix("?recursive=true")
        if page in self.hub.lists:
            link = self.hub.links.get(page)
            headers = {"Link": f'<{link}>; rel="next"'} if link else {}
            self.answer(200, headers, self.hub.lists[page])
            return
        names = self.path.removeprefix("/api/models/").partition("/tree/")
        files = [
            {"type": "file", "path": file, "size": len(content), "oid": "",
             "lfs": {"oid": hashlib.sha256(content).hexdigest(), "size": len(content)}}
            for (repository, _, file), content in self.hub.files.items()
            if repository == names[0]
        ]  # fmt: skip
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
        if file in self.hub.small:  # kept in git itself, not in the storage
            head = f"blob {len(content)}\0".encode()
            etag = hashlib.sha1(head + content).hexdigest()  # noqa: S324 -- as git does
            self.answer(200, {"X-Repo-Commit": commit, "ETag": f'"{etag}"'}, content, fault)
            return
        sha256 = hashlib.sha256(content).hexdigest()
        headers = {
            "X-Repo-Commit": commit,
            "X-Linked-Size": str(len(content)),
            "X-Linked-ETag": f'"{sha256}"',
            "ETag": f'"{commit}"',
            "Location": f"{self.hub.storage}{urlsplit(self.path).path}?signed=1",
        }
        self.answer(302, headers, b"", fault)


class _StorageHandler(_Handler):
    """Has the bytes."""

    def do_GET(self) -> None:
        """Answer a GET, of a range if one is asked for."""
        self.note()
        fault = self.hub.take_fault("storage")
        if fault.status:
            self.answer(fault.status, {}, b"", fault)
            return
        names = self.path.partition("?")[0].lstrip("/").split("/")
        file = unquote("/".join(names[4:]))
        content = self.hub.files["/".join(names[:2]), unquote(names[3]), file]
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


def _server(hub: HubServer, kind: type[_Handler]) -> ThreadingHTTPServer:
    handler = type(kind.__name__, (kind,), {"hub": hub})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    return server


def _address(server: ThreadingHTTPServer) -> str:
    return f"http://127.0.0.1:{server.server_address[1]}"
