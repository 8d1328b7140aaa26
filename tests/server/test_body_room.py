"""Bodies that are being sent: how many, how large together, and what is refused beyond."""

from __future__ import annotations

import tracemalloc
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, closing
from typing import Any

import pytest

from server.conftest import Running, until
from server.raw_http import connect, exchange
from server.test_metrics import figures_of
from specchat.server import body_room, prompts
from specchat.server.body_room import MOST_BODIES, MOST_BYTES, SMALL_BODY, BodyRoom
from specchat.server.guard import LARGEST_BODY
from specchat.sharing.tickets import QueueFull

PATH = "/v1/completions"
REFUSED = "specchat:requests_refused_total"
WRONG = {"prompt": 12, "padding": ""}
"""A body that has its answer at once."""
HEAD = f"POST {PATH} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n".encode()


async def parts_of(size: int, *, part: int = 2**14, fails: bool = False) -> AsyncIterator[bytes]:
    """Yield a body of a size as it comes from a socket; one that fails is not sent to its end."""
    for begin in range(0, size, part):
        yield bytes(min(part, size - begin))
    if fails:
        raise ConnectionError


@pytest.mark.anyio
async def test_a_body_is_received_whole() -> None:
    """However it is cut."""

    async def parts() -> AsyncIterator[bytes]:
        for part in (b"{", b"", b'"a": ', b"1}"):
            yield part

    async with BodyRoom().body(parts()) as data:
        assert data == b'{"a": 1}'


@pytest.mark.anyio
async def test_large_bodies_have_a_limit_together_and_small_ones_pass() -> None:
    """In bytes that have really come; what was refused or cut takes no room."""
    room = BodyRoom()
    tracemalloc.start()
    async with AsyncExitStack() as stack:
        for _ in range(MOST_BYTES // LARGEST_BODY):
            await stack.enter_async_context(room.body(parts_of(LARGEST_BODY, part=2**20)))
        for _ in range(20):
            with pytest.raises(QueueFull, match="try again later"):
                async with room.body(parts_of(LARGEST_BODY)):
                    pass
        async with room.body(parts_of(SMALL_BODY)) as small:
            assert len(small) == SMALL_BODY
        assert tracemalloc.get_traced_memory()[1] < MOST_BYTES * 1.3
    tracemalloc.stop()
    for _ in range(2 * MOST_BYTES // LARGEST_BODY):
        with pytest.raises(ConnectionError):
            async with room.body(parts_of(LARGEST_BODY, part=2**20, fails=True)):
                pass
    async with room.body(parts_of(LARGEST_BODY, part=2**20)) as data:
        assert len(data) == LARGEST_BODY


@pytest.mark.anyio
async def test_bodies_have_a_largest_number() -> None:
    """However small they are."""
    room = BodyRoom()
    async with AsyncExitStack() as stack:
        for _ in range(MOST_BODIES):
            await stack.enter_async_context(room.body(parts_of(1)))
        for _ in range(2):
            with pytest.raises(QueueFull, match=f"{MOST_BODIES} requests are being sent"):
                async with room.body(parts_of(1)):
                    pass
    async with room.body(parts_of(1)) as data:
        assert len(data) == 1


def test_bodies_that_are_never_sent_to_their_end_take_no_more_than_the_limit(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What comes beyond is refused and counted, small requests are answered as ever."""
    monkeypatch.setattr(body_room, "MOST_BYTES", 2 * SMALL_BODY)
    room, before = demo_server.service.body_room, figures_of(demo_server).total(REFUSED)
    large = {**WRONG, "padding": "x" * 2 * SMALL_BODY}
    with ExitStack() as stack:
        held = stack.enter_context(closing(connect(demo_server.address)))
        held.sendall(HEAD + f"Content-Length: {LARGEST_BODY}\r\n\r\n".encode())
        held.sendall(b"x" * 2 * SMALL_BODY)
        until(lambda: room._num_bytes == 2 * SMALL_BODY, "the body that is not sent to its end")

        unfinished = HEAD + f"Content-Length: {LARGEST_BODY}\r\n\r\n".encode() + b" " * SMALL_BODY
        reply = exchange(demo_server.address, unfinished, rest=b" " * 2**16)
        assert reply.status == 503
        assert int(reply.headers["retry-after"])
        assert b'"code":"queue_full"' in reply.body
        assert _status(demo_server, large) == 503
        assert _status(demo_server, WRONG) == 400
        assert figures_of(demo_server).total(REFUSED) - before == 2
    until(lambda: not room._num_bytes, "the end of the connection")
    assert _status(demo_server, {**WRONG, "padding": "x" * SMALL_BODY}) == 400
    assert room._count == room._num_bytes == 0


@pytest.mark.parametrize("path", [PATH, "/tokenize", "/v1/messages/count_tokens"])
def test_a_request_is_counted_if_too_many_are_read(
    demo_server: Running, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    """Of any kind, as one that finds the queue full."""
    before = figures_of(demo_server).total(REFUSED)
    monkeypatch.setattr(prompts, "MOST_AT_ONCE", 0)
    body = {"prompt": "hi", "max_tokens": 1, "messages": [{"role": "user", "content": "hi"}]}
    assert _status(demo_server, body, path) == 503
    assert figures_of(demo_server).total(REFUSED) - before == 1


def _status(server: Running, body: dict[str, Any], path: str = PATH) -> int:
    return server.client.post(path, json=body).status_code
