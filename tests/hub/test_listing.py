"""Lists of a repository's files and of an organization's repositories."""

from __future__ import annotations

import hashlib
import json

import pytest

from hub_server import HubServer
from specchat.errors import DownloadFailed
from specchat.hub import listing
from specchat.hub.listing import ListedFile, files_soon, list_files, list_repositories

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
