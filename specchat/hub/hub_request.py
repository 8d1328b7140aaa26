"""A request to the hub, with the user's token where it belongs, and without it after a refusal."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TypeAlias, TypeVar
from urllib.parse import urlsplit

from specchat import __version__
from specchat.errors import DownloadFailed
from specchat.hub.hub_errors import REFUSED
from specchat.hub.references import HUB, endpoint, shown_endpoint

if TYPE_CHECKING:  # slow to import
    import httpx2

    from specchat.network.web_client import WebClient

# Set before huggingface_hub is imported, which would otherwise send facts about this machine.
os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
# The same for its log of retries, which would interrupt the progress line.
os.environ.setdefault("HF_HUB_VERBOSITY", "error")
with suppress(DownloadFailed):  # it reads the variable when it is imported, and fails for a space
    if os.environ.get("HF_ENDPOINT"):
        os.environ["HF_ENDPOINT"] = endpoint()

PROGRAM = "specchat"
"""The name in the user agent, before the version."""

UNAUTHORIZED = 401
BAD_TOKEN = re.compile(r"credential|token|expired|password", re.IGNORECASE)
"""The hub's words for a token that it refuses; it also answers 401 for missing repositories."""

NoticeCallback: TypeAlias = Callable[[str], None]
"""Called with what the user should know while the download continues."""


Result = TypeVar("Result")


def ignore(notice: str) -> None:
    """Drop a notice."""


def answer(
    address: str,
    seconds: float,
    read: Callable[[httpx2.Response], Result],
    headers: Mapping[str, str] | None = None,
    method: str = "GET",
    on_notice: NoticeCallback = ignore,
    *,
    timeout: httpx2.Timeout | float | None = None,
    follow: bool = True,
) -> Result:
    """Return what `read` returns for the response to a request.

    Raises httpx2.ReadTimeout if that takes longer than `seconds` in all.
    """
    import httpx2

    from specchat.network.web_client import CLIENTS, Request

    def work(client: WebClient) -> Result:
        steps = seconds if timeout is None else timeout
        with _response(client, address, steps, headers, method, on_notice, follow) as response:
            return read(response)

    try:
        return Request(CLIENTS, work).result(seconds)
    except TimeoutError as error:
        raise httpx2.ReadTimeout(str(error), request=httpx2.Request(method, address)) from None


@contextmanager
def request(
    address: str,
    timeout: float,
    headers: Mapping[str, str] | None = None,
    on_notice: NoticeCallback = ignore,
) -> Iterator[httpx2.Response]:
    """Yield the response to a request, whose body can be read as it arrives.

    The user's token goes to the hub alone. If the hub refuses it, the request is made once more
    without: a public file needs none. `timeout` are the seconds without a byte.
    """
    from specchat.network.web_client import CLIENTS

    with (
        CLIENTS.client() as client,
        _response(client, address, timeout, headers, "GET", on_notice, follow=True) as response,
    ):
        yield response


@contextmanager
def _response(
    client: WebClient,
    address: str,
    timeout: httpx2.Timeout | float,
    headers: Mapping[str, str] | None,
    method: str,
    on_notice: NoticeCallback,
    follow: bool,
) -> Iterator[httpx2.Response]:
    from huggingface_hub import constants
    from huggingface_hub.errors import OfflineModeIsEnabled

    if constants.is_offline_mode():
        raise OfflineModeIsEnabled
    is_of_hub = origin(address) in {origin(endpoint()), origin(HUB)}
    sent = _headers(headers, with_token=is_of_hub)
    token = sent.get("authorization", "")
    refusal = None
    if token not in _refused_tokens:
        with client.stream(
            method, address, headers=sent, timeout=timeout, follow_redirects=follow
        ) as response:
            if not token or response.status_code != UNAUTHORIZED or response.history:
                yield response
                return
            refusal = response
    sent = _headers(headers, with_token=False)
    with client.stream(
        method, address, headers=sent, timeout=timeout, follow_redirects=follow
    ) as response:
        if refusal is None or _is_token_wrong(refusal, response):
            _refused_tokens.add(token)
            response.extensions[REFUSED] = _source_of_token()
            if response.status_code < 400:
                on_notice(
                    f"{shown_endpoint()} refused the token in {_source_of_token()}, so the download"
                    " goes on without it: `hf auth login` gets a new one"
                )
        yield response


_refused_tokens: set[str] = set()
"""The headers with tokens that the hub has refused to this process."""


def _is_token_wrong(refusal: httpx2.Response, without: httpx2.Response) -> bool:
    """Return True if the token was refused, rather than what was asked for with it."""
    said = refusal.headers.get("X-Error-Message", "")
    return without.status_code != UNAUTHORIZED or bool(BAD_TOKEN.search(said))


def _source_of_token() -> str:
    """Return where the user's token comes from, never the token."""
    from huggingface_hub import constants

    for name in ("HF_OIDC_RESOURCE", "HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"):
        if os.environ.get(name, "").strip():
            return name
    return constants.HF_TOKEN_PATH


def _headers(headers: Mapping[str, str] | None, *, with_token: bool) -> dict[str, str]:
    """Return the headers of a request, with the user's token. Raises DownloadFailed."""
    from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

    sent: dict[str, str] = build_hf_headers(
        token=None if with_token else False,
        headers=dict(headers or {}),
        library_name=PROGRAM,
        library_version=__version__,
    )
    token = sent.get("authorization", "")
    if not (token.isascii() and token.isprintable()):
        raise DownloadFailed(
            f"the token in {_source_of_token()} has characters that no token has: copy it again, or"
            " run `hf auth login`"
        )
    return sent


def origin(url: str) -> tuple[str, str, int]:
    """Return scheme, host and port."""
    parts = urlsplit(url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    return parts.scheme.lower(), parts.hostname or "", port
