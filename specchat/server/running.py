"""Runs the application on a socket of this machine until it is asked to end."""

import asyncio
import logging
import os
import socket
import stat
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import h11
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.h11_impl import H11Protocol

from specchat.errors import InvalidOption, SpecchatError
from specchat.llama import freed_memory
from specchat.server.api_errors import BAD_REQUEST, ApiError, openai_body
from specchat.server.replies import JSON_HEADERS, LOG, encode
from specchat.system.logs import log_internal_error

SECONDS_TO_END = 2
"""How long open connections may take to end."""
SECONDS_TO_HEADERS = 30
"""How long the headers of a request may take, and the next request of a connection: clients keep
one for 5 seconds, and would send on one that is being closed if the server did, too."""
SECONDS_TO_BODY = 300
"""How long its body may take: the largest one at a megabit a second."""
BACKLOG = 128
READ_BYTES = 2**14
"""The most of a request that is read before streams get their turn: a body in chunks of a byte each
is many of them."""


class AddressInUse(SpecchatError):
    """Raised when another program listens on the address already."""


class Protocol(H11Protocol):
    """HTTP/1.1; what is not HTTP gets an error in the shape of the APIs.

    A connection on which no request begins in time is closed, and one whose body does not end.
    """

    _alarm: asyncio.TimerHandle | None = None
    _awaited: object = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first request."""
        transport.max_size = READ_BYTES  # type: ignore[attr-defined]  # of asyncio's own transports
        super().connection_made(transport)
        self._wait_for_more()

    def data_received(self, data: bytes) -> None:
        """Read on."""
        super().data_received(data)
        self._wait_for_more()

    def on_response_complete(self) -> None:
        """Go on with a request that arrived before the last one was answered."""
        super().on_response_complete()
        self._wait_for_more()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        super().connection_lost(exc)

    def _wait_for_more(self) -> None:
        state = self.conn.their_state
        if state is self._awaited:
            return
        self._stop_waiting()
        seconds = {h11.IDLE: SECONDS_TO_HEADERS, h11.SEND_BODY: SECONDS_TO_BODY}.get(state)
        if seconds is not None:
            self._awaited = state
            self._alarm = self.loop.call_later(seconds, self.transport.close)

    def _stop_waiting(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._awaited = None

    def send_400_response(self, msg: str) -> None:
        """Refuse the connection, unless a reply has begun on it; the application has lost it."""
        if self.conn.our_state in {h11.IDLE, h11.SEND_RESPONSE}:
            body = encode(openai_body(ApiError(BAD_REQUEST, f"not HTTP: {msg}")))
            headers = [
                *JSON_HEADERS,
                (b"content-length", str(len(body)).encode()),
                (b"connection", b"close"),
            ]
            for part in (
                h11.Response(status_code=BAD_REQUEST, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(part) or b"")
        if self.cycle is not None:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
        self.transport.close()


class Server(uvicorn.Server):
    """Uvicorn with a stop that ends the answers in progress first: it waits for open streams."""

    def __init__(self, app: ASGIApp, before_end: Callable[[], None]) -> None:
        """Serve an application; `before_end` ends what clients are still waiting for."""
        config = uvicorn.Config(
            app,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws="none",
            http=Protocol,
            loop="asyncio",
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=SECONDS_TO_HEADERS,
            timeout_graceful_shutdown=SECONDS_TO_END,
        )
        super().__init__(config)
        self._before_end = before_end

    def end(self) -> None:
        """End the server, from any thread; asked again, it waits for no connection."""
        if self.should_exit:
            self.force_exit = True
        else:
            self.should_exit = True
            self._before_end()

    def handle_exit(self, sig: int, frame: object) -> None:
        """End at Ctrl+C and SIGTERM."""
        del sig, frame
        asyncio.get_running_loop().call_soon_threadsafe(self.end)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop listening, and let the connections end; those still sending a request are cut."""
        for connection in list(self.server_state.connections):
            cycle = getattr(connection, "cycle", None)
            if cycle is not None and cycle.more_body:
                connection.transport.abort()
        await super().shutdown(sockets)


class _LogHandler(logging.Handler):
    """Writes unexpected errors into the server's log, and nothing else anywhere."""

    def emit(self, record: logging.LogRecord) -> None:
        """Write the error of a record."""
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, Exception):
            log_internal_error(error, LOG)


def run(server: Server, listening: socket.socket) -> None:
    """Serve until the server is ended; nothing is printed."""
    freed_memory.give_back_large_blocks()  # or large requests would take memory for good
    logger = logging.getLogger("uvicorn")
    logger.handlers, logger.propagate = [_LogHandler()], False
    asyncio.run(_serve(server, listening))


async def _serve(server: Server, listening: socket.socket) -> None:
    asyncio.get_running_loop().set_exception_handler(_log_unhandled)
    await server.serve(sockets=[listening])


def _log_unhandled(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Write an error that no task waits for into the server's log."""
    del loop
    error = context.get("exception")
    if isinstance(error, Exception) and not isinstance(error, ConnectionError):
        log_internal_error(error, LOG)


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address. Raises AddressInUse or InvalidOption."""
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidOption(f"--host {host}: {error.strerror or error}") from None
    family, kind, protocol, _, address = addresses[0]
    listening = socket.socket(family, kind, protocol)
    try:
        if sys.platform != "win32":  # where it would let two programs listen on one port
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind(address)
        listening.listen(BACKLOG)
    except OSError as error:
        listening.close()
        reason = error.strerror or str(error)
        raise AddressInUse(
            f"cannot listen on {host}:{port}: {reason}; choose another --port, or 0 for a free one"
        ) from None
    return listening


@contextmanager
def listening_on_file(path: Path) -> Iterator[socket.socket]:
    """Listen on a Unix socket that only the user can open; remove it at the end.

    Raises AddressInUse if another program listens on it, or if the path is something else.
    """
    if sys.platform == "win32" or not hasattr(socket, "AF_UNIX"):
        raise InvalidOption("--socket: this system has no Unix sockets; use --port")
    _remove_stale(path)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    mask = os.umask(0o177)
    try:
        listening.bind(str(path))
    except OSError as error:
        listening.close()
        raise AddressInUse(f"cannot listen on {path}: {error.strerror or error}") from None
    finally:
        os.umask(mask)
    own = path.stat().st_ino
    try:
        listening.listen(BACKLOG)
        yield listening
    finally:
        listening.close()
        with suppress(OSError):
            if path.stat().st_ino == own:
                path.unlink()


def _remove_stale(path: Path) -> None:
    """Remove the socket of a program that has ended."""
    if sys.platform == "win32":
        return
    try:
        mode = path.lstat().st_mode
    except OSError:
        return
    if not stat.S_ISSOCK(mode):
        raise AddressInUse(f"{path} is not a socket: choose another --socket")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.settimeout(1)
        try:
            probe.connect(str(path))
        except ConnectionRefusedError:
            path.unlink()
        except OSError:
            return
        else:
            raise AddressInUse(f"another program listens on {path}: choose another --socket")
