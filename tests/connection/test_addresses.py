"""What people write for a server's address."""

from __future__ import annotations

import pytest

from specchat.connection.address import ServerAddress, parse_address
from specchat.errors import InvalidOption
from tables import table

BASES = {
    "localhost": "http://localhost:8642",
    "127.0.0.1": "http://127.0.0.1:8642",
    "127.0.0.1:8080": "http://127.0.0.1:8080",
    "http://127.0.0.1": "http://127.0.0.1",
    "http://gpu:8000/": "http://gpu:8000",
    "http://gpu:8000/v1": "http://gpu:8000",
    "http://gpu:8000/v1/": "http://gpu:8000",
    "http://gpu:8000/v1/models": "http://gpu:8000",
    "http://gpu:8000/v1/chat/completions": "http://gpu:8000",
    "HTTPS://gpu.example/openai/v1": "https://gpu.example/openai",
    "gpu.local:1234": "http://gpu.local:1234",
    "[::1]:8080": "http://[::1]:8080",
    "http://gpu:8000/#/chat": "http://gpu:8000",
    "unix:/run/chat.sock": "http://localhost",
    " http://gpu:8000/v1 ": "http://gpu:8000",
    "http://gpu:8000/V1/v1": "http://gpu:8000",
    "http://gpu:8000//v1": "http://gpu:8000",
    "http://0.0.0.0:8000": "http://127.0.0.1:8000",
    "http://[::]:8000": "http://[::1]:8000",
}


@table("written", BASES)
def test_all_forms_of_an_address_lead_to_the_same_endpoints(written: str) -> None:
    """People copy addresses from documentation of all kinds."""
    assert parse_address(written).base == BASES[written]


@table(
    ("written", "reason"),
    [
        ("ftp://gpu", "begins with http:// or https://"),
        ("http://me:secret@gpu:8000", "SPECCHAT_API_KEY"),
        ("ftp://me:secret@gpu:8000", "SPECCHAT_API_KEY"),
        ("http:/me:secret@gpu:8000", "SPECCHAT_API_KEY"),
        ("gpu:99999", "from 1 to 65535"),
        ("two words", "not the address of a server"),
        ("", "not the address of a server"),
        ("http://", "not the address of a server"),
        ("unix:", "the path of a socket"),
    ],
)
def test_what_is_no_address_is_refused_in_one_line(written: str, reason: str) -> None:
    """And passwords are not repeated."""
    with pytest.raises(InvalidOption, match=reason) as raised:
        parse_address(written)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@table(
    ("written", "is_here"),
    [
        ("localhost:1", True),
        ("127.3.2.1:1", True),
        ("[::1]:1", True),
        ("unix:/x", True),
        ("localhost.:1", True),
        ("[::ffff:127.0.0.1]:1", True),
        ("0.0.0.0:1", True),
        ("10.0.0.2:1", False),
        ("localhost.example.org:1", False),
    ],
)
def test_only_loopback_is_this_machine(written: str, is_here: bool) -> None:
    """Names that only look like this machine are on the network."""
    assert parse_address(written).is_here is is_here


def test_a_socket_in_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a shell would read it."""
    monkeypatch.setenv("HOME", "/home/me")
    assert parse_address("unix:~/chat.sock").unix_path == "/home/me/chat.sock"


def test_a_key_is_not_shown_by_accident() -> None:
    """Not in logs and errors."""
    assert "secret" not in repr(ServerAddress("http://gpu", key="secret"))
