"""Servers that are gone, slow, refuse, or are none: one line each, with the next step."""

from __future__ import annotations

import re
import socket
import threading
from pathlib import Path

import pytest

from connection.recording import read_recording
from connection.scripted_server import (
    Answer,
    ScriptedServer,
    json_answer,
    text_answer,
    write_certificate,
)
from specchat.connection import http_session
from specchat.connection.address import parse_address
from specchat.connection.connected_engine import ConnectedEngine
from specchat.decoding.chunk import Chunk
from specchat.errors import ContextFull, InvalidOption, ServerFailed, SpecchatError
from specchat.formats.chat_message import ChatMessage
from tables import table

QUESTION: list[ChatMessage] = [{"role": "user", "content": "hi"}]
CHAT, MODELS = "/v1/chat/completions", "/v1/models"
PAGE = "<!DOCTYPE html><html><body>Please log in</body></html>"


def refusal(server: ScriptedServer, key: str = "") -> str:
    """Return the one line that connecting fails with."""
    address = parse_address(server.address)
    object.__setattr__(address, "key", key)
    with pytest.raises(ServerFailed) as raised:
        ConnectedEngine(address)
    line = str(raised.value)
    assert "\n" not in line
    assert line.startswith(server.address.removeprefix("http://")) or "certificate" in line
    return line


def failure(answer: Answer, name: str = "vllm") -> tuple[str, SpecchatError]:
    """Return the text of an answer, and what it fails with after that."""
    with read_recording(name).server() as server:
        server.put("POST", CHAT, answer)
        with ConnectedEngine(parse_address(server.address)) as engine:
            chunks: list[Chunk] = []
            with pytest.raises(SpecchatError) as raised:
                chunks.extend(engine.answer(QUESTION))
            text = "".join(chunk.reasoning + chunk.text for chunk in chunks)
            assert "\n" not in str(raised.value)
            assert "Traceback" not in str(raised.value)
            # the next answer works: nothing is left of the failed one
            whole = read_recording(name).stream(**{"stream_options.include_usage": True})
            server.put("POST", CHAT, whole)
            assert list(engine.answer(QUESTION))[-1].finish == "stop"
            return text, raised.value


def test_a_server_that_is_not_there() -> None:
    """Nothing listens at the port."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = parse_address(f"127.0.0.1:{taken.getsockname()[1]}")
    with pytest.raises(ServerFailed, match=r"cannot be reached .connection refused.: check"):
        ConnectedEngine(address)


def test_a_server_that_says_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """It accepts the connection, and then hangs."""
    monkeypatch.setattr(http_session, "SILENT_SECONDS", 0.3)
    monkeypatch.setattr("specchat.connection.server_errors.SILENT_SECONDS", 0.3)
    stalled = (
        read_recording("vllm").stream(**{"stream_options.include_usage": True}).cut(3, "stall")
    )
    text, error = failure(stalled)
    assert "Okay" in text
    assert "sent nothing for" in str(error)


def test_a_server_that_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its list of models has a limit as a whole, not only for each byte."""
    monkeypatch.setattr("specchat.connection.probing.LIST_SECONDS", 0.5)
    pieces = [piece for _ in range(200) for piece in (b" ", 0.05)]
    with ScriptedServer() as server:
        server.put(
            "GET", MODELS, Answer(200, {"Content-Type": "application/json"}, pieces, "close")
        )
        assert "did not answer within" in refusal(server)


@pytest.mark.parametrize("ending", ["cut", "reset"])
def test_a_stream_that_is_cut(ending: str) -> None:
    """What has arrived is kept."""
    stream = read_recording("vllm").stream(**{"stream_options.include_usage": True})
    text, error = failure(stream.cut(4, ending))  # type: ignore[arg-type]
    assert "Okay" in text
    assert isinstance(error, ServerFailed)
    assert "ended the answer early (connection " in str(error)


def test_a_stream_without_its_end() -> None:
    """Ollama loses errors that come after the first token, and just ends."""
    lost = read_recording("ollama").named["lost_error"].answers[0]
    text, error = failure(lost, "ollama")
    assert text == "The answer"
    assert "ended the answer early" in str(error)


def test_an_error_within_a_stream() -> None:
    """The server's own words are shown."""
    text, error = failure(read_recording("vllm").named["error_in_stream"].answers[0])
    assert "Okay" in text
    assert isinstance(error, ServerFailed)
    busy = read_recording("sglang").named["busy_in_stream"].answers[0]
    text, error = failure(busy, "sglang")
    assert not text
    assert "The request queue is full" in str(error)


@pytest.mark.parametrize("name", ["vllm", "sglang"])
def test_a_wrong_key(name: str) -> None:
    """The line says where the key comes from, and never what it is."""
    wrong = read_recording(name).named["wrong_key"].answers[0]
    with ScriptedServer() as server:
        server.put("GET", MODELS, wrong)
        assert re.search(r"needs a key( \(\w+\))?: set SPECCHAT_API_KEY$", refusal(server))
        line = refusal(server, "s3cret")
        assert "rejected the key from SPECCHAT_API_KEY" in line
        assert "s3cret" not in line
        assert server.asked(MODELS)[-1].headers["authorization"] == "Bearer s3cret"
        assert "authorization" not in server.asked(MODELS)[0].headers


@table(
    "answer",
    [
        text_answer(PAGE, kind="text/html"),
        text_answer(PAGE, 404, kind="text/html"),
        text_answer("hello"),
        json_answer({"status": "ok"}),
        json_answer(["x"]),
        Answer(200, {"Content-Type": "application/json"}, [b'{"data": [']),
        Answer(200, {"Content-Type": "application/json"}, [b"[" * 100_000]),
    ],
    ids=["page", "page with 404", "text", "no models", "list", "half of it", "too deep"],
)
def test_something_else_listens_there(answer: Answer) -> None:
    """A login page, another service, or half an answer."""
    with ScriptedServer() as server:
        server.put("GET", MODELS, answer)
        assert "not like an OpenAI-compatible API: check the address" in refusal(server)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        (b"SSH-2.0-OpenSSH_9.2\r\n", r"was lost .connection closed.:"),
        (b"220 mail ready\r\n\r\n", "does not speak HTTP"),
    ],
)
def test_a_program_that_does_not_speak_http(said: bytes, reason: str) -> None:
    """An SSH server, for example."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def talk() -> None:
            client, _ = listener.accept()
            client.recv(1 << 16)
            client.sendall(said)
            client.close()

        threading.Thread(target=talk, daemon=True).start()
        with pytest.raises(ServerFailed, match=reason):
            ConnectedEngine(parse_address(f"127.0.0.1:{listener.getsockname()[1]}"))


def test_a_page_instead_of_a_stream() -> None:
    """A proxy answers in place of the server, with 200."""
    _, error = failure(text_answer(PAGE, kind="text/html"))
    assert "not like an OpenAI-compatible API" in str(error)


@pytest.mark.parametrize("status", [301, 307])
def test_a_server_that_has_moved(status: int) -> None:
    """A key is not sent to another place without a word."""
    moved = Answer(status, {"Location": "https://other.example/v1/models"})
    with ScriptedServer() as server:
        server.put("GET", MODELS, moved)
        assert "moved to https://other.example/v1/models: use that address" in refusal(server)


def test_a_server_with_too_much_to_do() -> None:
    """When to try again is said if the server says it."""
    wait = json_answer({"error": {"message": "slow down"}}, 429, Retry_After="7")
    _, error = failure(wait)
    assert "slow down" in str(error)
    assert "try again in 7 s" in str(error)
    _, error = failure(read_recording("ollama").named["busy"].answers[0], "ollama")
    assert "server busy" in str(error)


def test_a_model_that_is_gone() -> None:
    """It was there when the chat began."""
    _, error = failure(read_recording("vllm").named["wrong_model"].answers[0])
    assert "The model `nope` does not exist" in str(error)
    assert "--served-model" in str(error)


@table(
    ("name", "case", "tokens", "capacity"),
    [
        ("vllm", "too_long", 40961, 32768),
        ("vllm", "too_long_before_0_15", 41473, 32768),
        ("sglang", "too_long", 61709, 40960),
        ("lm_studio", "too_long", 14538, 8192),
        ("lm_studio", "too_long_without_stream", 14538, 8192),
        ("ollama", "too_long", 0, 0),
    ],
)
def test_a_conversation_that_is_too_long(name: str, case: str, tokens: int, capacity: int) -> None:
    """Each server has words of its own for it."""
    _, error = failure(read_recording(name).named[case].answers[0], name)
    assert isinstance(error, ContextFull)
    assert (error.num_tokens, error.capacity) == (tokens, capacity)


def test_a_request_that_is_refused() -> None:
    """The server says what it does not like."""
    _, error = failure(read_recording("ollama").named["no_thinking"].answers[0], "ollama")
    assert isinstance(error, InvalidOption)
    assert "does not support thinking" in str(error)


@table("body", [{"error": "text"}, {"detail": [{"loc": ["a"]}]}, "text", None])
def test_errors_of_any_shape_are_one_line(body: object) -> None:
    """Of some servers nothing but the status is known."""
    _, error = failure(json_answer(body, 500))
    assert "failed with status 500" in str(error)


def test_hostile_words_of_a_server_are_harmless() -> None:
    """No control characters, no line breaks, and not too many."""
    words = "\x1b[2Jx\nsecond line\r" + "long " * 1000
    _, error = failure(json_answer({"error": {"message": words}}, 500))
    assert "\x1b" not in str(error)
    assert len(str(error)) < 600


def test_tls_that_is_not_trusted_and_tls_that_is_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A certificate of one's own works once it is named."""
    certificate = write_certificate(tmp_path)
    if certificate is None:
        pytest.skip("this machine has no openssl program")
    with read_recording("vllm").server(certificate=certificate) as server:
        assert "is not trusted" in refusal(server)
        assert "SSL_CERT_FILE" in refusal(server)
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate))
        with ConnectedEngine(parse_address(server.address)) as engine:
            assert list(engine.answer(QUESTION))[-1].finish == "stop"
    with read_recording("vllm").server() as plain:
        address = plain.address.replace("http:", "https:")
        with pytest.raises(ServerFailed, match="does not speak TLS"):
            ConnectedEngine(parse_address(address))


def test_a_proxy_is_never_on_the_way_to_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """HTTP_PROXY without NO_PROXY breaks other clients here."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with read_recording("vllm").server() as server:
        ConnectedEngine(parse_address(server.address)).close()


@pytest.mark.parametrize(
    ("proxy", "reason"),
    [
        ("127.0.0.1:9", "the proxy 127.0.0.1:9 (http_proxy) cannot be reached"),
        ("ftp://127.0.0.1:9", "http_proxy is ftp://127.0.0.1:9, which specchat cannot use as a"),
        ("http://127.0.0.1:9", "the proxy http://127.0.0.1:9"),
        ("http://127.0.0.1:99999", "http_proxy is http://127.0.0.1:99999, which specchat cannot"),
        ("http://me:secret@127.0.0.1:9", "the proxy http://127.0.0.1:9"),
        ("socks9://me:secret@127.0.0.1:9", "http_proxy is socks9://127.0.0.1:9, which specchat"),
    ],
)
def test_a_proxy_that_does_not_work_is_named(
    proxy: str, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is not the server that is wrong."""
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, proxy)
    with pytest.raises(ServerFailed, match=re.escape(reason)) as raised:
        ConnectedEngine(parse_address("http://gpu.example:8000"))
    assert "\n" not in str(raised.value)
    assert "secret" not in str(raised.value)


def test_socks_without_its_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """The variable is named, and the package."""
    monkeypatch.setattr("importlib.util.find_spec", lambda name: name != "socksio" or None)
    monkeypatch.setenv("all_proxy", "socks5://me:secret@127.0.0.1:9")
    monkeypatch.delenv("http_proxy", raising=False)
    monkeypatch.delenv("HTTP_PROXY", raising=False)
    with pytest.raises(
        ServerFailed, match=r"^all_proxy is socks5://127.*pip install socksio"
    ) as raised:
        ConnectedEngine(parse_address("http://gpu.example:8000"))
    assert "secret" not in str(raised.value)


def test_a_variable_that_names_no_certificates_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """With its path, before anything is sent."""
    monkeypatch.setenv("SSL_CERT_FILE", "/nowhere.pem")
    with pytest.raises(ServerFailed, match=r"^SSL_CERT_FILE is /nowhere.pem: no such file"):
        ConnectedEngine(parse_address("https://127.0.0.1:9"))


@table(
    "event",
    [
        b'event: error\ndata: {"code": 500, "message": "out of memory"}\n\n',
        b'data: {"object": "error", "message": "out of memory"}\n\n',
        b'data: {"error_type": "x", "error_message": "out of memory"}\n\n',
        b"event: error\ndata: out of memory\n\n",
    ],
)
def test_errors_of_other_shapes_within_a_stream(event: bytes) -> None:
    """Their words are not lost."""
    _, error = failure(Answer(200, {"Content-Type": "text/event-stream"}, [event], "chunked"))
    assert "out of memory" in str(error)


def test_other_servers_are_reached_by_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """As the environment says."""
    with read_recording("vllm").server() as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        monkeypatch.setenv("http_proxy", proxy.address)
        proxy.put("GET", MODELS, read_recording("vllm").answer("GET", MODELS))
        with ConnectedEngine(parse_address("http://gpu.example:8000")) as engine:
            assert engine.facts.target == "qwen3-8b"
        assert proxy.seen[0].target == "http://gpu.example:8000/v1/models"


def test_a_unix_socket(tmp_path: Path) -> None:
    """`specchat serve --socket` listens there."""
    place = tmp_path / "s"
    with read_recording("vllm").server(unix=place) as server:
        engine = ConnectedEngine(parse_address(server.address))
        with engine:
            assert engine.facts.served_by == f"vLLM at unix:{place}"
