"""HTTP replies that take time: event streams, and whole answers. Both end when the client is gone.

A client that hears nothing for minutes gives up (Node after 300 s), so a stream sends comments, and
a whole answer spaces, which JSON allows before a value.
"""

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from typing import Any

import anyio
import msgspec
from starlette.types import Message, Receive, Scope, Send

from specchat.errors import SpecchatError
from specchat.server.api_errors import (
    INTERNAL,
    SENT_NAMES,
    ApiError,
    body_for,
    named_as_sent,
    of_exception,
)
from specchat.sharing.tickets import QueueFull
from specchat.system.logs import log_internal_error

MOST_SILENT_SECONDS = 120.0
"""A whole answer sends its first space after this long: until then its status can still be that of
an error."""
STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
JSON_HEADERS = [(b"content-type", b"application/json")]
LOG = "server.log"

encode = msgspec.json.Encoder().encode


def event(data: Any, name: str = "") -> bytes:
    """Return a server-sent event: its data as JSON, or a text as it is."""
    body = data.encode() if isinstance(data, str) else encode(data)
    return (f"event: {name}\n".encode() if name else b"") + b"data: " + body + b"\n\n"


def comment(text: str) -> bytes:
    """Return a comment, which clients skip."""
    return f": {text}\n\n".encode()


def error_to(scope: Scope, raised: Exception) -> ApiError:
    """Return any error as an API's, in which fields are called as the request calls them.

    Refusals are counted. Errors that are not specchat's own are bugs, and are logged.
    """
    if isinstance(raised, QueueFull):
        scope["app"].state.service.activity.num_refused += 1
    if isinstance(raised, SpecchatError):
        raised = of_exception(raised)
    if not isinstance(raised, ApiError):
        return ApiError(INTERNAL, log_internal_error(raised, LOG))
    return named_as_sent(raised, scope.get("state", {}).get(SENT_NAMES, {}))


class EventStream:
    """A stream of server-sent events, made of the bytes that a generator yields.

    An error becomes an event of its own, by `failed`; the status is sent with the first bytes, so
    an error before them still has its own.
    """

    def __init__(
        self,
        events: AsyncGenerator[bytes, None],
        failed: Callable[[ApiError], bytes] | None = None,
    ) -> None:
        """Stream what `events` yields."""
        self._events, self._failed = events, failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events until they end or the client is gone."""
        await _until_gone(receive, lambda: self._send(scope, send))

    async def _send(self, scope: Scope, send: Send) -> None:
        shape, has_begun = body_for(scope["path"]), False
        async with aclosing(self._events) as events:
            try:
                async for part in events:
                    if not has_begun:
                        await send(_start(200, STREAM_HEADERS))
                        has_begun = True
                    await send(_part(part))
            except Exception as raised:  # noqa: BLE001  # the client must receive every error
                error = error_to(scope, raised)
                if not has_begun:
                    await _send_whole(send, error.status, shape(error), error.headers)
                    return
                failed = self._failed or (lambda each: event(shape(each)))
                await send(_part(failed(error)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


class Whole:
    """A reply of one JSON object that takes time to make."""

    def __init__(self, make: Callable[[], Awaitable[Any]]) -> None:
        """Reply with what `make` returns."""
        self._make = make

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the object once it is made, unless the client is gone before."""
        await _until_gone(receive, lambda: self._send(scope, send))

    async def _send(self, scope: Scope, send: Send) -> None:
        shape, status = body_for(scope["path"]), 200
        has_begun, body = False, None
        extra: Mapping[str, str] = {}

        async def keep_alive() -> None:
            nonlocal has_begun
            while True:
                await anyio.sleep(MOST_SILENT_SECONDS)
                if not has_begun:
                    await send(_start(200, JSON_HEADERS))
                    has_begun = True
                await send(_part(b" "))

        try:
            async with anyio.create_task_group() as group:
                group.start_soon(keep_alive)
                body = await self._make()
                group.cancel_scope.cancel()
        except BaseExceptionGroup as several:
            raised = several.exceptions[0]
            if not isinstance(raised, Exception):
                raise
            error = error_to(scope, raised)
            body, status, extra = shape(error), error.status, error.headers
        if has_begun:
            await send({"type": "http.response.body", "body": encode(body), "more_body": False})
        else:
            await _send_whole(send, status, body, extra)


async def _until_gone(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do something until the client disconnects, which is noticed at once."""

    async def watch() -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        group.cancel_scope.cancel()

    async with anyio.create_task_group() as group:
        group.start_soon(watch)
        await work()
        group.cancel_scope.cancel()


async def _send_whole(send: Send, status: int, body: Any, extra: Mapping[str, str]) -> None:
    data = encode(body)
    headers = [
        *JSON_HEADERS,
        (b"content-length", str(len(data)).encode()),
        *((name.encode(), text.encode()) for name, text in extra.items()),
    ]
    await send(_start(status, headers))
    await send({"type": "http.response.body", "body": data, "more_body": False})


def _start(status: int, headers: list[tuple[bytes, bytes]]) -> Message:
    return {"type": "http.response.start", "status": status, "headers": headers}


def _part(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}
