"""What went wrong with the hub, in one line that says what to do; and whether waiting may help."""

from __future__ import annotations

import errno
import ssl
from collections.abc import Iterator

from specchat.errors import DownloadFailed
from specchat.hub.cache import cache_root
from specchat.hub.references import Reference, endpoint

__all__ = ["GOES_ON", "explain", "is_passing", "reason", "seconds_to_wait"]

GOES_ON = "the next run goes on where this one stopped"
PASSING_STATUS = {408, 425, 429}
FULL = {errno.ENOSPC, errno.EFBIG, getattr(errno, "EDQUOT", errno.ENOSPC)}


def is_passing(error: Exception) -> bool:
    """Say whether the same request may succeed a little later."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError

    if isinstance(error, HfHubHTTPError):
        status = error.response.status_code
        return status in PASSING_STATUS or status >= 500
    is_lasting = isinstance(error, (httpx2.ProxyError, httpx2.UnsupportedProtocol))
    return isinstance(error, httpx2.TransportError) and not is_lasting and not _is_untrusted(error)


def seconds_to_wait(error: Exception) -> float | None:
    """Return how long the hub asks to wait, where it does."""
    from huggingface_hub.errors import HfHubHTTPError

    asked = error.response.headers.get("Retry-After") if isinstance(error, HfHubHTTPError) else None
    return float(asked) if asked and asked.isdigit() else None


def explain(error: Exception, reference: Reference) -> DownloadFailed:
    """Return what to tell the user."""
    import httpx2
    from huggingface_hub.errors import HfHubHTTPError, OfflineModeIsEnabled

    if isinstance(error, DownloadFailed):
        return error
    if isinstance(error, HfHubHTTPError):
        return DownloadFailed(_refused(error, reference))
    if isinstance(error, OfflineModeIsEnabled):
        told = f"{reference} is not here and HF_HUB_OFFLINE is set: unset it to download"
    elif isinstance(error, httpx2.ProxyError):
        told = f"the proxy refuses ({reason(error)}): check HTTPS_PROXY and NO_PROXY"
    elif _is_untrusted(error):
        told = (
            f"{endpoint()} shows a certificate that is not trusted ({reason(error)}): behind a"
            " proxy that reads along, name its certificates with SSL_CERT_FILE"
        )
    elif isinstance(error, httpx2.ConnectError):
        told = (
            f"{endpoint()} cannot be reached ({reason(error)}): check the network, HF_ENDPOINT and"
            f" HTTPS_PROXY; {GOES_ON}"
        )
    elif isinstance(error, httpx2.TransportError) and is_passing(error):
        told = f"{reference}: the connection broke again and again ({reason(error)}): {GOES_ON}"
    elif isinstance(error, OSError) and not isinstance(error, httpx2.HTTPError):
        told = _disk(error)
    else:
        told = f"{reference} cannot be fetched from {endpoint()}: {reason(error)}"
    return DownloadFailed(told)


def _refused(error: Exception, reference: Reference) -> str:
    """Say what a status of the hub means; it answers 401 also where there is no such repository."""
    response = error.response  # type: ignore[attr-defined]
    status, code = response.status_code, response.headers.get("X-Error-Code", "")
    repository, page = reference.repository, f"{endpoint()}/{reference.repository}"
    who = "with the account of your token" if _has_token() else "then `hf auth login` or HF_TOKEN"
    messages = {
        "GatedRepo": f"{repository} is gated: accept its terms at {page}, {who}",
        "RevisionNotFound": f"{repository} has no revision {reference.revision}: see {page};"
        f" `specchat rm {reference}` forgets what was kept of it",
        "EntryNotFound": f"{repository} has no file {reference.file} any more: see {page}",
        "RepoNotFound": f"there is no {repository} at {endpoint()}, or it is private: check the"
        " name; a private one needs `hf auth login` or HF_TOKEN",
    }
    if status == 401 and "Invalid credentials" in response.headers.get("X-Error-Message", ""):
        return "the hub refuses your token: `hf auth login` again, or check HF_TOKEN"
    if code in messages:
        return messages[code]
    if not str(response.request.url).startswith(endpoint()) and status < 500 and status != 429:
        return (
            f"{response.request.url.host}, where the hub keeps {reference}, refuses it ({status}):"
            " try later, or see whether a proxy or a firewall forbids that host"
        )
    if status == 403:
        return messages["GatedRepo"]
    if status in {401, 404}:
        return messages["RepoNotFound"]
    if status == 429:
        return f"{endpoint()} allows no more requests now (429): wait some minutes; {GOES_ON}"
    if status >= 500:
        return f"{endpoint()} has trouble of its own ({status}): try later; {GOES_ON}"
    return f"{endpoint()} refuses {reference} ({status}): check HF_ENDPOINT and the name"


def _disk(error: OSError) -> str:
    """Say what the disk refuses."""
    if error.errno in FULL:
        return f"the disk is full at {cache_root()}: free some; {GOES_ON}"
    return f"{error.filename or cache_root()}: {error.strerror or error}"


def _has_token() -> bool:
    from huggingface_hub import get_token

    return get_token() is not None


def _is_untrusted(error: BaseException) -> bool:
    """Say whether TLS failed, which no waiting mends."""
    return any(
        isinstance(each, ssl.SSLCertVerificationError) or "CERTIFICATE_VERIFY_FAILED" in str(each)
        for each in _chain(error)
    )


def reason(error: BaseException) -> str:
    """Return the first words of the innermost cause, in one line."""
    texts = [str(each) for each in _chain(error) if str(each)]
    return " ".join(texts[0].split())[:160] if texts else type(error).__name__


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error:
        yield error
        error = error.__cause__ or error.__context__
