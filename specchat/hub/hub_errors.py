"""The hub's errors: one line that says what to do, and retries for temporary ones."""

import errno
import ssl
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from specchat.errors import Cancelled, DownloadFailed, SpecchatError
from specchat.hub.cache import cache_root
from specchat.hub.names import HubName
from specchat.hub.references import Reference, endpoint, shown_endpoint, without_password

RESUMES = "the next run resumes the download"
PASSING_STATUS = {408, 425, 429}
FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}

WAITS = (1.0, 2.0, 4.0, 8.0, 16.0)
"""Seconds between tries without progress."""

PROGRESS_BYTES = 1 << 18
"""New bytes between two failures that count as progress."""

LONGEST_WAIT = 60.0
"""If the hub asks for a longer wait, the download fails and the user decides."""

Result = TypeVar("Result")


@dataclass(slots=True)
class RetryPolicy:
    """Decides after each error whether to try again, and waits before the next try.

    `waits` are the seconds between tries; `stop` ends a wait, `on_note` gets a note about each.
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
            raise explain(error, self.reference) from error
        seconds = max(self.waits[self._num_tries], asked)
        self._num_tries += 1
        self.on_note(f"retrying in {seconds:.0f} s")
        self.stop.wait(seconds)
        self.check()
        self.on_note("")


def is_passing(error: Exception) -> bool:
    """Return True if the same request may succeed later."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status in PASSING_STATUS or status >= 500
    is_lasting = isinstance(error, (httpx2.ProxyError, httpx2.UnsupportedProtocol))
    return isinstance(error, httpx2.TransportError) and not is_lasting and not _is_untrusted(error)


def seconds_to_wait(error: Exception) -> float | None:
    """Return the seconds that the hub asks to wait, None if it does not."""
    from huggingface_hub.errors import HfHubHTTPError

    asked = error.response.headers.get("Retry-After") if isinstance(error, HfHubHTTPError) else None
    return float(asked) if asked and asked.isascii() and asked.isdigit() else None


def explain(error: Exception, reference: Reference | HubName) -> DownloadFailed:
    """Return the error to show the user."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    hub = shown_endpoint()
    if isinstance(error, HfHubHTTPError):
        return DownloadFailed(_refused(error, reference))
    if isinstance(error, OfflineModeIsEnabled):
        message = f"{reference} is not installed and HF_HUB_OFFLINE is set: unset it to download"
    elif isinstance(error, httpx2.ProxyError):
        message = f"the proxy refused ({reason(error)}): check HTTPS_PROXY and NO_PROXY"
    elif _is_untrusted(error):
        message = (
            f"the certificate of {hub} is not trusted ({reason(error)}): behind a proxy that"
            " inspects traffic, set SSL_CERT_FILE to its certificates"
        )
    elif isinstance(error, httpx2.ConnectError):
        message = (
            f"{hub} cannot be reached ({reason(error)}): check the network, HF_ENDPOINT and"
            f" HTTPS_PROXY; {RESUMES}"
        )
    elif isinstance(error, httpx2.TransportError) and is_passing(error):
        message = f"{reference}: the connection failed repeatedly ({reason(error)}): {RESUMES}"
    elif isinstance(error, OSError) and error.errno in FULL:
        message = f"the disk is full ({cache_root()}): free some space; {RESUMES}"
    elif isinstance(error, OSError) and not isinstance(error, httpx2.HTTPError):
        message = f"{error.filename or cache_root()}: {error.strerror or error}"
    else:
        message = f"{reference} cannot be fetched from {hub}: {reason(error)}"
    return DownloadFailed(message)


def _refused(error: Exception, reference: Reference | HubName) -> str:
    """Return the error for a refused request; the hub answers 401 for missing repositories too."""
    from huggingface_hub import get_token

    hub, response = shown_endpoint(), error.response  # type: ignore[attr-defined]
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    repository, page = reference.repository, f"{hub}/{reference.repository}"
    who = "with the account of your token" if get_token() else "then `hf auth login` or HF_TOKEN"
    messages = {
        "GatedRepo": f"{repository} is gated: accept its terms at {page}, {who}",
        "RevisionNotFound": f"{repository} has no revision {reference.revision}: see {page};"
        f" `specchat rm {reference}` removes its pin",
        "EntryNotFound": f"{repository} no longer has a file {reference.file}: see {page}",
        "RepoNotFound": f"there is no {repository} at {hub}, or it is private: check the"
        " name; a private one needs `hf auth login` or HF_TOKEN",
    }
    if status == 401 and "Invalid credentials" in response.headers.get("X-Error-Message", ""):
        return "the hub rejected your token: run `hf auth login` again, or check HF_TOKEN"
    if code in messages:
        return messages[code]
    if not str(response.request.url).startswith(endpoint()) and status < 500 and status != 429:
        return (
            f"{response.request.url.host}, the hub's storage of {reference}, refused it ({status}):"
            " try again later, or check whether a proxy or firewall blocks that host"
        )
    if status == 403:
        return messages["GatedRepo"]
    if status in {401, 404}:
        return messages["RepoNotFound"]
    if status == 429:
        return f"{hub} limits requests (429): wait a few minutes; {RESUMES}"
    if status >= 500:
        return f"{hub} has a server error ({status}): try again later; {RESUMES}"
    return f"{hub} refused {reference} ({status}): check HF_ENDPOINT and the name"


def _is_untrusted(error: BaseException) -> bool:
    """Return True if a TLS certificate is not trusted."""
    return any(
        isinstance(each, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(each)
        for each in _chain(error)
    )


def reason(error: BaseException) -> str:
    """Return the message of the outermost error that has one, in one line."""
    texts = [str(each) for each in _chain(error) if str(each)]
    return without_password(" ".join(texts[0].split()))[:160] if texts else type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__
