"""Requests to the hub: a file's metadata, and its bytes from any offset over plain HTTP.

In offline mode no request is made.

Xet, the hub's newer transport, writes the pieces of a file in any order, so an interrupted download
starts over. Over HTTP a file is written from start to end, and a download resumes at the byte where
it stopped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from specchat import __version__
from specchat.errors import DownloadFailed
from specchat.hub.references import Reference, endpoint, is_commit, is_sha256, shown_endpoint

if TYPE_CHECKING:  # slow to import
    import httpx2

# Set before huggingface_hub is imported, which would otherwise send facts about this machine.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# The same for its log of retries, which would interrupt the progress line.
os.environ.setdefault("HF_HUB_VERBOSITY", "error")

PROGRAM = "specchat"
"""The name in the user agent, before the version."""

OFFLINE = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
"""The switches of huggingface_hub; `--offline` and SPECCHAT_OFFLINE set the first."""

ON = {"1", "on", "yes", "true"}
"""Values that huggingface_hub reads as true."""

ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""The response header with a file's SHA-256; for a small file, git's SHA-1."""

LISTING_SECONDS, LARGEST_LISTING = 5.0, 1 << 22
"""Limits for the list of a repository's files: seconds, and bytes."""

CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the hub: its pinned reference, its checksum and its size."""

    reference: Reference
    etag: str
    size: int


def go_offline() -> None:
    """Switch offline mode on, for this process and those it starts."""
    os.environ[OFFLINE[0]] = "1"


def is_offline() -> bool:
    """Return True in offline mode; the first environment variable that is set decides."""
    return next((text for name in OFFLINE if (text := os.environ.get(name))), "").lower() in ON


class Restarted(Exception):
    """The hub cannot continue at the requested byte, so the partial file is useless."""


def find(reference: Reference) -> HubFile:
    """Return the metadata of a file on the hub, which must match its pin.

    A file with a known sha256 is also found if the case of its name differs; the result has the
    hub's spelling.
    """
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        return _find(reference)
    except RemoteEntryNotFoundError:
        from specchat.hub.listing import files_soon  # which imports this module

        files = [each.path for each in files_soon(reference.repository, reference.revision)]
        twins = [file for file in files if file.lower() == reference.file.lower()]
        if reference.sha256 and len(twins) == 1:
            return _find(replace(reference, file=twins[0]))
        raise DownloadFailed(_missing(reference, files)) from None


def _find(reference: Reference) -> HubFile:
    from huggingface_hub import constants, get_hf_file_metadata

    metadata = get_hf_file_metadata(
        _address(reference),
        timeout=constants.HF_HUB_ETAG_TIMEOUT,
        library_name=PROGRAM,
        library_version=__version__,
    )
    commit, etag, size = metadata.commit_hash or "", metadata.etag or "", metadata.size or 0
    if not (is_commit(commit) and ETAG.fullmatch(etag) and size > 0):
        raise DownloadFailed(
            f"{shown_endpoint()} does not answer like the hub (commit, size and checksum are"
            " missing): check HF_ENDPOINT and the proxy"
        )
    _require_same(reference, commit, etag, size)
    sha256 = etag if is_sha256(etag) else reference.sha256
    return HubFile(replace(reference, revision=commit, size=size, sha256=sha256), etag, size)


def _missing(reference: Reference, files: Sequence[str]) -> str:
    folded = {file.lower(): file for file in files}
    similar = [folded[file] for file in get_close_matches(reference.file.lower(), folded, 3, 0.3)]
    page = f"{shown_endpoint()}/{reference.repository}"
    hint = f"it has {', '.join(similar)}" if similar else f"see {page}"
    return f"{reference.repository} has no file {reference.file} at {reference.revision}: {hint}"


def _require_same(reference: Reference, commit: str, etag: str, size: int) -> None:
    is_other_commit = is_commit(reference.revision) and reference.revision != commit
    is_other_file = reference.sha256 and is_sha256(etag) and reference.sha256 != etag
    if is_other_commit or is_other_file or reference.size not in {None, size}:
        raise DownloadFailed(
            f"{reference} at {shown_endpoint()} is not the pinned file, so it was not fetched:"
            f" check HF_ENDPOINT; `specchat rm {reference}` removes your own pin"
        )


@contextmanager
def read_from(found: HubFile, start: int) -> Iterator[Iterator[bytes]]:
    """Yield the bytes of a file from an offset; raises Restarted if the hub starts elsewhere.

    It sends no If-Range header: the hub redirects to storage with other ETags, which would restart
    every download. The URL names the commit, and the sha256 is checked at the end.
    """
    from huggingface_hub import constants
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    headers = {"Accept-Encoding": "identity"}  # byte ranges of a compressed answer differ
    if start:
        headers["Range"] = f"bytes={start}-"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with request(_address(found.reference), timeout, headers) as response:
        if response.status_code == 416:
            raise Restarted
        hf_raise_for_status(response)
        _require_range(response, found, start)
        yield response.iter_raw()


def request(
    address: str, seconds: float, headers: Mapping[str, str] | None = None
) -> AbstractContextManager[httpx2.Response]:
    """Return a streaming request that carries the user's token."""
    from huggingface_hub import get_session
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    sent = build_hf_headers(
        headers=dict(headers or {}), library_name=PROGRAM, library_version=__version__
    )
    return get_session().stream(
        "GET", address, headers=sent, timeout=seconds, follow_redirects=True
    )


def _require_range(response: httpx2.Response, found: HubFile, start: int) -> None:
    """Raise Restarted unless the response continues the same file at the offset."""
    found_range = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    begins = int(found_range[1]) if found_range and response.status_code == 206 else 0
    total = found_range[2] if found_range else "*"
    tags = [
        each.headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"')
        for each in (*response.history, response)
    ]
    is_other = any(tag not in {"", found.etag} for tag in tags)
    if begins != start or is_other or (start and total not in {"*", str(found.size)}):
        raise Restarted


def _address(reference: Reference) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(
        reference.repository, reference.file, revision=reference.revision, endpoint=endpoint()
    )
