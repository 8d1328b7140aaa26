"""Which workers may be asked: in offline mode only those of this machine."""

from collections.abc import Sequence

from specchat.errors import WorkerUnavailable
from specchat.hub.offline import is_offline
from specchat.options.worker_address import WorkerAddress


def require_allowed(addresses: Sequence[WorkerAddress]) -> None:
    """Raise WorkerUnavailable if specchat is offline and an address is not of this machine."""
    for address in addresses if is_offline() else ():
        if not address.is_here:
            raise WorkerUnavailable(
                f"the worker {address} is on the network, and specchat is offline: leave out"
                " --offline, SPECCHAT_OFFLINE and HF_HUB_OFFLINE, or --worker"
            )
