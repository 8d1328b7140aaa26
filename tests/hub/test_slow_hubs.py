"""Hubs that send a byte now and then: what was asked for fails in time, and no connection stays."""

from __future__ import annotations

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import httpx2
import pytest

from catalogue_files import FILE
from certificate_authority import Authority
from specchat.errors import DownloadFailed
from specchat.hub import client, listing
from specchat.hub.client import find
from specchat.hub.listing import answer_soon, files_soon, list_files, list_repositories

LIST = json.dumps([{"path": "m.gguf", "size": 5000, "id": "org/m"}]).encode()
HEAD = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\nX-Repo-Commit: " + b"c" * 40 + b"\r\n"
NUM_BYTES, SECONDS = 60, 0.1
"""The whole answer comes in the end, in six seconds: who waits for it gets it."""


@dataclass
class SlowHub:
    """A server that sends the middle of each answer byte by byte."""

    address: str
    sent: bytes
    before: int
    context: ssl.SSLContext | None = None
    given_up: threading.Event = field(default_factory=threading.Event)
    """Set once a client closes its connection before the end."""
    over: threading.Event = field(default_factory=threading.Event)

    def answer(self, connection: socket.socket) -> None:
        """Answer one request."""
        try:
            if self.context:
                connection = self.context.wrap_socket(connection, server_side=True)
            connection.recv(65536)
            connection.sendall(self.sent[: self.before])
            for place in range(self.before, len(self.sent)):
                self.over.wait(SECONDS)
                connection.sendall(self.sent[place : place + 1])
        except OSError:
            self.given_up.set()
        finally:
            connection.close()


@contextmanager
def slow_hub(where: str, context: ssl.SSLContext | None = None) -> Iterator[SlowHub]:
    """Run a hub that is slow within the head or the body of its answers."""
    head, body = HEAD % (len(LIST) + NUM_BYTES * (where == "body")), LIST
    slow = b"X: " + b"a" * NUM_BYTES + b"\r\n" if where == "head" else b"\r\n" + b" " * NUM_BYTES
    sent = head + slow + (b"\r\n" if where == "head" else b"") + body
    before = len(head) + 2
    with socket.create_server(("127.0.0.1", 0)) as listener:
        scheme = "https" if context else "http"
        address = f"{scheme}://127.0.0.1:{listener.getsockname()[1]}"
        hub = SlowHub(address, sent, before, context)

        def serve() -> None:
            with suppress(OSError):  # the listener is closed
                while True:
                    connection, _ = listener.accept()
                    threading.Thread(target=hub.answer, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield hub
        hub.over.set()


def require_no_rest(hub: SlowHub) -> None:
    """Fail if a connection or a thread of the request is left."""
    assert hub.given_up.wait(20)
    for thread in threading.enumerate():
        if thread.name == "hub request":
            thread.join(20)
            assert not thread.is_alive()


@pytest.fixture(autouse=True)
def _in_time(monkeypatch: pytest.MonkeyPatch, no_proxies: None) -> None:
    monkeypatch.setattr(listing, "HINT_SECONDS", 0.5)
    monkeypatch.setattr(listing, "LISTING_SECONDS", 0.5)
    monkeypatch.setattr(client, "LONGEST_ANSWER", 0.5)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_ETAG_TIMEOUT", 0.5)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("where", ["head", "body"])
@pytest.mark.parametrize(
    ("ask", "expected"),
    [
        (lambda: files_soon("org/m", "main"), []),
        (lambda: answer_soon("org/m"), None),
        (lambda: list_files("org/m", "main"), "takes too long to send the list of org/m"),
        (lambda: list_repositories("org", "m", 9), "takes too long to send the list of org"),
    ],
    ids=["hint", "answer", "list", "search"],
)
def test_a_list_that_trickles_is_not_waited_for(
    where: str, ask: Callable[[], Any], expected: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes soon enough, the last one does not."""
    with slow_hub(where) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        if isinstance(expected, str):
            with pytest.raises(DownloadFailed, match=expected):
                ask()
        else:
            assert ask() == expected
        require_no_rest(hub)


def test_metadata_that_trickles_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The request may be made again."""
    with slow_hub("head") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        with pytest.raises(httpx2.ReadTimeout, match=r"no whole answer within 0\.5 s"):
            find(FILE)
        require_no_rest(hub)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("where", ["head", "body"])
def test_a_trickle_within_tls_is_cut_too(
    where: str, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Below its encryption."""
    monkeypatch.setattr(listing, "HINT_SECONDS", 2.0)  # enough for the handshake
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.server)
    with slow_hub(where, context) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.file))
        assert files_soon("org/m", "main") == []
        require_no_rest(hub)


def test_a_connection_opened_too_late_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    """The name of the host was looked up for longer than there was time."""
    looked_up, resolve = threading.Event(), socket.getaddrinfo

    def slow(*words: Any, **named: Any) -> Any:
        looked_up.wait(20)
        return resolve(*words, **named)

    with slow_hub("head") as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.address)
        monkeypatch.setattr(socket, "getaddrinfo", slow)
        assert files_soon("org/m", "main") == []
        assert not looked_up.is_set()
        looked_up.set()
        require_no_rest(hub)
