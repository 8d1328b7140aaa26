"""What is passed on: bytes both ways, and the end of a machine that is gone."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable

import pytest

from specchat.network.keep_alive import keep_alive_options
from specchat.workers.tcp_relay import Relay


def wait_until(is_true: Callable[[], bool]) -> None:
    """Wait for something that another thread does."""
    deadline = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_the_system_asks_whether_a_silent_client_is_still_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """On the connection to the client, not only on that between two sockets of this machine."""
    accepted: list[socket.socket] = []
    join = Relay._join

    def keep(relay: Relay, near: socket.socket) -> None:
        accepted.append(near)
        join(relay, near)

    monkeypatch.setattr(Relay, "_join", keep)
    with socket.create_server(("127.0.0.1", 0)) as server:
        relay = Relay(socket.create_server(("127.0.0.1", 0)), *server.getsockname())
        with socket.create_connection(("127.0.0.1", relay.port)) as client:
            inner, (_, port) = server.accept()
            with inner:
                assert relay.client_at(port) == "127.0.0.1"
                for level, name, value in keep_alive_options():
                    assert accepted[0].getsockopt(level, name) in {value, 8}  # macOS: a bit
                client.sendall(b"there")
                assert inner.recv(9) == b"there"
                inner.sendall(b"back")
                assert client.recv(9) == b"back"
        wait_until(lambda: relay.client_at(port) is None)
        relay.close()
