"""Whether the hub can be reached, from where models come; nothing else needs a network."""

from __future__ import annotations

import threading
from time import monotonic

from specchat.catalogue.failures import reason
from specchat.catalogue.hub import reach
from specchat.catalogue.offline import is_offline
from specchat.catalogue.references import endpoint
from specchat.doctor.finding import Finding

__all__ = ["check_network"]

SECONDS = 3.0
OFFLINE = "specchat doctor --offline"


def check_network() -> Finding:
    """Send the hub one short request, unless in offline mode."""
    if is_offline():
        return Finding("network", "ok", "offline mode: not asked, and not needed but to pull")
    began = monotonic()
    errors: list[Exception] = []
    asking = threading.Thread(target=_ask, args=(errors,), daemon=True)
    asking.start()
    asking.join(SECONDS)  # looking up a name takes as long as the system likes
    if asking.is_alive():
        return _unreachable(f"no answer within {SECONDS:g} s")
    if errors:
        return _unreachable(reason(errors[0]))
    taken = 1000 * (monotonic() - began)
    return Finding("network", "ok", f"{endpoint()} answers within {taken:.0f} ms")


def _ask(errors: list[Exception]) -> None:
    try:
        reach(SECONDS)
    except Exception as error:  # noqa: BLE001 -- whatever it is, the hub is not reached
        errors.append(error)


def _unreachable(why: str) -> Finding:
    told = (
        f"{endpoint()} cannot be reached ({why}): what is here works, pulling does not; check the"
        " network, HF_ENDPOINT and HTTPS_PROXY"
    )
    return Finding("network", "warning", told, ("export SPECCHAT_OFFLINE=1",))
