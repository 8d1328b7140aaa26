"""The hub's lists: the GGUF files of a repository, and the repositories of an organization.

Lists are untrusted and bounded: in bytes, in seconds, and in pages.
"""

import json
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from specchat.errors import DownloadFailed
from specchat.hub.hub_errors import HTML, content_type, not_the_hub
from specchat.hub.hub_request import NoticeCallback, answer, ignore, origin
from specchat.hub.references import HUB, Reference, endpoint, shown_endpoint
from specchat.network.network_errors import WEB_PAGE

if TYPE_CHECKING:  # slow to import
    import httpx2

LISTING_SECONDS, LARGEST_LISTING, MOST_PAGES = 20.0, 1 << 23, 20
HINT_SECONDS = 5.0
"""For a list that only improves an error message."""
CONNECT_SHARE = 4
"""The part of the time for one connection: a host may have several addresses, not all answering."""
NEXT_PAGE = re.compile(r'<([^<>\s]+)>;\s*rel="next"')
CHECKSUM = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A file's SHA-256; for a small file, git's SHA-1."""
LEAST_MODEL = 1024
"""Bytes. A mirror that lists something smaller means a file's pointer in git."""


@dataclass(frozen=True, slots=True)
class ListedFile:
    """A GGUF file as the hub lists it; its size and its checksum may be unknown.

    The checksum is a SHA-256, or git's SHA-1 of a file that is small.
    """

    path: str
    num_bytes: int | None = None
    checksum: str = ""


def list_files(
    repository: str, revision: str, on_notice: NoticeCallback = ignore
) -> list[ListedFile]:
    """Return a repository's GGUF files in the hub's order; raises as a request does.

    A list whose next page is not followed is cut there, with a notice.
    """
    return _files(repository, revision, LISTING_SECONDS, on_notice)


def files_soon(repository: str, revision: str) -> list[ListedFile]:
    """Return a repository's GGUF files; none if the hub does not list them within seconds."""
    with suppress(Exception):
        return _files(repository, revision, HINT_SECONDS)
    return []


def _files(
    repository: str, revision: str, seconds: float, on_notice: NoticeCallback = ignore
) -> list[ListedFile]:
    address = f"{endpoint()}/api/models/{repository}/tree/{quote(revision, '')}?recursive=true"
    listed = _listed(address, repository, seconds, on_notice)
    return [file for entry in listed if (file := _file(entry))]


def list_repositories(author: str, words: str, most: int) -> list[str]:
    """Return an organization's repositories with GGUF files whose names contain some words.

    The most downloaded ones come first.
    """
    query = {"author": author, "search": words, "filter": "gguf", "sort": "downloads",
             "direction": "-1", "limit": str(most)}  # fmt: skip
    address = f"{endpoint()}/api/models?{urlencode(query)}"
    listed = _page(address, author, monotonic() + HINT_SECONDS)[0]
    return [name for entry in listed if isinstance(name := entry.get("id"), str)][:most]


def _file(listed: dict[str, Any]) -> ListedFile | None:
    """Return a listed file; None for folders, other files, and names that the hub forbids."""
    path, size, stored = listed.get("path"), listed.get("size"), listed.get("lfs")
    if not isinstance(path, str) or listed.get("type") == "directory":
        return None
    try:
        Reference("any/name", path)
    except ValueError:
        return None
    checksum = (stored if isinstance(stored, dict) else listed).get("oid")
    is_known = type(size) is int and size >= LEAST_MODEL
    known_sum = checksum if isinstance(checksum, str) and CHECKSUM.fullmatch(checksum) else ""
    return ListedFile(path, size if is_known else None, known_sum)


def answer_soon(path: str) -> Any:
    """Return what the hub's API answers at a path of its models; None after any error."""
    with suppress(Exception):  # what is missing is only known less well
        address = f"{endpoint()}/api/models/{path}"
        return _answer(address, path, monotonic() + HINT_SECONDS)[0]
    return None


def _listed(
    address: str, what: str, seconds: float, on_notice: NoticeCallback
) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list, which may have several pages."""
    deadline = monotonic() + seconds
    for _ in range(MOST_PAGES):
        entries, link = _page(address, what, deadline)
        yield from entries
        if not link:
            return
        address = _next_page(address, link)
        if not address:
            break
    on_notice(
        f"{shown_endpoint()} did not list all files of {what}: name a missing one by its path"
    )


def _next_page(address: str, link: str) -> str:
    """Return the address of the page that a link of this page names; empty if it is elsewhere.

    Mirrors may pass on the hub's own links, whose pages they have as well.
    """
    try:
        target, base = urlsplit(urljoin(address, link)), urlsplit(endpoint())
        server = origin(target.geturl())
    except ValueError:  # a port out of range, or half an IPv6 address
        return ""
    if server != origin(endpoint()) and server != origin(HUB):
        return ""
    root = base.path if server != origin(endpoint()) else ""
    return base._replace(path=root + target.path, query=target.query).geturl()


def _page(address: str, what: str, deadline: float) -> tuple[list[dict[str, Any]], str]:
    """Return the entries of one page, and the link to the next one, empty if it is the last."""
    entries, link = _answer(address, what, deadline)
    if not isinstance(entries, list):
        raise DownloadFailed(
            f"{shown_endpoint()} does not list files as the hub does: check HF_ENDPOINT, or name"
            " a file (org/repo/file.gguf)"
        )
    return [entry for entry in entries if isinstance(entry, dict)], link


def _answer(address: str, what: str, deadline: float) -> tuple[Any, str]:
    """Return an answer of the hub's API, None if it is not JSON, and the link to what follows.

    Raises DownloadFailed for a web page in place of it, such as a network's login.
    """
    import httpx2

    seconds = max(0.1, deadline - monotonic())
    timeout = httpx2.Timeout(seconds, connect=seconds / CONNECT_SHARE)
    try:
        content, link, is_html = answer(address, seconds, _content, timeout=timeout)
    except httpx2.ReadTimeout:
        slow = f"{shown_endpoint()} takes too long to send the list of {what}"
        raise DownloadFailed(f"{slow}: try again later") from None
    if is_html or WEB_PAGE.match(content):
        raise not_the_hub(address, f"the list of {what}")
    with suppress(ValueError, RecursionError):
        return json.loads(content), link
    return None, ""


def _content(response: "httpx2.Response") -> tuple[bytes, str, bool]:
    """Return the body of a response, the link to its next page, and whether it is a web page."""
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    hf_raise_for_status(response)
    content = b""
    for piece in response.iter_bytes():
        content += piece
        if len(content) > LARGEST_LISTING:
            raise DownloadFailed(f"{shown_endpoint()} sends a list of files that does not end")
    following = NEXT_PAGE.search(response.headers.get("Link", ""))
    return content, following[1] if following else "", content_type(response) == HTML
