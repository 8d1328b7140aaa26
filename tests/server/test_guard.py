"""Who may ask: Host, Origin, content type, size and key, checked in this order."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest

from server.conftest import Running, StartServer
from server.raw_http import connect, exchange, read_reply
from specchat.network.loopback import is_loopback
from specchat.server.guard import LARGEST_BODY, Access, host_of
from tables import table

PAGE = "http://app.example:3000"
KEY = "the-kéy"
CHAT, MESSAGES = "/v1/chat/completions", "/v1/messages"
GOOD: dict[str, Any] = {
    "host": "localhost:8642",
    "origin": PAGE,
    "content-type": "application/json",
    "authorization": f"Bearer {KEY}".encode(),
}
BODY = json.dumps({"messages": [{"role": "user", "content": "hi"}], "max_tokens": 1})


@pytest.fixture(scope="module")
def guarded(start_server: StartServer, demo_server: Running) -> Running:
    """Return a server with a key, for this machine and one page."""
    access = Access(frozenset(), frozenset({PAGE}), KEY)
    return start_server(access=access, service=demo_server.service)


WRONG: tuple[tuple[str, Any, int], ...] = (
    ("host", "evil.example", 403),
    ("origin", "http://evil.example", 403),
    ("content-type", "text/plain", 415),
    ("content-length", str(LARGEST_BODY + 1), 413),
    ("authorization", "Bearer wrong", 401),
)
TEXTS = ("this server is not evil.example", "pages of", "application/json", "MiB", "key")


@table("path", [CHAT, MESSAGES, "/v1/nothing"])
@table("first", range(len(WRONG)))
def test_checks_have_an_order(guarded: Running, first: int, path: str) -> None:
    """A request that is wrong in several ways hears of the first, in the API's own shape."""
    for later in range(first, len(WRONG)):
        wrong = {name: text for name, text, _ in WRONG[first : later + 1]}
        headers = {"content-length": "2", **GOOD, **wrong}
        lines = [f"POST {path} HTTP/1.1".encode()]
        for name, text in headers.items():
            lines.append(
                name.encode() + b": " + (text if isinstance(text, bytes) else text.encode())
            )
        reply = exchange(guarded.address, b"\r\n".join([*lines, b"", b"{}"]))

        assert reply.status == WRONG[first][2]
        body = json.loads(reply.body)
        assert TEXTS[first] in body["error"]["message"]
        assert body["error"]["type"]
        assert ("code" in body["error"]) == (path != MESSAGES)
        assert body.get("type") == ("error" if path == MESSAGES else None)


def test_a_request_that_is_right_in_all_ways_is_answered(guarded: Running) -> None:
    """From an allowed page, and the page may read the answer."""
    reply = guarded.client.post(CHAT, content=BODY, headers=GOOD)
    assert reply.status_code == 200
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["vary"] == "Origin"


@table(
    ("headers", "status"),
    [
        ({"authorization": f"Bearer {KEY}".encode()}, 200),
        ({"authorization": f"bearer  {KEY}".encode()}, 200),
        ({"x-api-key": KEY.encode()}, 200),
        ({"authorization": "Bearer other", "x-api-key": KEY.encode()}, 200),
        ({"authorization": f"Bearer {KEY}".encode(), "x-api-key": "other"}, 200),
        ({"authorization": f"Basic {KEY}".encode()}, 401),
        ({"authorization": KEY.encode()}, 401),
        ({"authorization": "Bearer"}, 401),
        ({"authorization": "Bearer the-key"}, 401),
        ({"x-api-key": f"{KEY}!".encode()}, 401),
        ({"x-api-key": b"\xff\xfe"}, 401),
        ({}, 401),
    ],
)
def test_the_key_comes_as_either_api_sends_it(
    guarded: Running, headers: dict[str, Any], status: int
) -> None:
    """As a bearer token or in x-api-key; if both are there, one must be right."""
    assert guarded.client.get("/v1/models", headers=headers).status_code == status


@table("path", ["/", "/health"])
@table("method", ["GET", "HEAD"])
def test_whether_the_server_is_there_may_be_asked_without_a_key(
    guarded: Running, path: str, method: str
) -> None:
    """But not by a page of another name."""
    assert guarded.client.request(method, path).status_code == 200
    assert guarded.client.request(method, path, headers={"host": "a.example"}).status_code == 403
    assert guarded.client.request(method, "/v1/models").status_code == 401


LOCAL = ("localhost", "LOCALHOST", "127.0.0.1", "127.9.8.7", "[::1]", "app.localhost")
FOREIGN = (
    *("evil.example", "localhost.evil.com", "127.0.0.1.evil.com", "evil.com.", "192.168.1.7"),
    *("0.0.0.0", "[::]", "[::1].evil.com", "[::1", "::1]", "[evil.com]"),  # noqa: S104
    *("localhost@evil.com", "evil.com#localhost", "evil.com/localhost", "localhost evil.com"),
    *("evil.com\\localhost", "localhost,evil.com", "l\xf6calhost", "2130706433", "", ":8642"),
)


@pytest.mark.parametrize("port", ["", ":8642"])
def test_only_names_of_this_machine_are_served(demo_server: Running, port: str) -> None:
    """A page whose name resolves to this machine (DNS rebinding) shows in Host."""
    for host, status in itertools.chain(
        ((each, 200) for each in LOCAL), ((each, 403) for each in FOREIGN)
    ):
        head = f"GET /health HTTP/1.1\r\nHost: {host}{port}\r\n\r\n".encode("latin-1")
        reply = exchange(demo_server.address, head)
        assert (host, reply.status) == (host, status)
        assert status == 200 or json.loads(reply.body)["error"]["type"] == "invalid_request_error"


@table("text", ["127.0.0.1:evil", "localhost:80:90", "localhost:8o", "[::1]:x"])
def test_a_host_with_what_is_not_a_port_is_nobodys(text: str) -> None:
    """It is not cut off."""
    assert not is_loopback(host_of(text))


@table("origin", ["http://evil.example", "null", f"{PAGE}.evil.com", "file://"])
def test_a_foreign_page_is_refused(guarded: Running, origin: str) -> None:
    """Its requests and its preflight, and it may not read why."""
    for method in ("GET", "POST", "OPTIONS"):
        reply = guarded.client.request(method, CHAT, headers={**GOOD, "origin": origin})
        assert reply.status_code == 403
        assert "access-control-allow-origin" not in reply.headers


@table("kind", [None, "text/plain", "application/x-www-form-urlencoded"])
def test_a_program_may_send_json_as_anything(demo_server: Running, kind: str | None) -> None:
    """As `curl -d` does; what a browser sends for a page may not, as no preflight guards it."""
    named = {} if kind is None else {"content-type": kind}
    url = f"{demo_server.address}{CHAT}"
    request = demo_server.client.build_request("POST", url, content=BODY, headers=named)
    assert ("content-type" in request.headers) == (kind is not None)
    assert demo_server.client.send(request).status_code == 200
    for header in ({"sec-fetch-site": "same-origin"}, {"referer": "http://localhost/"}):
        reply = demo_server.client.post(url, content=BODY, headers={**named, **header})
        assert reply.status_code == 415


def test_an_allowed_page_may_send_the_headers_it_asks_for(guarded: Running) -> None:
    """OpenAI's package for pages sends a dozen of its own; a preflight has no key."""
    asked = "authorization,content-type,x-stainless-lang"
    headers = {
        "origin": PAGE,
        "access-control-request-method": "POST",
        "access-control-request-headers": asked,
    }
    reply = guarded.client.options(CHAT, headers=headers)
    assert (reply.status_code, reply.content) == (204, b"")
    assert reply.headers["access-control-allow-origin"] == PAGE
    assert reply.headers["access-control-allow-headers"] == asked
    assert "POST" in reply.headers["access-control-allow-methods"]


def test_a_server_for_programs_has_no_header_for_pages(demo_server: Running) -> None:
    """Without --origin no page is served, not even one of this machine."""
    reply = demo_server.client.get("/v1/models")
    assert not {name for name in reply.headers if name.startswith("access-control")}
    for origin in ("http://localhost:8642", demo_server.address):
        assert demo_server.client.get("/v1/models", headers={"origin": origin}).status_code == 403


def test_an_error_can_be_read_by_an_allowed_page(guarded: Running) -> None:
    """So that a page shows more than "failed to fetch"."""
    headers = {**GOOD, "authorization": "Bearer wrong"}
    reply = guarded.client.post(CHAT, content=BODY, headers=headers)
    assert reply.status_code == 401
    assert reply.headers["access-control-allow-origin"] == PAGE


def test_a_body_without_a_length_is_limited_as_it_comes(demo_server: Running) -> None:
    """Sent in chunks, it is refused once it is too large."""
    head = (
        f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        "Transfer-Encoding: chunked\r\n\r\n"
    )
    part = b"%x\r\n%s\r\n" % (1 << 20, b" " * (1 << 20))
    reply = exchange(
        demo_server.address, head.encode(), rest=part * (LARGEST_BODY >> 20) + b"1\r\n \r\n"
    )
    assert reply.status == 413
    assert "MiB" in json.loads(reply.body)["error"]["message"]


def test_a_connection_is_used_again(demo_server: Running) -> None:
    """For requests of all kinds, also after an error and one without a body in its reply."""
    requests = [
        (b"HEAD /v1/models", b"", 200),
        (b"GET /v1/models", b"", 200),
        (b"GET /v1/nothing", b"", 404),
        (b"POST /v1/chat/completions", b"{}", 400),
        (b"POST /v1/chat/completions", BODY.encode(), 200),
        (b"GET /health", b"", 200),
    ]
    connection = connect(demo_server.address)
    for line, body, status in requests:
        head = b"%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n" % line
        connection.sendall(head + b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        if line.startswith(b"HEAD"):
            received = b""
            while not received.endswith(b"\r\n\r\n"):
                received += connection.recv(4096)
            assert b" 200 OK" in received
            continue
        assert read_reply(connection).status == status
    connection.close()
