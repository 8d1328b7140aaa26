"""A check that the hub can be reached; only pulling models needs it."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from specchat.doctor import Finding
from specchat.hub.client import is_offline
from specchat.hub.hub_errors import reason
from specchat.hub.references import endpoint, shown_endpoint

if TYPE_CHECKING:  # slow to import
    import httpx2

TIMEOUT_SECONDS = 3.0
STATUSES = {
    407: "the proxy requires a login",
    429: "too many requests: wait a few minutes",
}
CONSEQUENCE = "only pairs with a wheel (smollm2-135m) can be pulled; installed models work"
OFFLINE = ("export SPECCHAT_OFFLINE=1",)
PROXY = ("export HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT",)


def check_network() -> Finding:
    """Send the hub one short request, unless in offline mode."""
    if is_offline():
        return Finding("network", "ok", "not checked in offline mode; only pulling needs it")
    from huggingface_hub import get_session

    session = get_session()  # importing it does not count as the hub's answer time
    found = [_unreachable(f"no answer within {TIMEOUT_SECONDS:g} s")]
    request = threading.Thread(target=lambda: found.append(_contact(session)), daemon=True)
    request.start()
    request.join(TIMEOUT_SECONDS)  # resolving a name has no timeout of its own
    return found[-1]


def _contact(session: httpx2.Client) -> Finding:
    began = monotonic()
    try:
        answer = session.head(endpoint(), timeout=TIMEOUT_SECONDS, follow_redirects=False)
    except Exception as error:  # noqa: BLE001 -- any error means the hub is not reached
        why = reason(error)
        return _unreachable(why, PROXY if "407" in why else OFFLINE)
    milliseconds = 1000 * (monotonic() - began)
    status = answer.status_code
    address = urljoin(endpoint(), answer.headers.get("Location", ""))
    stays_here = answer.is_redirect and urlsplit(address).netloc == urlsplit(endpoint()).netloc
    has_no_page = status in {404, 405}  # some mirrors have no front page
    if answer.is_success or has_no_page or stays_here:
        return Finding("network", "ok", f"{shown_endpoint()} answers within {milliseconds:.0f} ms")
    meaning = STATUSES.get(status, "refused: check HF_ENDPOINT and your firewall")
    if answer.is_redirect:
        host = urlsplit(address).netloc
        meaning = f"redirected to {host}: log in to the network or check HF_ENDPOINT"
    elif answer.is_server_error:
        meaning = "server error: try again later, or check HF_ENDPOINT"
    detail = f"{shown_endpoint()} answers with status {status}, {meaning}; {CONSEQUENCE}"
    return Finding("network", "warning", detail, PROXY if status == 407 else OFFLINE)


def _unreachable(why: str, fix: tuple[str, ...] = OFFLINE) -> Finding:
    detail = (
        f"{shown_endpoint()} cannot be reached ({why}): check the network, HF_ENDPOINT and"
        f" HTTPS_PROXY; {CONSEQUENCE}"
    )
    return Finding("network", "warning", detail, fix)
