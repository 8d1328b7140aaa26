"""Whether the hub can be reached, from where models come; nothing else needs a network."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING
from urllib.parse import urljoin, urlsplit

from specchat.doctor.finding import Finding
from specchat.hub.client import get_ready, reach
from specchat.hub.hub_errors import reason
from specchat.hub.offline import is_offline
from specchat.hub.references import endpoint

if TYPE_CHECKING:  # slow to import, which a name of a type is not worth
    import httpx2

__all__ = ["check_network"]

SECONDS = 3.0
WITHOUT_PAGE = {404, 405}
"""What a mirror answers that has models and no front page."""
OFFLINE = ("export SPECCHAT_OFFLINE=1",)
PROXY = ("export HTTPS_PROXY=http://NAME:PASSWORD@HOST:PORT",)


def check_network() -> Finding:
    """Send the hub one short request, unless in offline mode."""
    if is_offline():
        return Finding("network", "ok", "offline mode: not asked, and not needed but to pull")
    get_ready()
    began = monotonic()
    told: list[httpx2.Response | Exception] = []
    asking = threading.Thread(target=_ask, args=(told,), daemon=True)
    asking.start()
    asking.join(SECONDS)  # looking up a name takes as long as the system likes
    if not told:
        return _unreachable(f"no answer within {SECONDS:g} s")
    if isinstance(told[0], Exception):
        why = reason(told[0])
        return _unreachable(why, PROXY if "407" in why else OFFLINE)
    return _judged(told[0], 1000 * (monotonic() - began))


def _ask(told: list[httpx2.Response | Exception]) -> None:
    try:
        told.append(reach(SECONDS))
    except Exception as error:  # noqa: BLE001 -- whatever it is, the hub is not reached
        told.append(error)


def _judged(answer: httpx2.Response, taken: float) -> Finding:
    """Say by the status whether it was the hub that answered, and is well."""
    status = answer.status_code
    address = urljoin(endpoint(), answer.headers.get("Location", ""))
    if answer.is_success or status in WITHOUT_PAGE or _is_its_own(answer, address):
        return Finding("network", "ok", f"{endpoint()} answers within {taken:.0f} ms")
    if status == 407:
        return _answered(status, "the proxy wants a name and a password", PROXY)
    if answer.is_redirect:
        return _answered(
            status,
            f"sent on to {urlsplit(address).netloc}: log in to the network, or see HF_ENDPOINT",
        )
    if answer.is_server_error:
        return _answered(status, "it has trouble of its own: try later, or see HF_ENDPOINT")
    if status == 429:
        return _answered(status, "it allows no more requests now: wait some minutes")
    return _answered(status, "refused: see HF_ENDPOINT, and whether a firewall forbids it")


def _is_its_own(answer: httpx2.Response, address: str) -> bool:
    """Say whether it is a redirect to another page of the same host."""
    is_same = urlsplit(address).netloc == urlsplit(endpoint()).netloc
    return answer.is_redirect and is_same


def _answered(status: int, what: str, mend: tuple[str, ...] = OFFLINE) -> Finding:
    told = (
        f"{endpoint()} answers with status {status}, {what}; what is here works, pulling does not"
    )
    return Finding("network", "warning", told, mend)


def _unreachable(why: str, mend: tuple[str, ...] = OFFLINE) -> Finding:
    told = (
        f"{endpoint()} cannot be reached ({why}): what is here works, pulling does not; check the"
        " network, HF_ENDPOINT and HTTPS_PROXY"
    )
    return Finding("network", "warning", told, mend)
