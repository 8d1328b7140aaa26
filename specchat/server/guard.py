"""Who may ask: checks of Host, Origin, content type, size and key, in this order.

A page in the user's browser can send requests to this machine, so the address alone protects
nothing: a page of a name that resolves to it (DNS rebinding) shows in Host, any other in Origin,
and a form or a simple request in its content type, which is not JSON. Programs, which browsers'
headers tell from pages, may leave that out.
"""

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass

from starlette.datastructures import Headers
from starlette.responses import JSONResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from specchat.network.loopback import is_loopback
from specchat.server.api_errors import (
    FORBIDDEN,
    TOO_LARGE,
    UNAUTHORIZED,
    UNSUPPORTED_TYPE,
    ApiError,
    body_for,
)

LARGEST_BODY = 32 * 2**20
"""Bytes of a request; a context of a million tokens has about 4 MB."""
OPEN_PATHS = frozenset({"/health", "/"})
"""Paths that need no key; programs ask them whether the server is there."""
WITH_BODY = frozenset({"POST", "PUT", "PATCH"})
PAGE_HEADERS = ("origin", "referer", "sec-fetch-")
"""How the headers begin that browsers send for pages, and programs do not."""
ASKED_HEADERS = "access-control-request-headers"
PREFLIGHT_HEADERS = {
    "Access-Control-Allow-Methods": "GET, POST, OPTIONS",
    "Access-Control-Max-Age": "600",
}
HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[^\[\]:/@?#\\\s]*)(:\d*)?", re.ASCII)
"""A Host header: a name or address, IPv6 in brackets, and perhaps a port."""


@dataclass(frozen=True, slots=True)
class Access:
    """Who may use the server.

    `hosts` are the names under which it may be addressed beside this machine's own ones; None
    allows any, which needs a key. `origins` are the pages that may use it, `key` what a request
    must bring, None for nothing.
    """

    hosts: Collection[str] | None = frozenset()
    origins: Collection[str] = frozenset()
    key: str | None = None


class Guard:
    """ASGI middleware that turns away what `Access` does not allow."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        """Guard an application."""
        self._app, self._access = app, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Check a request, then pass it on; add what a browser needs for an allowed page."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        origin = headers.get("origin", "")
        try:
            self._check_sender(headers, origin)
            if scope["method"] == "OPTIONS" and origin:
                await self._preflight(headers)(scope, receive, self._with_cors(send, origin))
                return
            self._check_content(scope, headers)
            self._check_key(scope, headers)
        except ApiError as error:
            body = body_for(scope["path"])(error)
            answer = JSONResponse(body, error.status, dict(error.headers))
            await answer(scope, receive, self._with_cors(send, origin))
            return
        await self._app(scope, _limited(receive), self._with_cors(send, origin))

    def _check_sender(self, headers: Headers, origin: str) -> None:
        host = host_of(headers.get("host", ""))
        hosts = self._access.hosts
        if hosts is not None and not (is_loopback(host) or host in hosts):
            raise ApiError(
                FORBIDDEN,
                f"this server is not {host or 'a server without a Host'}: use its address",
            )
        if origin and not self._allows(origin):
            raise ApiError(
                FORBIDDEN, f"pages of {origin} may not use this server: start it with --origin"
            )

    def _check_content(self, scope: Scope, headers: Headers) -> None:
        if scope["method"] not in WITH_BODY:
            return
        kind = headers.get("content-type", "").partition(";")[0].strip().lower()
        is_from_page = any(name.startswith(PAGE_HEADERS) for name in headers)
        if kind != "application/json" and is_from_page:
            raise ApiError(UNSUPPORTED_TYPE, "the body must be application/json")
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > LARGEST_BODY:
            raise _too_large()

    def _check_key(self, scope: Scope, headers: Headers) -> None:
        key = self._access.key
        if key is None or scope["path"] in OPEN_PATHS:
            return
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = [headers.get("x-api-key", ""), bearer if scheme.lower() == "bearer" else ""]
        # Starlette decodes headers as Latin-1, whatever they are
        matches = [
            secrets.compare_digest(each.strip().encode("latin-1"), key.encode()) for each in given
        ]
        if not any(matches):
            raise ApiError(UNAUTHORIZED, "wrong or missing key", code="invalid_api_key")

    def _allows(self, origin: str) -> bool:
        return origin in self._access.origins

    def _preflight(self, headers: Headers) -> Response:
        """Return what lets an allowed page send the headers it asks for."""
        allowed = {**PREFLIGHT_HEADERS, "Vary": ASKED_HEADERS}
        if asked := headers.get(ASKED_HEADERS):
            allowed["Access-Control-Allow-Headers"] = asked
        return Response(status_code=204, headers=allowed)

    def _with_cors(self, send: Send, origin: str) -> Send:
        if not self._access.origins:
            return send
        added = [(b"vary", b"Origin")]
        if self._allows(origin):
            added.append((b"access-control-allow-origin", origin.encode("latin-1")))

        async def send_with(message: Message) -> None:
            if message["type"] == "http.response.start":
                message = {**message, "headers": [*message.get("headers", ()), *added]}
            await send(message)

        return send_with


def host_of(text: str) -> str:
    """Return a Host header's name or address without its port, in lower case.

    What is not a Host header is returned whole, which is nobody's name.
    """
    match = HOST.fullmatch(text)
    return match[1].strip("[]").lower() if match else text


def _limited(receive: Receive) -> Receive:
    """Return what receives a request of at most LARGEST_BODY bytes."""
    num_bytes = 0

    async def limited() -> Message:
        nonlocal num_bytes
        message = await receive()
        num_bytes += len(message.get("body", b""))
        if num_bytes > LARGEST_BODY:
            raise _too_large()
        return message

    return limited


def _too_large() -> ApiError:
    return ApiError(TOO_LARGE, f"the body exceeds {LARGEST_BODY >> 20} MiB")
