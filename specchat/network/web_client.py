"""HTTP clients, which choose proxy and certificates for each request, and requests cut at will.

Closing a socket under a thread that reads it does not wake that thread, so to give a request up
its sockets are shut down. Nothing ends the resolver of names: a request has a thread of its own.
"""

import atexit
import os
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, wait
from contextlib import contextmanager, suppress
from functools import cache, partial
from ssl import SSLContext
from time import monotonic
from typing import Any, Generic, TypeVar

import httpx2

from specchat.network.certificates import given, trusted_context
from specchat.network.proxies import find_proxy

Result = TypeVar("Result")
ON_WAIT_SECONDS = 0.2

_Key = tuple[str, bool, tuple[tuple[str, str], ...]]


class RoutingTransport(httpx2.BaseTransport):
    """Sends each request directly or through the proxy for its URL, redirected ones too."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        """Make transports with these options of httpx2.HTTPTransport."""
        self._options = options
        self._transports: dict[_Key, httpx2.HTTPTransport] = {}
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self.is_cut = False

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises NetworkMisconfigured if a variable of the environment is wrong."""
        configured = find_proxy(str(request.url))
        proxy = configured.checked() if configured else ""
        has_tls = request.url.scheme == "https" or proxy.startswith("https:")
        key = (proxy, has_tls, given() if has_tls else ())
        transport = self._transports.get(key) or self._transport(*key)
        self._transports[key] = transport
        request.extensions["trace"] = self._note
        return transport.handle_request(request)

    def cut(self) -> None:
        """Shut all connections down, from any thread: a read from one ends at once."""
        with self._lock:
            self.is_cut = True
            for sock in self._sockets:
                _shut_down(sock)

    def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            transport.close()

    def _note(self, _: str, event: Mapping[str, Any]) -> None:
        """Remember the socket of a connection as it is opened."""
        about = getattr(event.get("return_value"), "get_extra_info", None)
        opened = about("socket") if about else None
        if isinstance(opened, socket.socket):
            with self._lock:
                self._sockets = [sock for sock in self._sockets if sock.fileno() >= 0]
                self._sockets.append(opened)
                if self.is_cut:
                    _shut_down(opened)

    def _transport(
        self, proxy: str, has_tls: bool, certificates: tuple[tuple[str, str], ...]
    ) -> httpx2.HTTPTransport:
        context = _context(certificates) if has_tls else None
        of_proxy = context if proxy.startswith("https:") else None
        chosen = httpx2.Proxy(proxy, ssl_context=of_proxy) if proxy else None
        return httpx2.HTTPTransport(
            verify=context or False, trust_env=False, proxy=chosen, **self._options
        )


class WebClient(httpx2.Client):
    """A client for one request at a time, which keeps its connections open."""

    def __init__(self, headers: Mapping[str, str] | None = None, **options: Any) -> None:
        """Begin without a connection; `options` are those of httpx2.HTTPTransport."""
        self._routes = RoutingTransport(options)
        super().__init__(headers=headers, transport=self._routes, trust_env=False, timeout=None)

    @property
    def is_cut(self) -> bool:
        """Whether it can only be closed."""
        return self._routes.is_cut

    def cut(self) -> None:
        """End the request, from any thread."""
        self._routes.cut()


class ClientPool:
    """Clients of one kind, kept with their connections for the next requests."""

    def __init__(self, make: Callable[[], WebClient] = WebClient) -> None:
        """Begin without a client."""
        self._make = make
        self._idle: list[WebClient] = []
        self._busy: set[WebClient] = set()

    @contextmanager
    def client(self) -> Iterator[WebClient]:
        """Yield a client that no other request uses meanwhile."""
        client = self.take()
        try:
            yield client
        finally:
            self.put_back(client)

    def take(self) -> WebClient:
        """Return a client for one request."""
        try:
            client = self._idle.pop()  # the last one used: its connections are most likely open
        except IndexError:
            client = self._make()
        self._busy.add(client)
        return client

    def put_back(self, client: WebClient) -> None:
        """Keep a client for the next request, or close one that was cut."""
        self._busy.discard(client)
        if client.is_cut:
            client.close()
        else:
            self._idle.append(client)

    def close(self) -> None:
        """Cut all requests and close all connections."""
        for client in list(self._busy):
            client.cut()
        while self._idle:
            self._idle.pop().close()

    def forget(self) -> None:
        """Leave the connections to the parent of this process."""
        self._idle.clear()
        self._busy.clear()


class Request(Generic[Result]):
    """A request in a thread of its own, which can be given up at any moment, from any thread."""

    def __init__(self, pool: ClientPool, work: Callable[[WebClient], Result]) -> None:
        """Begin; `work` makes the request."""
        self._pool, self._client = pool, pool.take()
        self._future = Future[Result]()
        self._lock = threading.Lock()
        threading.Thread(target=self._run, args=(work,), name="request", daemon=True).start()

    def _run(self, work: Callable[[WebClient], Result]) -> None:
        try:
            end = partial(self._future.set_result, work(self._client))
        except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
            end = partial(self._future.set_exception, error)
        with self._lock:
            self._pool.put_back(self._client)
            if not self._future.cancelled():
                end()

    @property
    def is_done(self) -> bool:
        """Whether it has succeeded, failed, or been given up."""
        return self._future.done()

    def result(self, seconds: float, on_wait: Callable[[], None] | None = None) -> Result:
        """Wait and return what `work` returned, or raise what it raised.

        Raises TimeoutError after `seconds` in all, which a timeout of single steps does not notice
        of a server that sends a byte now and then, and CancelledError if the request was given up.
        `on_wait` is called several times a second; what it raises gives the request up, as Ctrl+C
        does.
        """
        end = monotonic() + seconds
        longest = ON_WAIT_SECONDS if on_wait else seconds
        try:
            while not wait([self._future], min(longest, max(0.0, end - monotonic()))).done:
                if monotonic() >= end:
                    raise TimeoutError(f"no whole answer within {seconds:.3g} s")  # noqa: TRY301
                if on_wait:
                    on_wait()
            return self._future.result()
        except BaseException:
            self.give_up()
            raise

    def give_up(self) -> None:
        """End the request, unless it is over."""
        with self._lock:
            if self._future.cancel():
                self._client.cut()


CLIENTS = ClientPool()
"""Those for the hub."""
atexit.register(CLIENTS.close)
if hasattr(os, "register_at_fork"):  # a child must not use its parent's connections
    os.register_at_fork(after_in_child=CLIENTS.forget)


@cache
def _context(_: tuple[tuple[str, str], ...]) -> SSLContext:
    """Return the settings of TLS for what `given` returns: loading certificates takes long."""
    return trusted_context()


def _shut_down(opened: socket.socket) -> None:
    """Shut a socket down in both directions, below TLS if it has that."""
    with suppress(OSError):  # it is closed
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
