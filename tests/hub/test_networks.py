"""Networks with a will of their own: rate limits, login pages, IPv6, dead addresses."""

from __future__ import annotations

import signal
import socket
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from pathlib import Path
from typing import Any

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError

from catalogue_files import CONTENT, FILE, SHA256, blobs, get, parts
from hub_server import Fault, HubServer
from specchat.doctor.host import check_network
from specchat.errors import DownloadFailed
from specchat.hub.download import download
from specchat.hub.hub_errors import LONGEST_WAIT, RetryPolicy, seconds_to_wait
from specchat.hub.references import Reference
from specchat.hub.tally import Tally
from specchat.hub.transfer import DownloadProgress
from specchat.wording import progress_percent
from tables import table

ROOT = Path(__file__).parents[2]
PAGE = b"<!DOCTYPE html><html><title>Hotel</title>Please log in</html>" * 100
HTML = {"Content-Type": "text/html; charset=utf-8"}


@pytest.fixture(autouse=True)
def _one_file(hub: HubServer) -> None:
    """Every hub here has the one file."""
    hub.put(FILE.repository, FILE.file, CONTENT)


def refusal(*references: Reference) -> str:
    """Return why a download fails, in one line."""
    with pytest.raises(DownloadFailed) as raised:
        get(*references, waits=())
    line = str(raised.value)
    assert "\n" not in line
    assert len(line) < 240
    return line


def limited(**headers: str) -> HfHubHTTPError:
    """Return what is raised for too many requests, with headers."""
    request = httpx2.Request("GET", "http://127.0.0.1")
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return HfHubHTTPError("no", response=httpx2.Response(429, headers=named, request=request))


def in_seconds(seconds: float) -> str:
    """Return a time as HTTP writes it."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


@table(
    ("headers", "seconds"),
    [
        ({"Retry_After": "17"}, 17),
        ({"RateLimit": '"api";r=0;t=55'}, 55),
        ({"Retry_After": "000000000000017"}, 17),
        ({"Retry_After": "9" * 400}, 1e9),
        ({"Retry_After": "9" * 5000}, 1e9),
        ({"RateLimit": f'"api";r=0;t={"9" * 400}'}, 1e9),
        ({"RateLimit": '"resolvers"; r=0; t=7', "Retry_After": "3"}, 3),
    ],
    ids=["seconds", "limit", "zeros", "far too long", "no int", "far too long limit", "both"],
)
def test_what_the_hub_asks_to_wait_is_read(headers: dict[str, str], seconds: float) -> None:
    """In seconds, or as the hub itself writes it."""
    assert seconds_to_wait(limited(**headers)) == seconds


def test_a_date_to_wait_for_is_read() -> None:
    """One that is past asks for nothing more."""
    seconds = seconds_to_wait(limited(Retry_After=in_seconds(9e5)))
    assert seconds is not None
    assert 9e5 - 600 <= seconds <= 9e5
    assert seconds_to_wait(limited(Retry_After=in_seconds(-60))) == 0


@table(
    "headers",
    [{}, {"Retry_After": "soon"}, {"Retry_After": "-5"}, {"RateLimit": '"api";r=12;t=55'},
     {"Retry_After": "Wed, 99 Oct 2015 07:28:00 GMT"},
     {"Retry_After": "Wed, 21 Oct 2015 07:28:00"}],
    ids=str,
)  # fmt: skip
def test_what_asks_for_nothing_is_ignored(headers: dict[str, str]) -> None:
    """The usual waits count then."""
    assert seconds_to_wait(limited(**headers)) is None


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize(
    ("on", "status"), [("HEAD", 429), ("GET", 429), ("GET", 503), ("storage", 503)]
)
def test_a_wait_that_the_hub_asks_for_counts_down(hub: HubServer, on: str, status: int) -> None:
    """Each second is shown, and then the file comes."""
    hub.faults = [Fault(on, status=status, headers={"Retry-After": "2"})]
    notes: list[str] = []
    (path,) = download([FILE], lambda progress: notes.append(progress.note), waits=(0.0,))

    assert path.read_bytes() == CONTENT
    shown = [note.partition(" (")[0] for note in dict.fromkeys(notes) if note]
    assert shown == ["retrying in 2 s", "retrying in 1 s"]
    cause = "limits requests" if status == 429 else "answers 503"
    assert any(cause in note for note in notes)


def test_a_wait_is_bounded(hub: HubServer) -> None:
    """What takes longer is left to the user, who learns how long."""
    stop = threading.Event()
    retries = RetryPolicy(FILE, (1.0,), stop, lambda note: None)
    with pytest.raises(DownloadFailed, match=r"limits requests \(429\): wait 6 min"):
        retries.wait(limited(Retry_After=str(int(LONGEST_WAIT) + 1)))
    longer = ("9" * 30, "9" * 400, in_seconds(9e5))
    for headers in (*({"Retry-After": text} for text in longer), {"RateLimit": "r=0;;r=0;t=86401"}):
        hub.faults = [Fault("HEAD", status=429, headers=headers)]
        assert "limits requests (429): wait more than a day" in refusal()


def test_ctrl_c_ends_a_wait(hub: HubServer) -> None:
    """With the command that goes on."""
    hub.faults = [Fault("HEAD", status=429, headers={"Retry-After": "200"}, times=9)]
    process = subprocess.Popen(
        [sys.executable, "-m", "specchat", "pull", str(FILE)],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
    )  # fmt: skip
    try:
        assert process.stderr
        first = process.stderr.readline()
        process.send_signal(signal.SIGINT)
        _, rest = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()

    assert "retrying in 200 s (the hub limits requests)" in first
    assert process.returncode == 130
    assert "specchat pull org/model/model-Q4.gguf" in rest
    assert "Traceback" not in rest


@pytest.mark.parametrize("kind", ["pinned", "unpinned"])
def test_a_login_page_in_place_of_the_hub_is_named(hub: HubServer, kind: str) -> None:
    """Nothing of it is kept; after the login the file comes."""
    commit = hub.branches[FILE.repository]
    pinned = Reference(FILE.repository, FILE.file, commit, len(CONTENT), SHA256)
    asked = pinned if kind == "pinned" else FILE
    hub.page = PAGE
    line = refusal(asked)

    assert line.startswith(f"{hub.address} sent a web page instead of {FILE}: ")
    assert "browser" in line
    assert (blobs(), parts()) == ([], [])
    hub.page = None
    assert get(asked)[0].read_bytes() == CONTENT


@pytest.mark.parametrize("headers", [HTML, {}], ids=["named", "unnamed"])
@pytest.mark.parametrize("on", ["GET", "storage"])
def test_a_login_page_in_place_of_the_bytes_is_named(
    hub: HubServer, on: str, headers: dict[str, str]
) -> None:
    """By its content type or by its first bytes; nothing of it is kept."""
    hub.faults = [Fault(on, status=200, headers=headers, body=PAGE)]
    address = hub.address if on == "GET" else hub.storage
    assert refusal().startswith(f"{address} sent a web page instead of {FILE}")
    assert (blobs(), parts()) == ([], [])
    assert get()[0].read_bytes() == CONTENT


def test_a_login_page_keeps_what_was_here(hub: HubServer) -> None:
    """The next run goes on after the bytes that came before it."""
    hub.faults = [
        Fault("storage", cut_body_at=80_000),
        Fault("storage", status=200, headers=HTML, body=PAGE),
    ]
    refusal()
    assert "web page" in refusal()
    assert parts()[0].read_bytes() == CONTENT[:80_000]
    assert get()[0].read_bytes() == CONTENT
    assert hub.num_sent == len(CONTENT) + len(PAGE)


@pytest.mark.parametrize(
    ("status", "headers", "words"),
    [(511, HTML, "asks for a login (511)"), (403, HTML, "sent a web page instead of")],
    ids=["511", "403"],
)
def test_a_network_that_refuses_is_not_called_gated(
    hub: HubServer, status: int, headers: dict[str, str], words: str
) -> None:
    """The hub's own refusals have a code."""
    hub.faults = [Fault("HEAD", status=status, headers=headers, times=9)]
    assert words in refusal()
    assert [seen.method for seen in hub.seen] == ["HEAD"]


def test_a_redirect_to_a_login_page_is_named(hub: HubServer) -> None:
    """Wherever it is."""
    with HubServer() as hotel:
        hotel.page = PAGE
        place = {"Location": f"{hotel.address}/login?from=hub"}
        hub.faults = [Fault("HEAD", status=302, headers=place, times=9)]
        assert refusal().startswith(f"{hotel.address} sent a web page")
        pinned = Reference(FILE.repository, FILE.file, "d" * 40, len(CONTENT), "e" * 64)
        hub.faults.append(Fault("GET", status=302, headers=place, times=9))
        assert refusal(pinned).startswith(f"{hotel.address} sent a web page")
    assert parts() == []


HAS_IPV6 = socket.has_ipv6


@pytest.mark.skipif(not HAS_IPV6, reason="Python has no IPv6 here")
@pytest.mark.parametrize("has_scheme", [True, False])
def test_a_hub_at_an_ipv6_address(has_scheme: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The address of this machine, in brackets."""
    try:
        server = HubServer("::1")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with server:
        server.put(FILE.repository, FILE.file, CONTENT)
        address = server.address if has_scheme else server.address.removeprefix("http://")
        assert "[::1]:" in address
        monkeypatch.setenv("HF_ENDPOINT", address)
        assert get()[0].read_bytes() == CONTENT


def resolve_as(monkeypatch: pytest.MonkeyPatch, *hosts: str) -> None:
    """Let "localhost" have these addresses, in this order."""
    real = socket.getaddrinfo

    def resolved(host: Any, port: Any, *rest: Any, **named: Any) -> Any:
        if host not in {"localhost", b"localhost"}:
            return real(host, port, *rest, **named)
        return [found for each in hosts for found in real(each, port, *rest, **named)]

    monkeypatch.setattr(socket, "getaddrinfo", resolved)


def test_a_dead_address_of_the_hub_is_passed_over(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next one answers: the first refuses."""
    resolve_as(monkeypatch, "127.0.0.2", "127.0.0.1")
    monkeypatch.setenv("HF_ENDPOINT", hub.address.replace("127.0.0.1", "localhost"))
    assert get()[0].read_bytes() == CONTENT


@pytest.mark.slow
def test_nothing_is_shown_before_something_is_known(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the hub is not there, the waits alone are shown, without bytes and shares."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    done = subprocess.run(
        [sys.executable, "-m", "specchat", "pull", str(FILE)],
        capture_output=True, text=True, cwd=ROOT, check=False,
    )  # fmt: skip
    *shown, error = done.stderr.splitlines()

    assert done.returncode == 1
    assert shown
    assert all(line.startswith("model-Q4.gguf retrying in ") for line in shown)
    assert error.startswith("specchat: http://127.0.0.1:9 cannot be reached (connection refused):")
    assert "resumes" not in error
    assert len(error) < 140


def progress(done: int, total: int, note: str = "") -> DownloadProgress:
    """Return the progress of the file."""
    return DownloadProgress(FILE, done, total, done, note)


def test_the_share_is_never_more_than_what_is_here() -> None:
    """Nor is all of it here before its last byte."""
    tally = Tally(0.0)
    assert not tally.update(progress(0, 0))
    assert (tally.in_words(), tally.share) == ([], 0.0)
    assert tally.update(progress(0, 0, "retrying in 1 s"))
    assert tally.in_words() == []
    tally.update(progress(322, 98_400_000))
    assert tally.in_words()[:2] == ["322 bytes of 98.4 MB", "0 %"]
    assert tally.files_in_words() == ["model-Q4.gguf 0 %"]
    assert [progress_percent(n / 200) for n in (0, 1, 2, 199, 200)] == [
        "0 %", "0 %", "1 %", "99 %", "100 %"
    ]  # fmt: skip
    assert all(progress_percent(n / 100) == f"{n} %" for n in range(101))


def test_a_time_that_is_no_estimate_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as 279 hours for a connection that hardly moves; one of minutes is shown."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tally = Tally(0.0)
    now[0] += 3
    tally.update(progress(322, 98_400_000))
    assert tally.in_words() == ["322 bytes of 98.4 MB", "0 %", "107 bytes/s"]
    tally = Tally(0.0)
    now[0] += 1
    tally.update(progress(10**6, 98_400_000))
    assert tally.in_words()[2:] == ["1.00 MB/s", "1 min 37 s left"]


def test_a_countdown_is_shown_as_often_as_the_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new line for every second would fill a log."""
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    tally = Tally(5.0)
    shown = []
    for left in range(12, 0, -1):
        shown.append(tally.update(progress(0, 0, f"retrying in {left} s")))
        now[0] += 1
    assert shown.count(True) == 3


@pytest.mark.parametrize(
    ("variable", "text"),
    [
        ("HF_ENDPOINT", "ftp://hub.example"),
        ("HTTP_PROXY", "ftp://127.0.0.1:1"),
        ("SSL_CERT_FILE", "/nowhere.pem"),
    ],
)
def test_doctor_names_a_wrong_variable(
    variable: str, text: str, monkeypatch: pytest.MonkeyPatch, no_proxies: None
) -> None:
    """As a problem, where the hub could not be asked."""
    scheme = "https" if variable == "SSL_CERT_FILE" else "http"
    host = "127.0.0.1:9" if variable == "SSL_CERT_FILE" else "hub.example"
    monkeypatch.setenv("HF_ENDPOINT", f"{scheme}://{host}")
    monkeypatch.setenv(variable, text)
    finding = check_network()
    assert finding.state == "problem"
    assert finding.detail.startswith(f"{variable} is {text}")
