"""Runs the application on a socket of this machine until it is asked to end."""

import asyncio
import os
import socket
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import uvicorn
from starlette.types import ASGIApp

from specchat.errors import InvalidOption, SpecchatError

SECONDS_TO_END = 3
"""How long open connections may take to end."""
BACKLOG = 128


class AddressInUse(SpecchatError):
    """Raised when another program listens on the address already."""


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
            http="h11",
            loop="asyncio",
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=SECONDS_TO_END,
        )
        super().__init__(config)
        self._before_end = before_end

    def end(self) -> None:
        """End the server, from any thread."""
        if not self.should_exit:
            self._before_end()
            self.should_exit = True

    def handle_exit(self, sig: int, frame: object) -> None:
        """End at Ctrl+C and SIGTERM."""
        del sig, frame
        self.end()


def run(server: Server, listening: socket.socket) -> None:
    """Serve until the server is ended."""
    asyncio.run(server.serve(sockets=[listening]))


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on an address. Raises AddressInUse or InvalidOption."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise InvalidOption(f"--host {host}: {error.strerror or error}") from None
    family, kind, protocol, _, address = found[0]
    listening = socket.socket(family, kind, protocol)
    try:
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


def is_local(host: str) -> bool:
    """Return True if only this machine can reach the address."""
    from specchat.server.guard import is_loopback

    return is_loopback(host)
