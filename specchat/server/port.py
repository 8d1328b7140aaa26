"""The port, or Unix socket, on which a service is offered, by the options of the server."""

import secrets
import threading
from contextlib import ExitStack
from typing import Self

from specchat.errors import InvalidOption
from specchat.network.loopback import is_loopback
from specchat.options.declarations import ServerOptions
from specchat.server.endpoints import make_app
from specchat.server.guard import Access
from specchat.server.running import Server, listen, listening_on_file, run
from specchat.server.service import Service

NO_KEY, MAKE_KEY = "none", "auto"
KEY_BYTES = 24
LOCAL_NAMES = frozenset({"", "localhost"})
SECONDS_TO_JOIN = 5.0


class Port:
    """A port that is bound: no other program can take it. `serve` answers there.

    `address` is what clients call it, `key` what they must send, empty for nothing; `made_key` is
    that one if it was made here, so that it must be shown. A Unix socket has `unix:` and its path
    as its address.
    """

    def __init__(self, options: ServerOptions) -> None:
        """Bind the port. Raises InvalidOption for an open one without a key, or AddressInUse."""
        self._access = access_of(options)
        self.key = self._access.key or ""
        self.made_key = self.key if options.key == MAKE_KEY else ""
        self._stack = ExitStack()
        if options.socket is not None:
            path = options.socket.expanduser()
            self._listening = self._stack.enter_context(listening_on_file(path))
            self.address = f"unix:{path}"
        else:
            self._listening = self._stack.enter_context(listen(options.host, options.port))
            host = f"[{options.host}]" if ":" in options.host else options.host
            self.address = f"http://{host}:{self._listening.getsockname()[1]}"
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    def serve(self, service: Service) -> None:
        """Serve until Ctrl+C, SIGTERM or `end`."""
        run(self._server_of(service), self._listening)

    def start(self, service: Service) -> None:
        """Serve on a thread of its own until `close`."""
        server = self._server_of(service)
        self._thread = threading.Thread(
            target=run, args=(server, self._listening), name="server", daemon=True
        )
        self._thread.start()

    def end(self) -> None:
        """End the answers in progress, then the server; from any thread and any number of times."""
        if self._server is not None and not self._server.should_exit:
            self._server.end()

    def close(self) -> None:
        """End the server and free the port."""
        if self._thread is not None:
            self.end()
            self._thread.join(SECONDS_TO_JOIN)
        self._stack.close()

    def _server_of(self, service: Service) -> Server:
        self._server = Server(make_app(service, self._access), service.end)
        return self._server

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def access_of(options: ServerOptions) -> Access:
    """Return who may use the server; an address that others can reach needs a key."""
    key = {NO_KEY: None, MAKE_KEY: secrets.token_urlsafe(KEY_BYTES)}.get(options.key, options.key)
    is_here = options.socket is not None or is_loopback(options.host)
    if not is_here and key is None:
        raise InvalidOption(
            f"--host {options.host} lets other machines in: add --key auto, which makes a key"
        )
    return Access(LOCAL_NAMES if is_here else None, frozenset(options.origin), key)
