"""The HTTP client for the hub, which chooses proxy and certificates for each request."""

import atexit
import os
import threading
from functools import cache

import httpx2

from specchat.hub.certificates import given, trusted_context
from specchat.hub.proxies import find_proxy

_Key = tuple[str, bool, tuple[tuple[str, str], ...]]


class RoutingTransport(httpx2.BaseTransport):
    """Sends each request directly or through the proxy for its URL, redirected ones too."""

    def __init__(self) -> None:
        self._transports: dict[_Key, httpx2.HTTPTransport] = {}
        self._lock = threading.Lock()

    def handle_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises NetworkMisconfigured if a variable of the environment is wrong."""
        found = find_proxy(str(request.url))
        proxy = found.checked() if found else ""
        has_tls = request.url.scheme == "https" or proxy.startswith("https:")
        key = (proxy, has_tls, given() if has_tls else ())
        with self._lock:
            transport = self._transports.get(key) or _transport(proxy, has_tls=has_tls)
            self._transports[key] = transport
        return transport.handle_request(request)

    def close(self) -> None:
        """Close all connections."""
        for transport in self._transports.values():
            transport.close()


def _transport(proxy: str, *, has_tls: bool) -> httpx2.HTTPTransport:
    context = trusted_context() if has_tls else None  # loading certificates takes long
    of_proxy = context if proxy.startswith("https:") else None
    chosen = httpx2.Proxy(proxy, ssl_context=of_proxy) if proxy else None
    return httpx2.HTTPTransport(verify=context or False, trust_env=False, proxy=chosen)


@cache
def web_client() -> httpx2.Client:
    """Return the client, which is shared by all threads and keeps its connections open."""
    client = httpx2.Client(transport=RoutingTransport(), trust_env=False, timeout=None)
    atexit.register(client.close)
    return client


if hasattr(os, "register_at_fork"):  # a child must not use its parent's connections
    os.register_at_fork(after_in_child=web_client.cache_clear)
