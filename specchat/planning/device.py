"""Devices that can hold a model: the host's processors with their memory, and GPUs.

Only llama.cpp knows which GPUs it can use. Its last report is kept in a file, so that a list
appears at once. Reports of other builds are ignored, because builds find different GPUs.
"""

import importlib.util
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal, TypeAlias

from specchat.options.worker_address import USUAL_PORT
from specchat.planning.host_resources import available_bytes, num_cores, repacks_weights
from specchat.planning.token_time import HAND_OVER, REMOTE_HAND_OVER, USUAL_BANDWIDTHS
from specchat.system.private_files import FOLDERS, read_json, write_json
from specchat.workers.worker_probe import WorkerReport

DeviceKind: TypeAlias = Literal["cpu", "gpu", "integrated", "other"]
MOST_SPARED = 2**30
USUAL_END = f":{USUAL_PORT}"
MOST_KEPT = 32
"""Workers whose devices are remembered."""


@dataclass(frozen=True, slots=True)
class Device:
    """A processor that models run on; its memory is in bytes, 0 if unknown.

    `name` is llama.cpp's, such as "CUDA0". An "integrated" GPU shares the host's memory. GPUs that
    the system reports have a `driver` and the llama.cpp `backend` that runs on them. A device of
    another machine has the address of its `worker`. Passes show a `measured_bandwidth` in bytes per
    second, 0 before that.
    """

    name: str
    description: str
    kind: DeviceKind
    free: int = 0
    total: int = 0
    driver: str = ""
    backend: str = ""
    worker: str = ""
    measured_bandwidth: float = 0.0

    @property
    def bandwidth(self) -> float:
        """The bytes per second at which passes read its memory, as measured or assumed."""
        return self.measured_bandwidth or USUAL_BANDWIDTHS[self.kind]

    @property
    def label(self) -> str:
        """The name to show, with the worker's address."""
        return f"{self.description or self.name}{self._suffix}"

    @property
    def short_label(self) -> str:
        """llama.cpp's name, with the worker's address."""
        return f"{self.name}{self._suffix}"

    @property
    def _suffix(self) -> str:
        return f" on {self.worker.removesuffix(USUAL_END)}" if self.worker else ""

    @property
    def budget(self) -> int:
        """The free bytes that a plan may use; a little is left to all else."""
        spared = min(self.total // (16 if self.kind == "gpu" else 20), MOST_SPARED)
        return max(0, self.free - spared)


def as_devices(report: WorkerReport) -> tuple[Device, ...]:
    """Return the devices of a worker; to llama.cpp they are GPUs, whatever they are there."""
    address = str(report.address)
    return tuple(
        Device(device.name, device.description, "gpu", device.free, device.total, worker=address)
        for device in report.devices
    )


def planned_gpus(devices: Sequence[Device]) -> list[Device]:
    """Return the devices a target is split over beside the host, in llama.cpp's order.

    Workers come first: the last layers, whose logits are large, are best on this machine.
    """
    workers = [device for device in devices if device.worker]
    return [*workers, *gpus_of(device for device in devices if not device.worker)]


def gpus_of(devices: Iterable[Device]) -> list[Device]:
    """Return the GPUs that llama.cpp uses: integrated ones only if there are no others."""
    devices = list(devices)
    gpus = [device for device in devices if device.kind == "gpu"]
    return gpus or [device for device in devices if device.kind == "integrated"]


def hand_over_of(devices: Iterable[Device]) -> float:
    """Return the seconds that handing results over between these devices is taken to last."""
    return REMOTE_HAND_OVER if any(device.worker for device in devices) else HAND_OVER


def used_and_total(gpus: Iterable[Device]) -> tuple[int, int]:
    """Return the bytes of GPU memory in use by all programs, and all bytes of these GPUs."""
    gpus = list(gpus)
    return sum(max(0, gpu.total - gpu.free) for gpu in gpus), sum(gpu.total for gpu in gpus)


def host_of(devices: Iterable[Device]) -> Device:
    """Return the host, with unlimited memory if none is listed."""
    unknown = Device("CPU", "", "cpu", 2**62, 2**62)
    return next((device for device in devices if device.kind == "cpu"), unknown)


@dataclass(frozen=True, slots=True)
class Machine:
    """The host's free bytes and its GPUs; None if unknown.

    `repacks_weights` says whether its processors check four tokens of a Q4_0 file at once,
    `num_cores` how many cores decode, 0 if unknown.
    """

    free: int | None
    gpus: tuple[Device, ...] | None = None
    repacks_weights: bool = True
    num_cores: int = 0


@dataclass(frozen=True, slots=True)
class _KnownWorkers:
    """The devices that workers last had, by address, without their free memory."""

    workers: dict[str, tuple[Device, ...]]


@dataclass(frozen=True, slots=True)
class _ReportedGpus:
    """The content of the file."""

    build: int
    gpus: tuple[Device, ...]


def find_machine(workers: Iterable[str] = ()) -> Machine:
    """Return the free memory and the GPUs that llama.cpp last reported, and those of workers."""
    reported = read_json(gpus_path(), _ReportedGpus, None)
    gpus = reported.gpus if reported and reported.build == _installed_build() else None
    remote = known_workers(workers)
    gpus = (*remote, *(gpus or ())) if remote else gpus
    return Machine(available_bytes(), gpus, repacks_weights(), num_cores())


def gpus_path() -> Path:
    """Return the path of the file with the GPUs."""
    return FOLDERS.user_state_path / "gpus.json"


def keep_gpus(gpus: Iterable[Device]) -> None:
    """Save the GPUs that llama.cpp can use; do nothing if the file cannot be written.

    Their free memory is not saved, because it changes all the time.
    """
    reported = _ReportedGpus(_installed_build(), tuple(replace(gpu, free=0) for gpu in gpus))
    with suppress(OSError):
        if reported != read_json(gpus_path(), _ReportedGpus, None):
            write_json(gpus_path(), reported)


def workers_path() -> Path:
    """Return the path of the file with the workers' devices."""
    return FOLDERS.user_state_path / "workers.json"


def known_workers(addresses: Iterable[str]) -> tuple[Device, ...]:
    """Return the devices that workers had when they were last used, as if nothing was in use."""
    by_worker = read_json(workers_path(), _KnownWorkers, _KnownWorkers({})).workers
    devices = [device for address in addresses for device in by_worker.get(address, ())]
    return tuple(replace(device, free=device.total) for device in devices)


def keep_workers(devices: Iterable[Device]) -> None:
    """Remember the devices of workers; do nothing if the file cannot be written."""
    by_worker: dict[str, tuple[Device, ...]] = {}
    for device in devices:
        by_worker[device.worker] = (*by_worker.get(device.worker, ()), replace(device, free=0))
    before = read_json(workers_path(), _KnownWorkers, _KnownWorkers({})).workers
    others = [item for item in before.items() if item[0] not in by_worker]
    kept = dict([*others, *by_worker.items()][-MOST_KEPT:])
    with suppress(OSError):
        if kept != before:
            write_json(workers_path(), _KnownWorkers(kept))


def _installed_build() -> int:
    """Return when llama.cpp's libraries were installed, without loading them; 0 if unknown."""
    spec = importlib.util.find_spec("llama_cpp")
    folder = Path(spec.origin).with_name("lib") if spec and spec.origin else Path()
    try:
        return folder.stat().st_mtime_ns
    except OSError:
        return 0
