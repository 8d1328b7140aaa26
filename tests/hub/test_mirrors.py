"""Mirrors that leave out what the hub says: what is known is checked, what is not is said."""

from __future__ import annotations

import hashlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from catalogue_files import AT_ONCE, CONTENT, FILE, SHA256, blobs, get, gets, parts
from hub_server import Fault, HubServer
from specchat.errors import DownloadFailed, SpecchatError
from specchat.hub.cache import cache_root, find_present
from specchat.hub.client import UNCHECKED
from specchat.hub.download import check, download
from specchat.hub.references import HUB, Reference, endpoint, shown_endpoint

COMMIT_HEADER = "x-repo-commit"
LINKED = {"x-linked-etag", "x-linked-size"}
MIRRORS: dict[str, dict[str, Any]] = {
    "no commit": {"left_out": {COMMIT_HEADER}},
    "no linked headers": {"left_out": LINKED},
    "redirects alone": {"left_out": {COMMIT_HEADER, *LINKED, "etag"}},
    "no storage": {"has_storage": False},
    "nothing but bytes": {"has_storage": False, "left_out": {COMMIT_HEADER, "etag"}},
    "no size": {"has_storage": False, "left_out": {COMMIT_HEADER, "content-length"}},
    "weak tags": {"tag": 'W/"{}"'},
    "bare tags": {"tag": "{}", "has_storage": False},
    "short tags": {"tag": '"5f2a-60"'},
    "tags of another kind": {"tag": '"d41d8cd98f00b204e9800998ecf8427e-12"', "has_storage": False},
    "the commit as tag": {"tag": f'"{"c" * 40}"', "has_storage": False},
}


def download_with(*references: Reference) -> tuple[list[Path], list[str]]:
    """Download, and return the paths and the notices."""
    notices: list[str] = []
    return download(references, None, None, notices.append, waits=AT_ONCE), notices


@pytest.fixture(params=MIRRORS)
def mirror(request: pytest.FixtureRequest, hub: HubServer) -> HubServer:
    """Return a mirror of one of the kinds, with the one file and without an API."""
    hub.put(FILE.repository, FILE.file, CONTENT, "c" * 40)
    hub.has_api = False
    for name, value in MIRRORS[request.param].items():
        setattr(hub, name, value)
    return hub


PINNED = replace(FILE, revision="c" * 40, size=len(CONTENT), sha256=SHA256)


@pytest.mark.slow(keep=4)
def test_a_pinned_file_loads_from_every_mirror(mirror: HubServer) -> None:
    """Its sha256 is known, so nothing else has to be."""
    paths, notices = download_with(PINNED)

    assert paths[0].read_bytes() == CONTENT
    assert (blobs(), notices) == ([SHA256], [])
    mirror.seen.clear()
    assert get(PINNED) == paths
    assert mirror.seen == []


def test_a_pinned_file_is_checked_whatever_the_mirror_says(mirror: HubServer) -> None:
    """One bit is wrong, or the beginning is of another file."""
    mirror.put(FILE.repository, FILE.file, CONTENT[:-1] + bytes([CONTENT[-1] ^ 1]), "c" * 40)
    with pytest.raises(DownloadFailed, match=r"wrong checksum|is not the pinned file"):
        get(PINNED)

    assert (find_present(PINNED), blobs(), parts()) == (None, [], [])


@pytest.mark.slow(keep=3)
def test_a_pinned_file_resumes(mirror: HubServer) -> None:
    """Where it stopped, if the mirror knows ranges."""
    on = "storage" if mirror.has_storage else "GET"
    mirror.faults = [Fault(on, cut_body_at=90_000)]
    with pytest.raises(DownloadFailed):
        get(PINNED, waits=())
    assert parts()[0].stat().st_size == 90_000
    assert get(PINNED)[0].read_bytes() == CONTENT
    if mirror.has_storage:
        assert mirror.num_sent == len(CONTENT)


def test_without_the_commit_one_line_says_what_is_left_out(hub: HubServer) -> None:
    """And what to pull instead, which then works."""
    commit = hub.put(FILE.repository, FILE.file, CONTENT)
    hub.has_api, hub.left_out = False, {COMMIT_HEADER}
    with pytest.raises(DownloadFailed, match="leaves out the header X-Repo-Commit") as raised:
        get()
    assert f"{hub.address}/org/model/resolve/COMMIT/model-Q4.gguf" in str(raised.value)
    assert "HF_ENDPOINT" in str(raised.value)
    assert gets(hub) == 1  # of the API, which this mirror lacks

    (path,) = get(replace(FILE, revision=commit))
    assert path.read_bytes() == CONTENT


def test_the_commit_may_come_from_the_api(hub: HubServer) -> None:
    """The file then lies under it, where other programs find it."""
    commit = hub.put(FILE.repository, FILE.file, CONTENT)
    hub.left_out = {COMMIT_HEADER}
    paths, notices = download_with(FILE)

    assert (paths[0].parent.name, notices) == (commit, [])
    assert (cache_root() / "models--org--model" / "refs" / "main").read_text() == commit


@pytest.mark.parametrize(
    "left_out", [LINKED, {*LINKED, "etag", COMMIT_HEADER}], ids=["linked", "all"]
)
def test_checksum_and_size_may_come_from_the_list_of_files(
    hub: HubServer, left_out: set[str]
) -> None:
    """Right bytes are taken without a notice, others are refused."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.left_out = left_out
    hub.faults = [Fault("storage", flipped=1000, times=2)]
    with pytest.raises(DownloadFailed, match="wrong checksum"):
        get()
    hub.faults = []
    paths, notices = download_with(FILE)

    assert (paths[0].read_bytes(), notices, blobs()) == (CONTENT, [], [SHA256])


@pytest.mark.parametrize("tag", ['W/"{}"', "{}", '"{}"'])
def test_tags_of_any_form_are_checked(hub: HubServer, tag: str) -> None:
    """They are the sha256."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.has_storage, hub.has_api, hub.tag = False, False, tag
    paths, notices = download_with(FILE)
    assert (paths[0].read_bytes(), notices, blobs()) == (CONTENT, [], [SHA256])


@pytest.mark.parametrize("is_right", [True, False])
def test_a_tag_may_be_the_sha1_of_the_bytes(hub: HubServer, is_right: bool) -> None:
    """Some mirrors have no other; it is checked."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    stated = CONTENT if is_right else CONTENT[1:]
    sha1 = hashlib.sha1(stated, usedforsecurity=False).hexdigest()
    hub.has_storage, hub.has_api, hub.tag = False, False, f'"{sha1}"'
    if is_right:
        assert download_with(FILE)[1] == []
    else:
        with pytest.raises(DownloadFailed, match="wrong checksum"):
            get()


def test_bytes_without_a_checksum_are_not_called_checked(hub: HubServer) -> None:
    """They are taken, one notice says so, and `pull --check` does not claim more."""
    for number in (1, 2):
        hub.put(FILE.repository, f"big-{number:05}-of-00002.gguf", CONTENT, "c" * 40)
    hub.has_storage, hub.has_api, hub.tag = False, False, '"1-2-3"'
    split = replace(FILE, file="big-00001-of-00002.gguf")
    paths, notices = download_with(split)

    assert paths[0].read_bytes() == CONTENT
    assert len(notices) == 1
    assert f"{hub.address} states no checksums for org/model" in notices[0]
    assert "cannot be checked" in notices[0]
    assert all(blob.startswith(UNCHECKED) for blob in blobs())
    with pytest.raises(SpecchatError, match="its sha256 is not known"):
        list(check(split, lambda progress: None))


def test_an_honest_hub_counts_more_than_a_mirror_without_checksums(hub: HubServer) -> None:
    """What the mirror said of the file was never checked, so it does not bind."""
    hub.put(FILE.repository, FILE.file, b"other bytes" * 100, "c" * 40)
    hub.has_storage, hub.has_api, hub.tag = False, False, '"1-2-3"'
    (path,) = get()
    path.unlink()
    hub.has_storage, hub.tag = True, '"{}"'
    hub.put(FILE.repository, FILE.file, CONTENT, "c" * 40)

    assert get()[0].read_bytes() == CONTENT


def test_an_unchecked_file_resumes_where_it_stopped(hub: HubServer) -> None:
    """Commit and tag are the same."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.has_api, hub.tag = False, '"1-2-3"'
    hub.faults = [Fault("storage", cut_body_at=70_000)]
    with pytest.raises(DownloadFailed):
        get(waits=())
    assert get()[0].read_bytes() == CONTENT
    assert hub.num_sent == len(CONTENT)


def test_the_size_may_come_from_the_storage(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the mirror sends on without a word; the storage does not learn the token."""
    monkeypatch.setenv("HF_TOKEN", "hf_of_a_mirror")
    commit = hub.put(FILE.repository, FILE.file, CONTENT)
    hub.has_api, hub.left_out = False, {COMMIT_HEADER, *LINKED}
    paths, notices = download_with(replace(FILE, revision=commit))

    assert (paths[0].read_bytes(), len(notices)) == (CONTENT, 1)
    assert {seen.authorization for seen in hub.seen if "signed" in seen.path} == {None}


@pytest.mark.slow
def test_a_size_that_is_nowhere_is_reported(hub: HubServer) -> None:
    """Without it nobody knows when the file is whole."""
    commit = hub.put(FILE.repository, FILE.file, CONTENT)
    hub.has_storage, hub.has_api, hub.left_out = False, False, {"content-length"}
    with pytest.raises(DownloadFailed, match=r"the size of .* is missing"):
        get(replace(FILE, revision=commit))


def test_a_missing_file_is_told_from_a_missing_repository(hub: HubServer) -> None:
    """A mirror answers 401 to both; its list of files shows which it is."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    refused = Fault("HEAD", status=401, headers={"X-Error-Code": "RepoNotFound"}, times=9)
    hub.faults = [refused]
    with pytest.raises(DownloadFailed, match=r"org/model has no file other.gguf at main"):
        get(replace(FILE, file="other.gguf"))
    with pytest.raises(DownloadFailed, match=r"no file MODEL-q4.gguf .*: it has model-Q4.gguf"):
        get(replace(FILE, file="MODEL-q4.gguf"))
    for repository, file in (("org/absent", "other.gguf"), (FILE.repository, FILE.file)):
        with pytest.raises(DownloadFailed, match=f"there is no {repository} at .*, or it is priv"):
            get(Reference(repository, file))
    hub.has_api = False
    with pytest.raises(DownloadFailed, match=r"no org/model at .*, it has no file other.gguf, or"):
        get(replace(FILE, file="other.gguf"))


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("hf-mirror.example", "https://hf-mirror.example"),
        ("hf-mirror.example:8443/hub/", "https://hf-mirror.example:8443/hub"),
        (" https://hf-mirror.example// \n", "https://hf-mirror.example"),
        ('"https://hf-mirror.example"', "https://hf-mirror.example"),
        ("HTTPS://Hub.example/a/b/", "https://Hub.example/a/b"),
        ("localhost:8090", "http://localhost:8090"),
        ("127.0.0.1:8090", "http://127.0.0.1:8090"),
        ("[::1]:8090", "http://[::1]:8090"),
        ("http://[fd00::1]", "http://[fd00::1]"),
        ("", HUB),
        ("  ", HUB),
    ],
)
def test_the_address_of_a_hub_is_read_as_it_is_meant(
    text: str, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a scheme, with spaces, quotes, slashes or a path."""
    monkeypatch.setenv("HF_ENDPOINT", text)
    assert endpoint() == address


@pytest.mark.parametrize(
    "text",
    ["ftp://hub.example", "http://", "https:///x", "http://[::1", "hub.example:x", "http:hub",
     "hub.example:99999", "https://a hub.example", "https://hub.example?x=1", "file:///models"],
)  # fmt: skip
def test_what_is_not_the_address_of_a_hub_is_named(
    text: str, hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, with the variable, what it says, and the right form."""
    monkeypatch.setenv("HF_ENDPOINT", text)
    with pytest.raises(DownloadFailed) as raised:
        get()
    line = str(raised.value)
    assert line.startswith(f"HF_ENDPOINT is {text}, which is not the address of a hub: write it")
    monkeypatch.setenv("HF_ENDPOINT", "ftp://me:secret@hub.example")
    with pytest.raises(DownloadFailed, match=r"ftp://hub.example,") as raised:
        shown_endpoint()
    assert "secret" not in str(raised.value)


def test_a_hub_may_lie_behind_a_path(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """As under a company's repository manager."""
    hub.put(FILE.repository, FILE.file, CONTENT)
    hub.root = "/artifacts/hub"
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.address}{hub.root}/".removeprefix("http://"))
    assert get()[0].read_bytes() == CONTENT
    assert all(seen.path.startswith("/artifacts/hub/org/model/resolve/") for seen in hub.seen
               if "signed" not in seen.path)  # fmt: skip
