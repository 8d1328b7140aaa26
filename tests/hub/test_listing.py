"""Lists of a repository's files and of an organization's repositories."""

from __future__ import annotations

import hashlib
import json

import httpx2
import pytest
from huggingface_hub.errors import HfHubHTTPError

from hub_server import Fault, HubServer
from specchat.errors import DownloadFailed
from specchat.hub import listing
from specchat.hub.hub_errors import explain
from specchat.hub.listing import ListedFile, files_soon, list_files, list_repositories
from specchat.hub.names import HubName

CONTENT = bytes(5000)


def test_files_come_with_size_and_checksum(hub: HubServer) -> None:
    """Only those that can be models."""
    for file in ("m-Q4.gguf", "README.md", "sub/m-Q8.GGUF"):
        hub.put("org/model", file, CONTENT)
    sha256 = hashlib.sha256(CONTENT).hexdigest()

    assert list_files("org/model", "main") == [
        ListedFile("m-Q4.gguf", 5000, sha256),
        ListedFile("sub/m-Q8.GGUF", 5000, sha256),
    ]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ({"path": "m.gguf", "size": 5000}, ListedFile("m.gguf", 5000)),
        ({"path": "m.gguf", "size": 132}, ListedFile("m.gguf")),  # a pointer in git
        ({"path": "m.gguf", "size": "5000", "lfs": "x"}, ListedFile("m.gguf")),
        ({"path": "m.gguf", "size": -1, "lfs": {"oid": "zz"}}, ListedFile("m.gguf")),
        ({"path": "m.gguf", "type": "directory"}, None),
        ({"path": "../m.gguf", "size": 5000}, None),
        ({"path": "/etc/m.gguf", "size": 5000}, None),
        ({"path": "m\u202e.gguf", "size": 5000}, None),
        ({"path": 5}, None),
        ({}, None),
        ("m.gguf", None),
    ],
)
def test_what_a_hub_lists_is_not_trusted(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch, entry: object, expected: ListedFile | None
) -> None:
    """Names that lead elsewhere are left out, sizes that cannot be are unknown."""
    hub.put("org/model", "m.gguf", CONTENT)
    hub.lists["/api/models/org/model/tree/main"] = json.dumps([entry]).encode()

    assert list_files("org/model", "main") == [expected] * (expected is not None)


@pytest.mark.parametrize("body", [b"", b"{}", b'"x"', b"[" * 5000, b"\xff\xfe"])
def test_what_is_no_list_is_one_line(hub: HubServer, body: bytes) -> None:
    """It names the hub and the way out."""
    hub.put("org/model", "m.gguf", CONTENT)
    hub.lists["/api/models/org/model/tree/main"] = body
    with pytest.raises(DownloadFailed, match="does not list files as the hub does"):
        list_files("org/model", "main")
    assert files_soon("org/model", "main") == []


def test_a_long_list_has_pages(hub: HubServer) -> None:
    """They are followed on the same hub only, and not for ever."""
    hub.put("org/model", "m.gguf", CONTENT)
    pages = "/api/models/org/model/tree/main"
    for number in range(3):
        page = pages + ("" if not number else f"?page={number}")
        hub.lists[page] = json.dumps([{"path": f"m-{number}.gguf", "size": 5000}]).encode()
        hub.links[page] = f"{hub.address}{pages}?page={number + 1}"
    hub.links[f"{pages}?page=2"] = "http://elsewhere.invalid/page"
    assert [each.path for each in list_files("org/model", "main")] == [
        "m-0.gguf",
        "m-1.gguf",
        "m-2.gguf",
    ]

    hub.links[f"{pages}?page=2"] = f"{hub.address}{pages}?page=1"
    assert len(list_files("org/model", "main")) == listing.MOST_PAGES


PAGES = "/api/models/org/model/tree/main"


def put_pages(hub: HubServer, *links: str) -> None:
    """Let the hub list one file a page, each page with such a link to the next one."""
    hub.put("org/model", "m.gguf", CONTENT)
    for number in range(len(links) + 1):
        page = PAGES + ("" if not number else f"?page={number}")
        hub.lists[page] = json.dumps([{"path": f"m-{number}.gguf", "size": 5000}]).encode()
        if number < len(links):
            hub.links[page] = links[number]


@pytest.mark.parametrize(
    "link",
    [
        f"{PAGES}?page=1",
        "?page=1",
        f"HUB{PAGES}?page=1",
        f"http://me:secret@HOST{PAGES}?page=1",
        f"https://huggingface.co{PAGES}?page=1",
    ],
)
def test_the_next_page_is_fetched_from_the_same_hub(hub: HubServer, link: str) -> None:
    """By a relative link, and by one of the hub's own that a mirror passes on."""
    host = hub.address.partition("://")[2]
    put_pages(hub, link.replace("HUB", hub.address).replace("HOST", host))
    notices: list[str] = []
    found = list_files("org/model", "main", notices.append)
    assert [each.path for each in found] == ["m-0.gguf", "m-1.gguf"]
    assert notices == []


def test_a_mirror_below_a_path_has_the_pages_there(
    hub: HubServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the hub's own links lead to the root."""
    monkeypatch.setenv("HF_ENDPOINT", f"{hub.address}/mirror")
    put_pages(hub, f"https://huggingface.co{PAGES}?page=1")
    hub.lists = {f"/mirror{page}": content for page, content in hub.lists.items()}
    hub.links = {f"/mirror{page}": link for page, link in hub.links.items()}
    found = list_files("org/model", "main")
    assert [each.path for each in found] == ["m-0.gguf", "m-1.gguf"]


@pytest.mark.parametrize(
    "link", ["OTHER/page", "HUB.evil.example/page", "HUB@evil.example/page", "http://[::1/page"]
)
def test_a_next_page_elsewhere_is_not_asked_for(hub: HubServer, link: str) -> None:
    """It would get the user's token; a notice says that the list is cut."""
    with HubServer() as other:
        put_pages(hub, link.replace("OTHER", other.address).replace("HUB", hub.address))
        notices: list[str] = []
        found = list_files("org/model", "main", notices.append)
        assert [each.path for each in found] == ["m-0.gguf"]
        assert other.seen == []
    (notice,) = notices
    assert notice.startswith(f"{hub.address} did not list all files of org/model: ")


def test_a_list_of_too_many_pages_is_cut_with_a_notice(hub: HubServer) -> None:
    """Not silently."""
    put_pages(hub, PAGES)
    notices: list[str] = []
    list_files("org/model", "main", notices.append)
    assert len(notices) == 1


ABSENT = "there is no org/model at HUB, or it is private: "
WEB_PAGE = "HUB sent a web page instead of the list of org/model"
LISTED = HubName("org/model", revision="v9")


def refusal(hub: HubServer) -> str:
    """Return what the user reads where a list is refused."""
    with pytest.raises((DownloadFailed, HfHubHTTPError)) as raised:
        list_files(LISTED.repository, LISTED.revision)
    error = raised.value
    line = str(error if isinstance(error, DownloadFailed) else explain(error, LISTED))
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("status", "headers", "expected"),
    [
        (404, {}, f"{ABSENT}check the name; a private one needs `hf auth login` or HF_TOKEN"),
        (404, {"X-Error-Code": "EntryNotFound"}, ABSENT),
        (404, {"X-Error-Code": "RevisionNotFound"},
         "org/model has no revision v9: see HUB/org/model"),
        (503, {}, "HUB has a server error (503): try again later"),
        (429, {}, "HUB limits requests (429): wait a few minutes, or log in for more"),
        (418, {}, "HUB refused the list of org/model (418): "),
        (403, {"Content-Type": "text/html"}, WEB_PAGE),
        (200, {"Content-Type": "text/html"}, WEB_PAGE),
    ],
)  # fmt: skip
def test_a_refusal_of_a_list_is_worded_for_a_list(
    hub: HubServer, status: int, headers: dict[str, str], expected: str
) -> None:
    """There is no file in it, no pin and no download to resume."""
    hub.faults = [Fault("list", status=status, headers=headers, times=9)]
    line = refusal(hub)
    expected = expected.replace("HUB", hub.address)
    assert line.startswith(expected) if expected.endswith((": ", "model")) else line == expected
    assert not any(word in line for word in ("resume", " pin", " file "))


def test_a_login_page_in_place_of_a_list_is_named(hub: HubServer) -> None:
    """As one in place of a file is."""
    hub.page = b"<!DOCTYPE html><title>Hotel</title>"
    line = refusal(hub)
    assert line.startswith(f"{hub.address} sent a web page instead of the list of org/model: ")
    assert "browser" in line


def test_a_connection_that_fails_resumes_no_list() -> None:
    """Nothing of it is kept."""
    error = httpx2.ReadError("reset", request=httpx2.Request("GET", "http://127.0.0.1/x"))
    line = str(explain(error, LISTED))
    assert (
        line == "the list of org/model: the connection failed repeatedly (reset): try again later"
    )


def test_an_endless_list_ends(hub: HubServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """With a line that names the hub."""
    monkeypatch.setattr(listing, "LARGEST_LISTING", 1 << 20)
    hub.endless = True
    with pytest.raises(DownloadFailed, match="does not end"):
        list_files("org/model", "main")


def test_an_organizations_repositories_are_found_by_words(hub: HubServer) -> None:
    """Those of other organizations are not."""
    for name in ("org/Some-1B-GGUF", "org/other", "org2/Some-1B-GGUF"):
        hub.put(name, "m.gguf", CONTENT)
    assert list_repositories("org", "some", 10) == ["org/Some-1B-GGUF"]
