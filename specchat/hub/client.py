"""The hub: what a file is there, and its bytes from any place on, over plain HTTP.

Not over Xet, the hub's newer transport, though huggingface_hub has it: Xet puts files together from
pieces in an order of its own, and an interrupted one begins anew. Over HTTP a file grows from its
beginning to its end, so that it can go on at the byte where it stopped.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from specchat import __version__
from specchat.errors import DownloadFailed
from specchat.hub.references import Reference, endpoint, is_commit, is_sha256

if TYPE_CHECKING:  # huggingface_hub, which brings it, is slow to import
    import httpx2

__all__ = ["Found", "Restarted", "find", "get_ready", "reach", "read_from"]

# Read when huggingface_hub is imported, which is later: else it tells the hub what it runs in, and
# asks it first for a list of programs to look for.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")

PROGRAM = "specchat"
"""What the hub is told, with the version, of who asks."""

ETAG = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
"""A checksum: of the file by SHA-256, or of a small one by SHA-1 as git counts it."""

CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class Found:
    """What the hub says a reference is: its commit and size, and the checksum it is kept under."""

    reference: Reference
    etag: str
    size: int


class Restarted(Exception):
    """The hub does not go on from where it was asked to: what is here of the file is of no use."""


def find(reference: Reference) -> Found:
    """Ask the hub about a file, which must be what its pin says.

    A file whose sha256 is known is found too where its repository writes its name with other small
    and large letters; the reference that was found says how.
    """
    from huggingface_hub.errors import RemoteEntryNotFoundError

    try:
        return _find(reference)
    except RemoteEntryNotFoundError:
        files = _gguf_files(reference)
        twins = [file for file in files if file.lower() == reference.file.lower()]
        if reference.sha256 and len(twins) == 1:
            return _find(replace(reference, file=twins[0]))
        raise DownloadFailed(_missing(reference, files)) from None


def _find(reference: Reference) -> Found:
    from huggingface_hub import constants, get_hf_file_metadata

    told = get_hf_file_metadata(
        _address(reference),
        timeout=constants.HF_HUB_ETAG_TIMEOUT,
        library_name=PROGRAM,
        library_version=__version__,
    )
    commit, etag, size = told.commit_hash or "", told.etag or "", told.size or 0
    if not (is_commit(commit) and ETAG.fullmatch(etag) and size > 0):
        raise DownloadFailed(
            f"{endpoint()} does not answer as a hub does, which names commit, size and checksum:"
            " check HF_ENDPOINT and the proxy"
        )
    _require_same(reference, commit, etag, size)
    sha256 = etag if is_sha256(etag) else reference.sha256
    return Found(replace(reference, revision=commit, size=size, sha256=sha256), etag, size)


def get_ready() -> None:
    """Import what a request needs, so that none of that is taken for the hub's own time."""
    from huggingface_hub import get_session

    get_session()


def reach(seconds: float) -> httpx2.Response:
    """Send the hub one short request; what keeps it from an answer is raised as it comes.

    The answer may be another's: that of a proxy, or of a network that wants a login first.
    """
    from huggingface_hub import get_session

    return get_session().head(endpoint(), timeout=seconds, follow_redirects=False)


def _gguf_files(reference: Reference) -> list[str]:
    """Return the names of a repository's GGUF files; none where the list cannot be had."""
    from huggingface_hub import HfApi

    with suppress(Exception):  # it is there to help; the error that led here stays the same
        every = HfApi(endpoint=endpoint()).list_repo_files(
            reference.repository, revision=reference.revision
        )
        return [file for file in every if file.lower().endswith(".gguf")]
    return []


def _missing(reference: Reference, files: Sequence[str]) -> str:
    """Say that a repository has no such file, and which of its files has a similar name."""
    folded = {file.lower(): file for file in files}
    similar = [folded[file] for file in get_close_matches(reference.file.lower(), folded, 3, 0.3)]
    told = f"it has {', '.join(similar)}" if similar else f"see {endpoint()}/{reference.repository}"
    return f"{reference.repository} has no file {reference.file} at {reference.revision}: {told}"


def _require_same(reference: Reference, commit: str, etag: str, size: int) -> None:
    is_other_commit = is_commit(reference.revision) and reference.revision != commit
    is_other_file = reference.sha256 and is_sha256(etag) and reference.sha256 != etag
    if is_other_commit or is_other_file or reference.size not in {None, size}:
        raise DownloadFailed(
            f"{reference} is another file at {endpoint()} than the one that is pinned, so it was"
            f" not fetched: check HF_ENDPOINT; `specchat rm {reference}` drops a pin of your own"
        )


@contextmanager
def read_from(found: Found, start: int) -> Iterator[Iterator[bytes]]:
    """Open a file at a byte; Restarted where the hub answers with other bytes than those.

    No If-Range goes along: the hub sends on to storage whose own tags differ from place to place,
    and everything would be fetched again for nothing. The address names the commit, and the whole
    file is checked by its sha256.
    """
    from huggingface_hub import constants, get_session
    from huggingface_hub.utils import (  # type: ignore[attr-defined]
        build_hf_headers,
        hf_raise_for_status,
    )

    headers = build_hf_headers(
        headers={"Accept-Encoding": "identity"},  # a compressed answer has other ranges
        library_name=PROGRAM,
        library_version=__version__,
    )
    if start:
        headers["Range"] = f"bytes={start}-"
    with get_session().stream(
        "GET",
        _address(found.reference),
        headers=headers,
        timeout=constants.HF_HUB_DOWNLOAD_TIMEOUT,
        follow_redirects=True,
    ) as response:
        if response.status_code == 416:
            raise Restarted
        hf_raise_for_status(response)
        _require_range(response, found, start)
        yield response.iter_raw()


def _require_range(response: httpx2.Response, found: Found, start: int) -> None:
    """Raise Restarted unless the answer goes on at the byte, in the same file."""
    told = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    begins = int(told[1]) if told and response.status_code == 206 else 0
    total = told[2] if told else "*"
    tags = [
        each.headers.get("X-Linked-Etag", "").removeprefix("W/").strip('"')
        for each in (*response.history, response)
    ]
    is_other = any(tag not in {"", found.etag} for tag in tags)
    if begins != start or is_other or (start and total not in {"*", str(found.size)}):
        raise Restarted


def _address(reference: Reference) -> str:
    from huggingface_hub import constants, hf_hub_url

    address = hf_hub_url(reference.repository, reference.file, revision=reference.revision)
    return endpoint() + address.removeprefix(constants.ENDPOINT)
