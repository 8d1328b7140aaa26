"""Requests to the hub: a file's metadata, and its bytes from any offset over plain HTTP.

In offline mode no request is made. Mirrors leave out headers; a file whose commit, size and sha256
are pinned needs none of them, because its bytes are checked.

Xet, the hub's newer transport, writes the pieces of a file in any order, so an interrupted download
starts over. Over HTTP a file is written from start to end, and a download resumes at the byte where
it stopped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from difflib import get_close_matches
from itertools import chain
from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urljoin

from specchat.errors import DownloadFailed
from specchat.hub.hub_errors import HTML, content_type, not_the_hub
from specchat.hub.hub_request import (
    UNAUTHORIZED,
    NoticeCallback,
    answer,
    ignore,
    origin,
    request,
)
from specchat.hub.listing import CHECKSUM, answer_soon, files_soon
from specchat.hub.references import HUB, Reference, endpoint, is_commit, is_sha256, shown_endpoint
from specchat.network.network_errors import WEB_PAGE

if TYPE_CHECKING:  # slow to import
    import httpx2

UNCHECKED = "unchecked-"
"""The prefix of a blob's name whose file has no known checksum."""

OF_A_FILE = ("X-Repo-Commit", "X-Linked-Size", "X-Linked-ETag")
"""The headers of a redirect that describe the file; its others describe the redirect."""

LONGEST_ANSWER = 60.0
"""Seconds for the metadata of a file; longer where HF_HUB_ETAG_TIMEOUT is."""

MOST_REDIRECTS = 20
CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


@dataclass(frozen=True, slots=True)
class HubFile:
    """A file on the hub: its pinned reference, the name of its blob, and its size.

    The blob is named after the checksum if that is known.
    """

    reference: Reference
    etag: str
    size: int

    @property
    def has_checksum(self) -> bool:
        """Whether the bytes can be checked."""
        return not self.etag.startswith(UNCHECKED)


class Restarted(Exception):
    """The hub cannot continue at the requested byte, so the partial file is useless."""


def find(reference: Reference, on_notice: NoticeCallback = ignore) -> HubFile:
    """Return the metadata of a file on the hub, which must match its pin.

    A file with a known sha256 is also found if the case of its name differs; the result has the
    hub's spelling.
    """
    from huggingface_hub.errors import HfHubHTTPError, RemoteEntryNotFoundError

    try:
        return _find(reference, on_notice)
    except HfHubHTTPError as error:
        is_known = isinstance(error, RemoteEntryNotFoundError)
        if not is_known and not _may_lack_the_file(error):
            raise
        files = [file.path for file in files_soon(reference.repository, reference.revision)]
        if not is_known and (not files or reference.file in files):
            raise
        twins = [file for file in files if file.lower() == reference.file.lower()]
        if reference.sha256 and len(twins) == 1:
            return _find(replace(reference, file=twins[0]), on_notice)
        raise DownloadFailed(_missing(reference, files)) from None


def _may_lack_the_file(error: Any) -> bool:
    """Return True for a refusal that mirrors also send for a missing file."""
    code = error.response.headers.get("X-Error-Code", "")
    return error.response.status_code in {UNAUTHORIZED, 404} and code in {"", "RepoNotFound"}


def _find(reference: Reference, on_notice: NoticeCallback) -> HubFile:
    headers = _metadata(reference, on_notice)
    commit = headers.get("X-Repo-Commit", "")
    stated = headers.get("X-Linked-Size") or headers.get("Content-Length", "")
    size = int(stated) if stated.isascii() and stated.isdigit() else None
    if (commit and not is_commit(commit)) or (stated and size is None):
        raise DownloadFailed(
            f"{shown_endpoint()} does not answer like the hub (its commit or size is malformed):"
            " check HF_ENDPOINT and the proxy"
        )
    commit = commit or _commit(reference)
    checksum = _checksum(headers, commit)
    size = size or reference.size
    if not (reference.sha256 or checksum) or not size:
        listed = _listed(replace(reference, revision=commit))
        checksum, size = checksum or listed[0], size or listed[1]
    if not size:
        raise DownloadFailed(
            f"{shown_endpoint()} does not answer like the hub (the size of {reference} is missing):"
            " check HF_ENDPOINT and the proxy"
        )
    _require_same(reference, commit, checksum, size)
    sha256 = checksum if is_sha256(checksum) else reference.sha256
    resolved = replace(reference, revision=commit, size=size, sha256=sha256)
    if not (sha256 or checksum):
        on_notice(
            f"{shown_endpoint()} states no checksums for {reference.repository}: what arrives"
            " cannot be checked"
        )
        name = f"{resolved.file}\0{commit}\0{size}\0{headers.get('ETag', '')}"
        checksum = UNCHECKED + hashlib.sha256(name.encode()).hexdigest()[:32]
    return HubFile(resolved, sha256 or checksum, size)


def _metadata(reference: Reference, on_notice: NoticeCallback) -> Mapping[str, str]:
    """Return the headers that describe a file, after redirects within the hub.

    The storage that the hub redirects to has other headers. Only where a mirror says nothing of a
    file before it redirects is the storage asked, for the size alone.
    """
    import httpx2
    from huggingface_hub import constants

    url, seconds = _address(reference), constants.HF_HUB_ETAG_TIMEOUT
    is_pinned = is_commit(reference.revision) and reference.sha256 and reference.size
    for _ in range(MOST_REDIRECTS):
        sent = {"Accept-Encoding": "identity"}  # the size of a compressed answer differs
        response = answer(
            url, max(seconds, LONGEST_ANSWER), _checked, sent, "HEAD", on_notice,
            timeout=seconds, follow=False,
        )  # fmt: skip
        headers = response.headers
        describes = any(headers.get(name) for name in OF_A_FILE)
        if response.is_success and not describes and content_type(response) == HTML:
            raise not_the_hub(url, str(reference))
        if not response.has_redirect_location:
            return headers
        target = urljoin(url, headers["Location"])
        is_of_hub = origin(target) in {origin(url), origin(HUB)}
        if not is_of_hub and (describes or is_pinned):
            return httpx2.Headers({name: headers[name] for name in OF_A_FILE if name in headers})
        url = target
    raise httpx2.TooManyRedirects(f"more than {MOST_REDIRECTS} redirects")


def _checked(response: httpx2.Response) -> httpx2.Response:
    """Return a response. Raises HfHubHTTPError for a refusal."""
    from huggingface_hub.utils import hf_raise_for_status  # type: ignore[attr-defined]

    hf_raise_for_status(response)
    return response


def _checksum(headers: Mapping[str, str], commit: str) -> str:
    """Return the checksum that the headers state; empty if there is none."""
    checksum = _unquoted(headers.get("X-Linked-ETag") or headers.get("ETag", ""))
    return checksum if checksum != commit else ""


def _unquoted(tag: str) -> str:
    """Return the checksum in a tag; empty for a tag of another kind."""
    text = tag.strip().removeprefix("W/").strip('"')
    return text if CHECKSUM.fullmatch(text) else ""


def _commit(reference: Reference) -> str:
    """Return the commit of a reference where the answer does not name it. Raises DownloadFailed."""
    if is_commit(reference.revision):
        return reference.revision
    answer = answer_soon(f"{reference.repository}/revision/{quote(reference.revision, '')}")
    commit = answer.get("sha") if isinstance(answer, dict) else None
    if isinstance(commit, str) and is_commit(commit):
        return commit
    page = f"{shown_endpoint()}/{reference.repository}"
    raise DownloadFailed(
        f"{shown_endpoint()} leaves out the header X-Repo-Commit, so the commit of {reference} is"
        f" not known: pull {page}/resolve/COMMIT/{reference.file}, or use another HF_ENDPOINT"
    )


def _listed(reference: Reference) -> tuple[str, int | None]:
    """Return the checksum and the size of a file by its repository's list, if they are there."""
    listed = files_soon(reference.repository, reference.revision)
    matching = [file for file in listed if file.path == reference.file]
    return (matching[0].checksum, matching[0].num_bytes) if matching else ("", None)


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
def read_from(
    file: HubFile, start: int, on_notice: NoticeCallback = ignore, end: int | None = None
) -> Iterator[Iterator[bytes]]:
    """Yield the bytes of a file from an offset; raises Restarted if the hub starts elsewhere.

    They go up to an `end`, or beyond it if the hub knows no ranges.

    Raises DownloadFailed for a web page in place of the file, such as a network's login.

    It sends no If-Range header: the hub redirects to storage with other ETags, which would restart
    every download. The URL names the commit, and the sha256 is checked at the end.
    """
    from huggingface_hub import constants

    headers = {"Accept-Encoding": "identity"}  # byte ranges of a compressed answer differ
    if start or end:
        headers["Range"] = f"bytes={start}-{end - 1 if end else ''}"
    timeout = constants.HF_HUB_DOWNLOAD_TIMEOUT
    with request(_address(file.reference), timeout, headers, on_notice) as response:
        if response.status_code == 416:
            raise Restarted
        _checked(response)
        pieces = response.iter_raw()
        is_html = content_type(response) == HTML
        first = next(pieces, b"") if is_html or not start else b""
        is_page = is_html and (start or not first.startswith(b"GGUF"))
        if is_page or (not start and WEB_PAGE.match(first)):
            raise not_the_hub(str(response.url), str(file.reference))
        _require_range(response, file, start)
        yield chain([first], pieces)


def _require_range(response: httpx2.Response, file: HubFile, start: int) -> None:
    """Raise Restarted unless the response continues the same file at the offset."""
    found_range = CONTENT_RANGE.fullmatch(response.headers.get("Content-Range", ""))
    begins = int(found_range[1]) if found_range and response.status_code == 206 else 0
    total = found_range[2] if found_range else "*"
    answers = (*response.history, response)
    checksums = [_unquoted(answer.headers.get("X-Linked-ETag", "")) for answer in answers]
    is_other = any(
        len(checksum) == len(file.etag) and checksum != file.etag for checksum in checksums
    )
    if begins != start or is_other or (start and total not in {"*", str(file.size)}):
        raise Restarted


def _address(reference: Reference) -> str:
    from huggingface_hub import hf_hub_url

    return hf_hub_url(
        reference.repository, reference.file, revision=reference.revision, endpoint=endpoint()
    )
