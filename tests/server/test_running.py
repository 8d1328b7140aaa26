"""Where the server listens, and how it ends."""

from __future__ import annotations

import json
import os
import socket
import stat
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from server.conftest import LONG, SECONDS, Running, StartServer
from server.raw_http import connect, exchange, read_reply
from specchat.catalogue.pairs import find_pair
from specchat.errors import InvalidOption
from specchat.server import running
from specchat.server.running import AddressInUse, listen, listening_on_file
from specchat.server.service import Service
from tables import table

needs_unix_sockets = pytest.mark.skipif(
    not hasattr(socket, "AF_UNIX"), reason="this system has no Unix sockets"
)
HALF = (
    b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
)
LONG_BODY = b"Content-Length: 1000\r\n\r\n{"


# --- where it listens ---------------------------------------------------------------------------


@table("host", ["127.0.0.1", "localhost", "::1"])
def test_a_port_that_is_in_use_is_named(host: str) -> None:
    """With what to do about it, in one line."""
    with closing(listen(host, 0)) as first:
        port = first.getsockname()[1]
        with pytest.raises(AddressInUse) as found:
            listen(host, port)
    assert f"{host}:{port}" in str(found.value)
    assert "choose another --port" in str(found.value)
    assert "\n" not in str(found.value)


@needs_unix_sockets
def test_a_socket_is_the_users_alone_from_its_first_moment(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not only once its mode is changed."""
    modes: list[int] = []

    class Watched(socket.socket):
        def bind(self, address: Any) -> None:
            super().bind(address)
            modes.append(stat.S_IMODE(Path(address).stat().st_mode))

    monkeypatch.setattr("specchat.server.running.socket.socket", Watched)
    path = tmp_path / "socket"
    before = os.umask(0o022)
    os.umask(before)
    with listening_on_file(path):
        assert modes == [0o600]
        assert os.umask(before) == before
    assert not path.exists()


@needs_unix_sockets
def test_the_socket_of_an_ended_server_is_replaced(tmp_path: Path) -> None:
    """One that nobody listens on is left by a server that was killed."""
    path = tmp_path / "socket"
    with closing(socket.socket(socket.AF_UNIX)) as left:
        left.bind(str(path))
    with listening_on_file(path), closing(socket.socket(socket.AF_UNIX)) as client:
        client.connect(str(path))


@needs_unix_sockets
def test_what_is_not_a_servers_own_socket_is_left_alone(tmp_path: Path) -> None:
    """A file, a folder, a link, another server's socket; and one that replaced this server's."""
    file, folder, link = tmp_path / "file", tmp_path / "folder", tmp_path / "link"
    file.write_text("mine")
    folder.mkdir()
    link.symlink_to(file)
    for path in (file, folder, link):
        with pytest.raises(AddressInUse, match="is not a socket"), listening_on_file(path):
            pass
    assert file.read_text() == "mine"
    assert link.is_symlink()

    path = tmp_path / "socket"
    with listening_on_file(path):
        with pytest.raises(AddressInUse, match="another program listens"), listening_on_file(path):
            pass
        assert stat.S_ISSOCK(path.stat().st_mode)
        path.unlink()
        path.write_text("of another")
    assert path.read_text() == "of another"


@needs_unix_sockets
@pytest.mark.parametrize("name", ["no folder/socket", "x" * 200])
def test_a_place_where_no_socket_can_be_is_named(tmp_path: Path, name: str) -> None:
    """In one line."""
    with (
        pytest.raises(AddressInUse, match="cannot listen on") as found,
        listening_on_file(tmp_path / name),
    ):
        pass
    assert "\n" not in str(found.value)


def test_a_system_without_unix_sockets_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Windows has none in Python."""
    monkeypatch.delattr(socket, "AF_UNIX", raising=False)
    with pytest.raises(InvalidOption, match="use --port"), listening_on_file(tmp_path / "socket"):
        pass


# --- what arrives -------------------------------------------------------------------------------


@table(
    "data",
    [
        b"hello\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET / HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: localhost\r\nHost: evil.example\r\n\r\n",
        HALF + b"Content-Length: -1\r\n\r\n",
        HALF + b"Content-Length: 1\r\nContent-Length: 2\r\n\r\n{}",
        HALF + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
        HALF + b"Transfer-Encoding: chunked\r\n\r\nx\r\n",
    ],
)
def test_what_is_not_http_gets_an_error_in_the_usual_shape(
    demo_server: Running, data: bytes
) -> None:
    """Status 400, and the connection ends."""
    reply = exchange(demo_server.address, data)
    assert reply.status == 400
    assert reply.headers["connection"] == "close"
    assert json.loads(reply.body)["error"]["type"] == "invalid_request_error"


@table("sent", [b"", b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_connection_without_a_whole_header_is_closed(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch, sent: bytes
) -> None:
    """Or those of one program could keep all others out; a request in progress has its time."""
    monkeypatch.setattr(running, "SECONDS_TO_HEADERS", 1.0)
    with closing(connect(demo_server.address)) as half:
        half.settimeout(SECONDS)
        half.sendall(sent)
        assert half.recv(100) == b""
    with closing(connect(demo_server.address)) as slow:
        slow.sendall(HALF + b"Content-Length: 16\r\n\r\n{")
        time.sleep(1.5)
        slow.sendall(b'"messages": 12 }')
        assert read_reply(slow).status == 400


def test_a_connection_whose_body_does_not_end_is_closed(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if a byte of it comes now and then: anyone may send that, without a key too."""
    monkeypatch.setattr(running, "SECONDS_TO_BODY", 1.0)
    with closing(connect(demo_server.address)) as slow:
        slow.settimeout(SECONDS)
        slow.sendall(HALF + LONG_BODY)
        for _ in range(3):
            time.sleep(0.2)
            slow.sendall(b" ")
        assert slow.recv(100) == b""
    with closing(connect(demo_server.address)) as second:
        second.settimeout(SECONDS)
        second.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n" + HALF + LONG_BODY)
        assert read_reply(second).status == 200
        assert second.recv(100) == b""


# --- how it ends --------------------------------------------------------------------------------


def test_a_server_that_ends_says_so_in_open_streams(
    start_server: StartServer, demo_server: Running
) -> None:
    """As an error, for the answer is not whole; the engine goes on for others."""
    target = find_pair("demo").target
    server = start_server(service=Service(demo_server.service.engine, target, "demo"))
    with server.stream(**LONG) as events, closing(connect(server.address)) as half:
        half.sendall(HALF + b"Content-Length: 10\r\n\r\n{")
        for _, event in zip(range(3), events, strict=False):
            assert event
        server.end()
        *_, last = events

    assert last
    assert last["error"]["code"] == "shutting_down"
    assert demo_server.chat(max_tokens=1)["usage"]["completion_tokens"] == 1


def test_little_of_a_request_is_read_before_streams_have_their_turn(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A body in chunks of a byte each would hold them up for seconds."""
    sizes: list[int] = []
    received = running.Protocol.data_received

    def note(protocol: running.Protocol, data: bytes) -> None:
        sizes.append(len(data))
        received(protocol, data)

    monkeypatch.setattr(running.Protocol, "data_received", note)
    head = b"POST /tokenize HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = b'{"content": "' + b"x" * 200_000 + b'"}'
    chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in body)

    reply = exchange(demo_server.address, head + chunks + b"0\r\n\r\n")

    assert reply.status == 400
    assert b"too long" in reply.body
    assert max(sizes) <= running.READ_BYTES < len(chunks) / 10
