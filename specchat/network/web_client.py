"""The HTTP client for the hub, which chooses proxy and certificates for each request."""

import atexit
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from ssl import SSLContext
from typing import Any

import httpx2

from specchat.network.certificates import given, trusted_context
from specchat.network.proxies import find_proxy

_Key = tuple[str, bool, tuple[tuple[str, str], ...]]


class RoutingTransport(httpx2.BaseTransport):
    """Sends each request directly or through the proxy for its URL, redirected ones too."""

    def __init__(self) -> None:
        self._transports: dict[_Key, httpx2.HTTPTransport] = {}
        self._lock = threading.Lock()
        self._sockets: list[socket.socket] = []
        self._is_cut = False

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises NetworkMisconfigured if a variable of the environment is wrong."""
        configured = find_proxy(str(request.url))
        proxy = configured.checked() if configured else ""
        has_tls = request.url.scheme == "https" or proxy.startswith("https:")
        key = (proxy, has_tls, given() if has_tls else ())
        transport = self._transports.get(key) or _transport(proxy, key[2], has_tls=has_tls)
        self._transports[key] = transport
        request.extensions["trace"] = self._note
        return transport.handle_request(request)

    def cut(self) -> None:
        """Shut all connections down, from any thread: a read from one ends at once."""
        with self._lock:
            self._is_cut = True
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
                if self._is_cut:
                    _shut_down(opened)


class WebClient(httpx2.Client):
    """A client for one request at a time, which keeps its connections open."""

    def __init__(self) -> None:
        """Begin without a connection."""
        self._routes = RoutingTransport()
        super().__init__(transport=self._routes, trust_env=False, timeout=None)

    def cut(self) -> None:
        """End the request, from any thread; the client can only be closed after that."""
        self._routes.cut()


@contextmanager
def web_client() -> Iterator[WebClient]:
    """Yield a client that no other request uses meanwhile."""
    client = take_client()
    try:
        yield client
    finally:
        keep_client(client)


def take_client() -> WebClient:
    """Return a client for one request."""
    with suppress(IndexError):  # the last one used, whose connections are most likely still open
        return _idle.pop()
    return WebClient()


def keep_client(client: WebClient) -> None:
    """Keep a client and its connections for the next request."""
    _idle.append(client)


_idle: list[WebClient] = []


def _close_all() -> None:
    while _idle:
        _idle.pop().close()


atexit.register(_close_all)
if hasattr(os, "register_at_fork"):  # a child must not use its parent's connections
    os.register_at_fork(after_in_child=_idle.clear)


def _transport(
    proxy: str, certificates: tuple[tuple[str, str], ...], *, has_tls: bool
) -> httpx2.HTTPTransport:
    context = _context(certificates) if has_tls else None
    of_proxy = context if proxy.startswith("https:") else None
    chosen = httpx2.Proxy(proxy, ssl_context=of_proxy) if proxy else None
    return httpx2.HTTPTransport(verify=context or False, trust_env=False, proxy=chosen)


@cache
def _context(_: tuple[tuple[str, str], ...]) -> SSLContext:
    """Return the settings of TLS for what `given` returns: loading certificates takes long."""
    return trusted_context()


def _shut_down(opened: socket.socket) -> None:
    """Shut a socket down in both directions, below TLS if it has that."""
    with suppress(OSError):  # it is closed
        socket.socket.shutdown(opened, socket.SHUT_RDWR)
