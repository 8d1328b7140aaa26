"""What the hub lists: the GGUF files of a repository, and an organization's repositories.

Lists are untrusted and bounded: in bytes, in seconds, and in pages.
"""

import json
import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any
from urllib.parse import quote, urlencode

from specchat.errors import DownloadFailed
from specchat.hub.hub_request import request
from specchat.hub.references import Reference, endpoint, shown_endpoint

LISTING_SECONDS, LARGEST_LISTING, MOST_PAGES = 20.0, 1 << 23, 20
HINT_SECONDS = 5.0
"""For a list that only improves an error message."""
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


def list_files(repository: str, revision: str) -> list[ListedFile]:
    """Return a repository's GGUF files in the hub's order; raises as a request does."""
    return _files(repository, revision, LISTING_SECONDS)


def files_soon(repository: str, revision: str) -> list[ListedFile]:
    """Return a repository's GGUF files; none if the hub does not list them within seconds."""
    with suppress(Exception):
        return _files(repository, revision, HINT_SECONDS)
    return []


def _files(repository: str, revision: str, seconds: float) -> list[ListedFile]:
    address = f"{endpoint()}/api/models/{repository}/tree/{quote(revision, '')}?recursive=true"
    return [file for each in _listed(address, seconds) if (file := _file(each))]


def list_repositories(author: str, words: str, most: int) -> list[str]:
    """Return an organization's repositories with GGUF files whose names contain some words.

    The most downloaded ones come first.
    """
    query = {"author": author, "search": words, "filter": "gguf", "sort": "downloads",
             "direction": "-1", "limit": str(most)}  # fmt: skip
    address = f"{endpoint()}/api/models?{urlencode(query)}"
    found = _listed(address, HINT_SECONDS, most_pages=1)
    return [name for each in found if isinstance(name := each.get("id"), str)][:most]


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
        return _answer(f"{endpoint()}/api/models/{path}", monotonic() + HINT_SECONDS)[0]
    return None


def _listed(address: str, seconds: float, most_pages: int = MOST_PAGES) -> Iterator[dict[str, Any]]:
    """Yield the entries of a list, which may have several pages."""
    deadline = monotonic() + seconds
    for _ in range(most_pages):
        entries, following = _page(address, deadline)
        yield from (each for each in entries if isinstance(each, dict))
        if not following.startswith(endpoint() + "/"):
            return
        address = following


def _page(address: str, deadline: float) -> tuple[Sequence[Any], str]:
    """Return the entries of one page, and the address of the next one, empty if it is the last."""
    entries, following = _answer(address, deadline)
    if not isinstance(entries, list):
        raise DownloadFailed(
            f"{shown_endpoint()} does not list files as the hub does: check HF_ENDPOINT, or name"
            " a file (org/repo/file.gguf)"
        )
    return entries, following


def _answer(address: str, deadline: float) -> tuple[Any, str]:
    """Return an answer of the hub's API, None if it is not JSON, and where it goes on."""
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    content = b""
    with request(address, max(0.1, deadline - monotonic())) as response:
        hf_raise_for_status(response)
        for piece in response.iter_bytes():
            content += piece
            if len(content) > LARGEST_LISTING or monotonic() > deadline:
                raise DownloadFailed(f"{shown_endpoint()} sends a list of files that does not end")
        following = NEXT_PAGE.search(response.headers.get("Link", ""))
    with suppress(ValueError, RecursionError):
        return json.loads(content), following[1] if following else ""
    return None, ""
