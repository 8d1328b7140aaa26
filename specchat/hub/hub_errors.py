"""The hub's errors: one line that says what to do, and retries for temporary ones."""

import errno
import math
import os
import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, TypeVar

from specchat.errors import Cancelled, DownloadFailed, SpecchatError
from specchat.hub.cache import cache_root
from specchat.hub.names import HubName
from specchat.hub.references import (
    Reference,
    endpoint,
    is_mirror,
    shown_endpoint,
)
from specchat.network.network_errors import (
    PROXY_LOGIN,
    Failure,
    Peer,
    explain_failure,
    failure_of,
    proxy_of,
    reason,
    refused_by_proxy,
    server_of,
    url_of,
)
from specchat.network.proxies import find_proxy

if TYPE_CHECKING:  # slow to import
    import httpx2

RESUMES = "the next run resumes the download"
PASSING_STATUS = {408, 425, 429}
NETWORK_LOGIN, TOO_MANY = 511, 429
LASTING_STATUS = {NETWORK_LOGIN}
FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries without progress."""

PROGRESS_BYTES = 1 << 18
"""New bytes between two failures that count as progress."""

LONGEST_WAIT = 300.0
"""Seconds over which the hub counts requests. If it asks to wait longer, the user decides."""

MOST_DIGITS = 9
"""The most digits of a number of seconds to wait; a longer number counts as 30 years."""

MOST_MINUTES = 24 * 60
"""The longest wait to show as a number."""

REFUSED = "refused"
"""The extension of a response that names where a token came from that was refused before."""

HTML = "text/html"

Result = TypeVar("Result")


class Unreachable(DownloadFailed):
    """Raised where the hub or the package index cannot be connected to; `why` is the reason."""

    def __init__(self, message: str, why: str) -> None:
        super().__init__(message)
        self.why = why


@dataclass(slots=True)
class RetryPolicy:
    """Decides after each error whether to try again, and waits before the next try.

    `waits` are the seconds between tries; `stop` ends a wait, `on_note` gets a note about each,
    every second.
    """

    reference: Reference | HubName
    waits: Sequence[float]
    stop: threading.Event
    on_note: Callable[[str], None]
    _num_tries: int = 0
    _position: int = 0

    def check(self) -> None:
        """Raise Cancelled if the download was cancelled."""
        if self.stop.is_set():
            raise Cancelled

    def run(self, request: Callable[[], Result]) -> Result:
        """Return the result of a request, repeated after network errors."""
        while True:
            self.check()
            try:
                return request()
            except SpecchatError:
                raise
            except Exception as error:  # noqa: BLE001 -- raised again unless it is the network's
                self.wait(error)

    def wait(self, error: Exception, position: int = 0) -> None:
        """Wait before the next try; raises DownloadFailed if no try is left.

        The count of tries restarts once the download has got further than at the last error.
        """
        if position >= self._position + PROGRESS_BYTES:
            self._position = position
            self._num_tries = 0
        asked = seconds_to_wait(error) or 0.0
        is_final = not is_passing(error) or asked > LONGEST_WAIT
        if is_final or self._num_tries >= len(self.waits):
            raise explain(error, self.reference, has_begun=position > 0) from error
        seconds = max(self.waits[self._num_tries], asked)
        self._num_tries += 1
        self._count_down(seconds, _cause(error))
        self.on_note("")

    def _count_down(self, seconds: float, cause: str) -> None:
        """Wait, and note each second how much is left; raises Cancelled when `stop` is set."""
        left = seconds
        while left > 0 or left == seconds:  # a wait of no seconds is noted too
            self.on_note(f"retrying in {math.ceil(left)} s ({cause})")
            self.stop.wait(min(left, 1.0))
            self.check()
            left -= 1.0


def is_passing(error: Exception) -> bool:
    """Return True if the same request may succeed later."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status in PASSING_STATUS or (status >= 500 and status not in LASTING_STATUS)
    return failure_of(error) not in {None, Failure.PROXY, Failure.UNTRUSTED, Failure.NO_TLS}


def seconds_to_wait(error: Exception) -> float | None:
    """Return the seconds that the hub asks to wait, None if it does not.

    Retry-After has seconds or a date; Hugging Face writes RateLimit, `"api";r=0;t=55`, instead.
    """
    from huggingface_hub.errors import HfHubHTTPError

    if not isinstance(error, HfHubHTTPError):
        return None
    headers = error.response.headers
    asked = headers.get("Retry-After", "").strip()
    if asked.isascii() and asked.isdigit():
        return _seconds(asked)
    try:
        until = parsedate_to_datetime(asked)
        return max(0.0, (until - datetime.now(UTC)).total_seconds())
    except (ValueError, TypeError, OverflowError):  # not a date, or one without a time zone
        limit = re.search(r";\s*r=0\s*;\s*t=(\d+)\b", headers.get("RateLimit", ""), re.ASCII)
        return _seconds(limit[1]) if limit else None


def _seconds(digits: str) -> float:
    """Return a number of seconds of any length, which may be more than a float can hold."""
    digits = digits.lstrip("0")
    return float(digits or 0) if len(digits) <= MOST_DIGITS else 10.0**MOST_DIGITS


def _cause(error: Exception) -> str:
    """Return in a few words why a request has to be repeated."""
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return "the hub limits requests" if status == TOO_MANY else f"the hub answers {status}"
    is_connected = failure_of(error) not in {Failure.UNREACHABLE, Failure.NO_TLS}
    return "the connection failed" if is_connected else "no connection"


def explain(
    error: Exception, reference: Reference | HubName, *, has_begun: bool = False
) -> DownloadFailed:
    """Return the error to show the user; with `has_begun` a part of the file is here.

    A HubName stands for the list of a repository's files, of which nothing is kept.
    """
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    is_list = isinstance(reference, HubName)
    if isinstance(error, HfHubHTTPError):
        return DownloadFailed(_refused(error, reference))
    if isinstance(error, OfflineModeIsEnabled):
        state = "cannot be listed" if is_list else "is not installed"
        return DownloadFailed(
            f"{reference} {state} and HF_HUB_OFFLINE is set: unset it to download"
        )
    message = explain_failure(error, _peer(error), proxy_of(error))
    match failure_of(error):
        case Failure.UNREACHABLE | Failure.NO_TLS:
            resumes = f"; {RESUMES}" if has_begun else ""
            return Unreachable(f"{message}{resumes}", reason(error))
        case Failure.SILENT | Failure.NOT_HTTP | Failure.LOST:
            why = f"the connection failed repeatedly ({reason(error)})"
            message = f"{_shown(reference)}: {why}: {'try again later' if is_list else RESUMES}"
        case None if isinstance(error, OSError) and error.errno in FULL:
            message = f"the disk is full ({cache_root()}): free some space; {RESUMES}"
        case None if isinstance(error, OSError):
            message = f"{error.filename or cache_root()}: {error.strerror or error}"
        case _:
            shown = f"{_shown(reference)} cannot be fetched from {shown_endpoint()}"
            message = message or f"{shown}: {reason(error)}"
    return DownloadFailed(message)


def _peer(error: Exception) -> Peer:
    """Return the server that a request went to: the hub, or the storage it sends downloads to."""
    host = server_of(url_of(error)) or shown_endpoint()
    away = "" if endpoint().startswith(host) else ", where the hub sends the download,"
    named = ", HF_ENDPOINT" if os.environ.get("HF_ENDPOINT") else ""
    return Peer(
        host + away,
        if_unreachable=f"check the network{named} and HTTPS_PROXY",
        if_untrusted="behind a proxy that inspects traffic, or with a mirror of your own, set"
        " SSL_CERT_FILE to its certificates",
        if_not_tls=f"set HF_ENDPOINT to {host.replace('https', 'http')}",
    )


def not_the_hub(url: str, what: str) -> DownloadFailed:
    """Return the error for a web page in place of metadata, of a file's bytes or of a list."""
    return DownloadFailed(
        f"{server_of(url)} sent a web page instead of {what}: this network may ask for a login"
        " first (open any page in a browser), or a proxy blocks the download; then pull again"
    )


def _refused(error: Exception, reference: Reference | HubName) -> str:
    """Return the error for a refused request; the hub answers 401 for missing repositories too."""
    response: httpx2.Response = error.response  # type: ignore[attr-defined]
    hub, status = shown_endpoint(), response.status_code
    shown, resumes = _shown(reference), f"; {RESUMES}" * isinstance(reference, Reference)
    repository, page = reference.repository, f"{hub}/{reference.repository}"
    host, url = response.request.url.host, str(response.request.url)
    messages = _messages(reference, response)
    code = response.headers.get("X-Error-Code", "")
    if code not in messages:
        code = {403: "GatedRepo", 401: "RepoNotFound", 404: "RepoNotFound"}.get(status, "")
    if status in {PROXY_LOGIN, NETWORK_LOGIN}:
        return _login(url, status)
    is_hub = url.startswith(endpoint()) or "X-Error-Code" in response.headers
    if not is_hub and status < 500 and status != TOO_MANY:
        return (
            f"{host}, the hub's storage of {shown}, refused it ({status}):"
            " try again later, or check whether a proxy or firewall blocks that host"
        )
    if status == 403 and "X-Error-Code" not in response.headers and content_type(response) == HTML:
        return str(not_the_hub(url, shown))
    if code in messages:
        return messages[code]
    if status == TOO_MANY:
        asked = math.ceil((seconds_to_wait(error) or 0) / 60)
        wait = f"{asked} min" if asked else "a few minutes"
        wait = wait if asked <= MOST_MINUTES else "more than a day"
        token = "" if response.request.headers.get("Authorization") else ", or log in for more"
        return f"{hub} limits requests (429): wait {wait}{token}{resumes}"
    if status >= 500:
        return f"{hub} has a server error ({status}): try again later{resumes}"
    return f"{hub} refused {shown} ({status}): check HF_ENDPOINT, and {repository} at {page}"


def _shown(reference: Reference | HubName) -> str:
    """Return what was asked for: a file, or the list of a repository's files."""
    is_list = isinstance(reference, HubName)
    return f"the list of {reference.repository}" if is_list else str(reference)


def _login(url: str, status: int) -> str:
    """Return the error for a network or a proxy that wants a login."""
    if status == PROXY_LOGIN:
        return refused_by_proxy(find_proxy(url), str(status))
    return f"this network asks for a login ({status}): open any page in a browser, then pull again"


def _messages(reference: Reference | HubName, response: "httpx2.Response") -> dict[str, str]:
    """Return the messages for the codes that the hub gives its refusals."""
    hub, repository = shown_endpoint(), reference.repository
    page, refused = f"{hub}/{repository}", response.extensions.get(REFUSED, "")
    log_in = "`hf auth login` or HF_TOKEN"
    if refused:
        log_in = f"a new token (the one in {refused} is wrong or expired)"
    elif response.request.headers.get("Authorization"):
        log_in = "the account of your token"
    absent, is_file = f"there is no {repository} at {hub}, ", isinstance(reference, Reference)
    if is_file and is_mirror():  # mirrors answer in the same way for a missing file
        absent += f"it has no file {reference.file}, "
    no_revision = f"{repository} has no revision {reference.revision}: see {page}"
    messages = {
        "GatedRepo": f"{repository} is gated: accept its terms at {page}, then use {log_in}",
        "RevisionNotFound": no_revision,
        "RepoNotFound": f"{absent}or it is private: check the name; a private one needs {log_in}",
    }
    if is_file:
        messages["RevisionNotFound"] += f"; `specchat rm {reference}` removes its pin"
        missing = f"{repository} no longer has a file {reference.file}: see {page}"
        messages["EntryNotFound"] = missing
    return messages


def content_type(response: "httpx2.Response") -> str:
    """Return the content type of a response."""
    kind: str = response.headers.get("Content-Type", "")
    return kind.partition(";")[0].strip().lower()
