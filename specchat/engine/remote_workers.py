"""The workers that hold layers of a target: what they offer, and connecting to them."""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

from specchat.engine.api import Loading
from specchat.engine.worker_access import require_allowed
from specchat.llama.remote_devices import WorkerConnections
from specchat.options.worker_address import worker_address
from specchat.planning.device import Device, as_devices, keep_workers
from specchat.workers.worker_probe import WorkerReport, probe_worker, require_different
from specchat.workers.worker_watch import LostCallback, WorkerWatch


@dataclass(frozen=True, slots=True)
class RemoteWorkers:
    """The workers of a pair, with what each reported before the pair was loaded.

    Those in `unused` were named to no effect, because no layers may leave the CPU; they are not
    asked.
    """

    reports: tuple[WorkerReport, ...] = ()
    unused: tuple[str, ...] = ()

    @property
    def devices(self) -> list[Device]:
        """The devices of all workers, in the order in which the workers were named."""
        return [device for report in self.reports for device in as_devices(report)]

    @property
    def round_trip(self) -> float:
        """The seconds that a request to the slowest worker takes; 0.0 without workers."""
        return max((report.round_trip for report in self.reports), default=0.0)

    @property
    def notices(self) -> Iterator[str]:
        """What the user should know about these workers, one line each."""
        unwatched = [str(report.address) for report in self.reports if not report.has_health]
        if unwatched:
            yield (
                f"{', '.join(unwatched)} has no health port, so nothing notices when it hangs: run"
                " `specchat worker` there, and forward the port after it too"
            )
        if self.unused:
            yield f"{', '.join(self.unused)} is not used: --gpu-layers is 0"

    def connect(self, stack: ExitStack, on_lost: LostCallback) -> None:
        """Let llama.cpp use the devices, and watch the workers, until `stack` closes."""
        if not self.reports:
            return
        keep_workers(self.devices)
        watch = stack.enter_context(WorkerWatch(self.reports, on_lost))
        stack.enter_context(WorkerConnections(self.reports, watch))


def find_workers(loading: Loading) -> RemoteWorkers:
    """Ask the workers of a pair what they offer. Raises WorkerUnavailable if one cannot be used."""
    if loading.gpu_layers == 0:
        return RemoteWorkers(unused=tuple(loading.workers))
    addresses = [worker_address(name) for name in loading.workers]
    require_allowed(addresses)
    reports = tuple([probe_worker(address) for address in addresses])
    require_different(reports)
    return RemoteWorkers(reports)
