"""The scripted server itself: it sends what the script says, and notices what clients do."""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import threading
from contextlib import closing, suppress
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from connection.recording import FOLDER, parse_recording, read_recording
from connection.scripted_server import (
    DONE,
    HTML,
    Answer,
    ScriptedServer,
    event_answer,
    json_answer,
    write_certificate,
)
from server.raw_http import connect, exchange
from tables import table

CHAT = "/v1/chat/completions"
RECORDED = """\
# Small 1.0: written by hand
# for this test
> GET /v1/models
< 200
< Content-Type: application/json
< Server: small
{"data": []}

> GET /metrics
< 200
< Content-Type: text/plain; version=0.0.4
# HELP drafts All drafts.
drafts_total 1

> GET /metrics
< 200
< Content-Type: text/plain
drafts_total 3

> POST /v1/chat/completions
? stream=true
? stream_options.include_usage=true
< 200
< Content-Type: text/event-stream
data: {"text": "é"}

~ 0.25
: quiet

data: [DONE]

> POST /v1/chat/completions
< 400
< Content-Type: application/json
{"error": "stream"}

> GET /v1/models (busy)
< 503
< Retry-After: 1
"""


def _ask(server: ScriptedServer, method: str, path: str, body: object = None) -> tuple[int, bytes]:
    address = urlsplit(server.address).netloc
    with closing(http.client.HTTPConnection(address, timeout=30)) as connection:
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        return response.status, response.read()


def test_replays_a_recording_and_keeps_what_it_was_asked() -> None:
    """Routes differ by their body, the same request again gets the next answer."""
    recording = parse_recording(RECORDED)
    assert recording.about == "Small 1.0: written by hand\nfor this test"
    usage = {"stream": True, "stream_options": {"include_usage": True}}
    with recording.server() as server:
        assert _ask(server, "GET", "/v1/models") == (200, b'{"data": []}')
        first, *others = (_ask(server, "GET", "/metrics?x=1")[1] for _ in range(3))
        assert first == b"# HELP drafts All drafts.\ndrafts_total 1\n"
        assert others == [b"drafts_total 3\n"] * 2
        events = 'data: {"text": "é"}\n\n: quiet\n\ndata: [DONE]\n\n'
        assert _ask(server, "POST", CHAT, usage) == (200, events.encode())
        assert _ask(server, "POST", CHAT, {"stream": True}) == (400, b'{"error": "stream"}')
        assert _ask(server, "GET", "/other") == (404, b'{"detail": "Not Found"}')
        assert [seen.json() for seen in server.asked(CHAT)] == [usage, {"stream": True}]
    assert recording.named["busy"].answers[0].headers == {"Retry-After": "1"}
    paced = parse_recording(RECORDED, paced=True).stream(**usage, **{
        "stream_options.include_usage": True
    })  # fmt: skip
    assert paced.pieces[1] == 0.25


def test_a_test_can_answer_otherwise() -> None:
    """Answers that a test puts come before those of the recording, one after the other."""
    with parse_recording(RECORDED).server() as server:
        server.put("GET", "/v1/models", json_answer({}, 429, Retry_After="2"), json_answer({}))
        server.put("POST", CHAT, Answer(502, HTML, [b"<html>"], "close"), stream=True)
        reply = exchange(server.address, b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n")
        assert (reply.status, reply.headers["retry-after"]) == (429, "2")
        assert _ask(server, "GET", "/v1/models") == (200, b"{}")
        assert _ask(server, "POST", CHAT, {"stream": True}) == (502, b"<html>")
        assert _ask(server, "POST", CHAT, {})[0] == 400


def test_pieces_break_characters() -> None:
    """A stream in pieces of one byte is the same stream."""
    whole = event_answer([{"text": "é"}, b": note\n\n"])
    assert whole.body == b'data: {"text": "\\u00e9"}\n\n: note\n\n' + DONE
    broken = event_answer(["é".encode() * 3], is_done=False).in_pieces(1)
    assert len(broken.pieces) == 6
    assert broken.with_bytes(bytes.upper).body == broken.body
    with ScriptedServer() as server:
        server.put("GET", "/", broken)
        assert _ask(server, "GET", "/") == (200, "ééé".encode())


@pytest.mark.parametrize(
    ("ending", "error"), [("cut", http.client.IncompleteRead), ("reset", OSError)]
)
@pytest.mark.parametrize("framing", ["chunked", "length"])
def test_cuts_the_connection(
    ending: str, error: type[Exception], framing: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """A client that reads on finds the end, or an error, instead of an end of the body."""
    with ScriptedServer() as server:
        answer = Answer(200, {}, [b"one", b"two"], framing, ending)  # type: ignore[arg-type]
        server.put("GET", "/", answer)
        with pytest.raises(error):
            _ask(server, "GET", "/")
    assert not capfd.readouterr().err  # the server itself is fine
    assert answer.cut(1).body == b"one"
    assert answer.cut(1, "stall").ending == "stall"


def test_notices_that_a_client_leaves() -> None:
    """A client that leaves a stalled answer, or one that waits, is noticed."""
    gate = threading.Event()
    with ScriptedServer() as server:
        server.put("GET", "/stalled", event_answer([{}]).cut(1, "stall"))
        server.put("GET", "/held", event_answer([{}, {}]).hold(1, gate))
        for path in ("/stalled", "/held"):
            with connect(server.address) as connection:
                connection.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\n\r\n".encode())
                assert server.wait_until_asked(path).path == path
                received = b""
                while b"data: {}" not in received:
                    received += connection.recv(1000)
            assert server.wait_until_left(path).path == path
        gate.set()
        assert _ask(server, "GET", "/held") == (200, b"data: {}\n\n" * 2 + DONE)
        assert [seen.path for seen in server.left] == ["/stalled", "/held"]


def test_a_stale_connection_is_closed_without_a_word() -> None:
    """The answer is whole and allows another request, and then the connection is gone."""
    with ScriptedServer() as server:
        server.put("GET", "/", Answer(200, {}, [b"one"], ending="stale"))
        with connect(server.address) as connection:
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            received = b""
            while part := connection.recv(1000):
                received += part
        assert received == b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\none"
        assert server.num_connections == 1


def test_speaks_tls(tmp_path: Path) -> None:
    """Its certificate is for 127.0.0.1, and trusted only by who was given it."""
    certificate = write_certificate(tmp_path)
    if certificate is None:
        pytest.skip("this machine has no openssl program")
    with ScriptedServer(certificate=certificate) as server:
        server.put("GET", "/", Answer(200, {}, [b"one"]))
        address = urlsplit(server.address)
        assert address.scheme == "https"
        stranger = ssl.create_default_context()
        with (
            pytest.raises(ssl.SSLCertVerificationError),
            connect(server.address) as plain,
            stranger.wrap_socket(plain, server_hostname="127.0.0.1"),
        ):
            pass
        trusting = ssl.create_default_context(cafile=str(tmp_path / "one.pem"))
        connection = http.client.HTTPSConnection(address.netloc, timeout=30, context=trusting)
        connection.request("GET", "/")
        assert connection.getresponse().read() == b"one"
        connection.close()
        with connect(server.address) as plain, suppress(ConnectionError):
            plain.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert b"one" not in plain.recv(1000)
        assert len(server.seen) == 1


def test_listens_on_a_unix_socket(tmp_path: Path) -> None:
    """With a path it has no port."""
    if not hasattr(socket, "AF_UNIX"):
        pytest.skip("this system has no Unix sockets")
    with ScriptedServer(unix=tmp_path / "s") as server:
        server.put("GET", "/", Answer(200, {}, [b"one"]))
        assert server.address == f"unix:{tmp_path / 's'}"
        with socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(tmp_path / "s"))
            connection.sendall(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
            assert connection.recv(1000).startswith(b"HTTP/1.1 200 OK")


@table("path", sorted(FOLDER.glob("*.txt")), ids=lambda path: path.stem)
def test_recordings_are_sound(path: Path) -> None:
    """Each recording says what it is after, and what should be JSON is."""
    recording = read_recording(path.stem)
    assert len(recording.about.split()) > 3
    routes = [*recording.routes, *recording.named.values()]
    assert routes
    for answer in [answer for route in routes for answer in route.answers]:
        kind = answer.headers.get("Content-Type", "")
        if kind.startswith("application/json"):
            json.loads(answer.body)
        for line in answer.body.decode().splitlines() if "event-stream" in kind else ():
            name, _, data = line.partition(":")
            assert name in {"", "data", "event"}, line
            if name == "data" and data.strip() != "[DONE]":
                json.loads(data)
