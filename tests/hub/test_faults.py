"""What can go wrong with a download: a right file in the end, or one honest line."""

from __future__ import annotations

import ssl
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx2
import pytest

from catalogue_files import CONTENT, FILE, SHA256, blobs, get, gets, parts
from hub_server import Fault, HubServer
from specchat.doctor.host import check_network
from specchat.errors import Cancelled, DownloadFailed, InvalidOption
from specchat.hub import listing
from specchat.hub.cache import PART, blob_path, find_present, part_path
from specchat.hub.hub_errors import RetryPolicy, explain, is_passing, seconds_to_wait
from specchat.hub.names import parse_name
from specchat.hub.references import Reference
from tables import table

RESUMES = "resumes the download"


@pytest.fixture(autouse=True)
def _one_file(hub: HubServer) -> None:
    """Every hub here has the one file."""
    hub.put(FILE.repository, FILE.file, CONTENT)


@pytest.mark.slow(keep=8)
@pytest.mark.parametrize("cut", range(0, len(CONTENT), len(CONTENT) // 25))
def test_a_cut_connection_costs_no_byte_twice(hub: HubServer, cut: int) -> None:
    """At fifty places, from run to run and within a run: it goes on where it stopped."""
    second = (len(CONTENT) - cut) // 2
    hub.faults = [Fault("storage", cut_body_at=cut), Fault("storage", cut_body_at=second)]
    with pytest.raises(DownloadFailed, match=RESUMES):
        get(waits=())
    assert (find_present(FILE), blobs()) == (None, [])
    (path,) = get()

    assert path.read_bytes() == CONTENT
    assert hub.num_sent == len(CONTENT)


@pytest.mark.slow(keep=1)
@pytest.mark.parametrize("cut", range(0, 120, 10))
@pytest.mark.parametrize("on", ["HEAD", "GET", "storage"])
def test_an_answer_cut_in_its_head_is_asked_for_again(hub: HubServer, on: str, cut: int) -> None:
    """The hub's and its storage's truncated responses are both retried."""
    hub.faults = [Fault(on, cut_at=cut)]
    (path,) = get()

    assert path.read_bytes() == CONTENT


def test_a_hub_that_breaks_again_and_again_is_given_up(hub: HubServer) -> None:
    """The error, one line, says that the downloaded part is kept."""
    hub.faults = [Fault("storage", cut_body_at=1000, times=99)]
    with pytest.raises(DownloadFailed, match=rf"the connection failed .* {RESUMES}"):
        get()

    assert gets(hub) == 2 * 6
    assert parts()[0].read_bytes() == CONTENT[:6000]


def test_wrong_bytes_are_thrown_away(hub: HubServer) -> None:
    """No blob or part is left that could be taken for the file."""
    hub.faults = [Fault("storage", flipped=150_000)]
    with pytest.raises(DownloadFailed, match="wrong checksum"):
        get()

    assert (find_present(FILE), blobs(), parts()) == (None, [], [])
    assert get()[0].read_bytes() == CONTENT


def test_wrong_bytes_of_an_interrupted_run_are_fetched_again(hub: HubServer) -> None:
    """The part was damaged, so the whole file is downloaded again."""
    hub.faults = [Fault("storage", flipped=5, cut_body_at=100_000)]
    with pytest.raises(DownloadFailed, match=RESUMES):
        get(waits=())

    assert get()[0].read_bytes() == CONTENT
    assert hub.num_sent == 2 * len(CONTENT)


def test_what_was_kept_and_damaged_is_fetched_anew(hub: HubServer) -> None:
    """A crash of the machine may leave zeros in the part."""
    part = part_path(FILE, SHA256)
    part.parent.mkdir(parents=True)
    part.write_bytes(bytes(70_000))

    assert get()[0].read_bytes() == CONTENT
    assert parts() == []


@pytest.mark.parametrize("num_more", [0, 1, 5000])
def test_a_part_as_long_as_the_file_is_not_asked_for(hub: HubServer, num_more: int) -> None:
    """Whole, it is checked and taken; longer, it is none of the file's."""
    part = part_path(FILE, SHA256)
    part.parent.mkdir(parents=True)
    part.write_bytes(CONTENT + bytes(num_more))

    assert get()[0].read_bytes() == CONTENT
    assert hub.num_sent == (len(CONTENT) if num_more else 0)


def test_a_blob_of_the_wrong_size_is_replaced(hub: HubServer) -> None:
    """Wherever it came from, it is not the file."""
    blob = blob_path(FILE, SHA256)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT[:-1])

    assert get()[0].read_bytes() == CONTENT


def test_a_storage_without_ranges_begins_anew(hub: HubServer) -> None:
    """The server sends the whole file, which is not appended to the part."""
    hub.faults = [
        Fault("storage", cut_body_at=50_000),
        Fault("storage", knows_ranges=False),
    ]

    assert get()[0].read_bytes() == CONTENT


def test_a_range_that_was_not_requested_is_refused(hub: HubServer) -> None:
    """The bytes would end up in the wrong place."""
    wrong = {"Content-Range": f"bytes 7-{len(CONTENT) - 1}/{len(CONTENT)}"}
    hub.faults = [Fault("storage", cut_body_at=50_000), Fault("storage", headers=wrong)]

    assert get()[0].read_bytes() == CONTENT


def test_a_refused_range_begins_anew(hub: HubServer) -> None:
    """Status 416 says that what is here is none of the file's."""
    hub.faults = [Fault("storage", cut_body_at=50_000), Fault("storage", status=416)]

    assert get()[0].read_bytes() == CONTENT


def test_more_bytes_than_announced_are_refused(hub: HubServer) -> None:
    """The hub announced the size before."""
    hub.faults = [Fault("storage", more=b"x" * 9, times=9)]
    with pytest.raises(DownloadFailed, match="wrong checksum"):
        get()

    assert (blobs(), parts()) == ([], [])


def test_a_file_that_changes_under_way_is_refused(hub: HubServer) -> None:
    """The hub named one checksum when it was asked, and another when it sent on."""
    hub.faults = [Fault("GET", headers={"X-Linked-ETag": f'"{"0" * 64}"'}, times=3)]
    with pytest.raises(DownloadFailed, match="wrong checksum"):
        get()

    assert (gets(hub), blobs()) == (2, [])


def test_an_interrupted_download_stays_with_its_commit(hub: HubServer) -> None:
    """The branch moves on between two runs, and no byte comes twice."""
    hub.faults = [Fault("storage", cut_body_at=90_000)]
    with pytest.raises(DownloadFailed, match=RESUMES):
        get(waits=())
    hub.put(FILE.repository, FILE.file, CONTENT[::-1])

    assert get()[0].read_bytes() == CONTENT
    assert hub.num_sent == len(CONTENT)


def test_a_file_that_is_not_the_pinned_one_is_not_fetched(hub: HubServer) -> None:
    """The sha256, the size or the commit differs."""
    commit = hub.branches[FILE.repository]
    for pin in (
        replace(FILE, sha256="0" * 64),
        replace(FILE, size=len(CONTENT) + 1),
        replace(FILE, revision=commit, sha256="0" * 64, size=len(CONTENT)),
    ):
        with pytest.raises(DownloadFailed, match=r"is not the pinned file, .* not fetched"):
            get(pin)

    assert gets(hub) == 0


@pytest.mark.parametrize(
    "headers",
    [
        {"X-Repo-Commit": "../evil"},
        {"X-Linked-Size": "-5"},
    ],
    ids=str,
)
def test_who_does_not_answer_as_a_hub_is_not_followed(
    hub: HubServer, headers: dict[str, str]
) -> None:
    """What a server says never becomes a path."""
    hub.faults = [Fault("HEAD", headers=headers)]
    with pytest.raises(DownloadFailed, match="does not answer like the hub"):
        get()

    assert (blobs(), parts()) == ([], [])


@pytest.mark.parametrize("on", ["HEAD", "GET", "storage"])
def test_redirects_in_a_loop_end(hub: HubServer, on: str) -> None:
    """One line says so, and nothing is left as if it were the file."""
    loop = {"Location": f"{hub.address}/{FILE.repository}/resolve/main/{FILE.file}"}
    hub.faults = [Fault(on, status=302, headers=loop, times=999)]
    with pytest.raises(DownloadFailed) as raised:
        get()

    assert "\n" not in str(raised.value)
    assert blobs() == []


@table(
    "address",
    ["http://[abc", "//x]/", "http://127.0.0.1:99999/", "http://127.0.0.1:x/", "http:///"],
)
def test_a_redirect_to_what_is_no_address_ends_the_download(hub: HubServer, address: str) -> None:
    """And nothing else: one line says so."""
    hub.faults = [Fault("HEAD", status=302, headers={"Location": address}, times=999)]
    with pytest.raises(DownloadFailed) as raised:
        get()

    assert "\n" not in str(raised.value)
    assert blobs() == []


@pytest.mark.parametrize(
    ("status", "headers", "message"),
    [
        (401, {"X-Error-Code": "GatedRepo"}, "is gated: accept its terms at .*/org/model, then"),
        (403, {"X-Error-Code": "GatedRepo"}, "is gated: .*hf auth login.*HF_TOKEN"),
        (403, {}, "is gated|127.0.0.1, the hub's storage of .*firewall"),
        (401, {"X-Error-Code": "RepoNotFound"}, "there is no org/model at .*private"),
        (404, {}, "there is no org/model|127.0.0.1, the hub's storage of .*firewall"),
        (
            404,
            {"X-Error-Code": "EntryNotFound"},
            "(has no|no longer has a) file model-Q4.gguf",
        ),
        (404, {"X-Error-Code": "RevisionNotFound"}, "has no revision (main|[0-9a-f]{40}):"),
        (429, {}, f"limits requests .*{RESUMES}"),
        (429, {"Retry-After": "3600"}, "limits requests"),
        (503, {}, f"server error .*{RESUMES}"),
        (418, {}, "refused (org/model/model-Q4.gguf|it)"),
    ],
    ids=str,
)
@pytest.mark.parametrize("on", ["HEAD", "GET", "storage"])
def test_every_refusal_is_one_line(
    hub: HubServer, on: str, status: int, headers: dict[str, str], message: str
) -> None:
    """What happened and what to do, for the hub and its storage."""
    hub.faults = [Fault(on, status=status, headers=headers, times=99)]
    with pytest.raises(DownloadFailed, match=message) as raised:
        get()

    assert "\n" not in str(raised.value)
    assert find_present(FILE) is None


def test_a_misspelt_name_brings_similar_ones(hub: HubServer) -> None:
    """The error suggests similar names: files are renamed, and upper case is easily missed."""
    hub.put(FILE.repository, "README.md", CONTENT)
    hub.put(FILE.repository, FILE.file, CONTENT)
    with pytest.raises(
        DownloadFailed, match=r"has no file MODEL-q4.gguf .*: it has model-Q4.gguf$"
    ):
        get(replace(FILE, file="MODEL-q4.gguf"))


@pytest.mark.parametrize("on", ["HEAD", "GET", "storage"])
@pytest.mark.parametrize("status", [408, 429, 500, 502, 503, 504])
def test_trouble_that_passes_is_waited_for(hub: HubServer, on: str, status: int) -> None:
    """Twice refused, the third time it comes."""
    hub.faults = [Fault(on, status=status, times=2)]

    assert get()[0].read_bytes() == CONTENT


def test_a_lasting_refusal_is_asked_for_once(hub: HubServer) -> None:
    """There is no wait for what will not change."""
    hub.faults = [Fault("HEAD", status=404, times=9)]
    with pytest.raises(DownloadFailed):
        get()

    assert [seen.method for seen in hub.seen if "/resolve/" in seen.path] == ["HEAD"]


def test_an_unreachable_hub_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """The error has the hub's address, and what to check."""
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(DownloadFailed, match=r"http://127.0.0.1:9 cannot be reached .*HF_ENDPOINT"):
        get()


def test_offline_mode_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who set the variable may have forgotten it."""
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(DownloadFailed, match="is not installed and HF_HUB_OFFLINE is set"):
        get()


def test_a_folder_that_is_not_writable_is_reported(hub: HubServer, tmp_path: Any) -> None:
    """The error names the folder."""
    (tmp_path / "hf").write_text("a file")
    with pytest.raises(DownloadFailed, match=r"hf.hub is not writable \(.*HF_HOME"):
        get()


def chained(outer: Exception, inner: Exception) -> Exception:
    """Return an error with its cause, as the HTTP client raises it."""
    outer.__cause__ = inner
    return outer


def test_errors_of_certificates_and_proxies_are_not_retried() -> None:
    """Waiting does not help."""
    import httpx2

    untrusted = chained(httpx2.ConnectError("x"), ssl.SSLCertVerificationError("self-signed"))
    proxy = httpx2.ProxyError("407 Proxy Authentication Required")

    assert not is_passing(untrusted)
    assert not is_passing(proxy)
    assert "SSL_CERT_FILE" in str(explain(untrusted, FILE))
    assert "HTTPS_PROXY" in str(explain(proxy, FILE))


class Clock(threading.Event):
    """A stop signal that records how long it was waited for."""

    def __init__(self) -> None:
        """Begin with no wait."""
        super().__init__()
        self.waited: list[float | None] = []

    def wait(self, timeout: float | None = None) -> bool:
        """Note it and go on at once."""
        self.waited.append(timeout)
        return self.is_set()


def refusal(status: int, **headers: str | bytes) -> Exception:
    """Return what huggingface_hub raises for a status."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    request = httpx2.Request("GET", "http://127.0.0.1")
    named: Any = {name.replace("_", "-"): value for name, value in headers.items()}
    return HfHubHTTPError("no", response=httpx2.Response(status, headers=named, request=request))


def test_waits_grow_and_the_hub_may_ask_for_longer() -> None:
    """Up to a minute; something new begins the count again; then it is given up."""
    clock = Clock()
    retries = RetryPolicy(FILE, (1, 2, 4), clock, lambda note: None)
    retries.wait(refusal(503))
    retries.wait(refusal(503, Retry_After="60"))
    further = 1 << 20
    for _ in range(3):
        retries.wait(refusal(503), further)
    with pytest.raises(DownloadFailed):
        retries.wait(refusal(503), further)

    waits = [[1], [1] * 60, [1], [1] * 2, [1] * 4]
    assert clock.waited == [second for wait in waits for second in wait]


def test_a_wait_ends_when_the_download_is_cancelled() -> None:
    """Ctrl+C need not wait for a minute to pass."""
    clock = Clock()
    retries = RetryPolicy(FILE, (1,), clock, lambda note: clock.set())
    with pytest.raises(Cancelled):
        retries.wait(refusal(503))


def test_a_part_has_a_name_that_no_other_program_takes() -> None:
    """The name is neither a checksum nor that of huggingface_hub's own unfinished files."""
    assert part_path(FILE, SHA256).name == SHA256 + PART
    assert not PART.endswith(".incomplete")


def test_bytes_that_another_program_left_are_checked(hub: HubServer) -> None:
    """Wrong ones of the right size are fetched again, though their name is the checksum."""
    blob = blob_path(FILE, SHA256)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(bytes(len(CONTENT)))

    assert get()[0].read_bytes() == CONTENT


def test_right_bytes_that_another_program_left_are_kept(hub: HubServer) -> None:
    """Nothing is fetched."""
    blob = blob_path(FILE, SHA256)
    blob.parent.mkdir(parents=True)
    blob.write_bytes(CONTENT)

    assert get()[0].read_bytes() == CONTENT
    assert hub.num_sent == 0


def test_a_link_in_place_of_a_part_is_not_followed(hub: HubServer, tmp_path: Path) -> None:
    """Who planted it would have another file overwritten."""
    victim = tmp_path / "victim"
    victim.write_text("precious")
    part = part_path(FILE, SHA256)
    part.parent.mkdir(parents=True)
    part.symlink_to(victim)

    assert get()[0].read_bytes() == CONTENT
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("cut", [None, 1000], ids=["wrong bytes", "interrupted"])
def test_a_hub_that_lied_once_binds_no_one(hub: HubServer, cut: int | None) -> None:
    """Its commit and checksum, never verified, do not stand against the honest hub's."""
    lie = {"X-Repo-Commit": "9" * 40, "X-Linked-ETag": f'"{"8" * 64}"'}
    hub.faults = [
        Fault("HEAD", headers=lie),
        Fault("GET", headers=lie, times=9),
        Fault("storage", cut_body_at=cut),
    ]
    with pytest.raises(DownloadFailed):
        get(waits=())
    hub.faults = []

    assert get()[0].read_bytes() == CONTENT


@pytest.mark.parametrize("stalls", [True, False], ids=["never answers", "never ends"])
def test_a_list_of_files_is_not_waited_for(
    hub: HubServer, stalls: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error comes without the similar names."""
    monkeypatch.setattr(listing, "HINT_SECONDS", 0.3)
    monkeypatch.setattr(listing, "LARGEST_LISTING", 1 << 20)
    hub.listing = threading.Event() if stalls else None
    hub.endless = not stalls
    began = time.monotonic()
    with pytest.raises(DownloadFailed, match=r"has no file other\.gguf"):
        get(replace(FILE, file="other.gguf"))
    assert time.monotonic() - began < 30  # half of what the hub would take
    if hub.listing:
        hub.listing.set()


def test_a_password_in_the_address_is_not_shown(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither by a refusal, nor where the hub cannot be reached."""
    address = hub.address.replace("://", "://someone:hunter2@")
    monkeypatch.setenv("HF_ENDPOINT", address)
    for name in ("org/other", FILE.repository):
        with pytest.raises(DownloadFailed) as raised:
            get(Reference(name, "other.gguf"))
        assert "hunter2" not in str(raised.value)
    for error in (httpx2.ConnectError(f"no route to {address}/x"), ValueError(address)):
        assert "hunter2" not in str(explain(error, FILE))
    assert "hunter2" not in check_network().detail


def test_a_wait_that_is_no_number_is_ignored() -> None:
    """What the hub asks for is not trusted."""
    assert seconds_to_wait(refusal(429, Retry_After="1²".encode("latin-1"))) is None


def test_a_name_too_long_for_a_file_is_refused_at_once() -> None:
    """Not only when all of it is here."""
    with pytest.raises(InvalidOption, match="invalid"):
        _ = parse_name("org/model/" + "x" * 300 + ".gguf").reference
