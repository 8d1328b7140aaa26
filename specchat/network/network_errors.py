"""What goes wrong between this machine and another, in one line: what happened, and what to do.

The hub's client and connections to servers fail in the same ways and say it in the same words.
What a user can do about it depends on the other machine, so each passes that as a `Peer`.
"""

import os
import re
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum, auto
from urllib.parse import urlsplit

from specchat.network.proxies import SYSTEM, Proxy, find_proxy
from specchat.safe_text import in_one_line, without_password

WEB_PAGE = re.compile(rb"\s*<(!doctype|html|head|\?xml)", re.IGNORECASE)
"""The beginning of a web page that a login or a proxy sends in place of the answer."""
NO_TLS = re.compile("WRONG_VERSION_NUMBER|wrong version number|record layer failure|HTTP_REQUEST")
PROXY_LOGIN = 407
LONGEST_REASON = 160


class Failure(Enum):
    """How a request failed on its way."""

    PROXY = auto()
    """The proxy refused to connect, or wants a login."""
    UNTRUSTED = auto()
    """The certificate is not trusted."""
    NO_TLS = auto()
    """The other machine does not speak TLS."""
    UNREACHABLE = auto()
    """No connection to it, or to the proxy on the way."""
    SILENT = auto()
    """Nothing came in time."""
    NOT_HTTP = auto()
    """What came is not HTTP."""
    LOST = auto()
    """The connection ended early."""


@dataclass(frozen=True, slots=True)
class Peer:
    """The other machine as messages name it, and what its user can do if a request fails."""

    name: str
    if_unreachable: str
    if_untrusted: str
    if_not_tls: str


def failure_of(error: BaseException) -> Failure | None:
    """Return how a request failed; None if something other than the network did."""
    import httpx2

    if isinstance(error, httpx2.ProxyError):
        return Failure.PROXY
    if _untrusted(error) is not None:
        return Failure.UNTRUSTED
    if any(
        isinstance(cause, ssl.SSLError) and NO_TLS.search(str(cause)) for cause in _chain(error)
    ):
        return Failure.NO_TLS
    kinds: tuple[tuple[Failure | None, tuple[type[BaseException], ...]], ...] = (
        (None, (httpx2.UnsupportedProtocol,)),
        (Failure.UNREACHABLE, (httpx2.ConnectError, httpx2.ConnectTimeout, ExceptionGroup)),
        (Failure.SILENT, (httpx2.TimeoutException, TimeoutError)),
        (Failure.LOST, (httpx2.TransportError,)),
    )
    kind = next((kind for kind, classes in kinds if isinstance(error, classes)), None)
    is_http = "disconnected" in str(error).lower() or "closed" in str(error).lower()
    return (
        Failure.NOT_HTTP if isinstance(error, httpx2.RemoteProtocolError) and not is_http else kind
    )


def explain_failure(error: BaseException, peer: Peer, proxy: Proxy | None) -> str | None:
    """Return the message for a request that failed; None if the network was not the cause."""
    kind, why = failure_of(error), reason(error)
    if kind is None:
        return None
    if kind is Failure.PROXY:
        return refused_by_proxy(proxy, why)
    if kind is Failure.UNREACHABLE and proxy is not None:
        # the proxy itself: for a server that it cannot reach it sends an answer or refuses
        fix = f"correct or unset {proxy.variable}" if proxy.variable != SYSTEM else "correct it"
        return f"the proxy {in_one_line(proxy.shown)} cannot be reached ({why}): {fix}"
    return {
        Failure.UNTRUSTED: f"the certificate of {peer.name} is not trusted ({why}):"
        f" {peer.if_untrusted}",
        Failure.NO_TLS: f"{peer.name} does not speak TLS: {peer.if_not_tls}",
        Failure.UNREACHABLE: f"{peer.name} cannot be reached ({why}): {peer.if_unreachable}",
        Failure.SILENT: f"{peer.name} did not answer in time ({why}): it hangs, or is overloaded",
        Failure.NOT_HTTP: f"{peer.name} does not speak HTTP ({why}): check its address",
        Failure.LOST: f"the connection to {peer.name} was lost ({why}): {peer.if_unreachable}",
    }[kind]


def refused_by_proxy(proxy: Proxy | None, why: str) -> str:
    """Return the message for a proxy that refuses to connect, or wants a login."""
    if proxy is None:
        return f"the proxy refused ({why}): check HTTPS_PROXY and NO_PROXY"
    shown = in_one_line(proxy.shown)
    if str(PROXY_LOGIN) in why or "auth" in why.lower() or "password" in why.lower():
        scheme, _, host = proxy.address.rpartition("://")
        if proxy.has_login:
            return f"the proxy {shown} refused the login in {proxy.variable}: correct it"
        example = f"{scheme or 'http'}://NAME:PASSWORD@{host}"
        return f"the proxy {shown} requires a login: set {proxy.variable}={example}"
    return f"the proxy {shown} refused ({why}): check {proxy.variable} and NO_PROXY"


def url_of(error: BaseException) -> str:
    """Return the URL of the request that failed; empty if it is not known."""
    try:
        return str(error.request.url)  # type: ignore[attr-defined]
    except (AttributeError, RuntimeError):
        return ""


def proxy_of(error: BaseException) -> Proxy | None:
    """Return the proxy that the request took."""
    url = url_of(error)
    return find_proxy(url) if url else None


def server_of(url: str) -> str:
    """Return a URL without a user, a password and a path; empty for a URL without a server."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}" if parts.netloc else ""


def reason(error: BaseException) -> str:
    """Return the innermost reason of an error in one line, without passwords."""
    cause = list(_chain(error))[-1]
    if isinstance(cause, ExceptionGroup):
        return reason(cause.exceptions[0])
    if isinstance(untrusted := _untrusted(error), ssl.SSLCertVerificationError):
        return _short(getattr(untrusted, "verify_message", "") or str(untrusted))
    if isinstance(cause, OSError) and cause.errno and cause.errno > 0:
        return os.strerror(cause.errno).lower()  # asyncio has words of its own
    text = cause.strerror if isinstance(cause, OSError) and cause.strerror else str(cause)
    if "peer closed connection" in text or "Server disconnected" in text:
        return "connection closed"
    return _short(text or str(error) or type(cause).__name__)


def _short(text: str) -> str:
    text = without_password(in_one_line(" ".join(text.split()))).rstrip(".")
    return text if len(text) <= LONGEST_REASON else f"{text[:LONGEST_REASON]}…"


def _untrusted(error: BaseException) -> BaseException | None:
    """Return the error of a certificate that is not trusted, if that is the cause."""
    causes = list(_chain(error))
    verified = [cause for cause in causes if isinstance(cause, ssl.SSLCertVerificationError)]
    named = [cause for cause in causes if "CERTIFICATE_VERIFY_FAILED" in str(cause)]
    return next(iter(verified or named), None)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    """Yield an error and what caused it, from the outermost to the innermost."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__
