"""Devices that can hold a model: the host's processors with their memory, and GPUs."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

DeviceKind: TypeAlias = Literal["cpu", "gpu", "integrated", "other"]
MOST_SPARED = 2**30


@dataclass(frozen=True, slots=True)
class Device:
    """A processor that models run on; its memory in bytes, 0 where it is not known.

    `name` is llama.cpp's, "CUDA0" for instance. An "integrated" GPU shares the host's memory. For
    GPUs that the system reports, `driver` is known, and the `backend` of llama.cpp that runs on it.
    """

    name: str
    description: str
    kind: DeviceKind
    free: int = 0
    total: int = 0
    driver: str = ""
    backend: str = ""

    @property
    def label(self) -> str:
        """The name to show."""
        return self.description or self.name

    @property
    def budget(self) -> int:
        """The free bytes that a plan may use."""
        return max(0, self.free - self._spared)

    @property
    def room(self) -> int:
        """The bytes for models if no other program uses the device."""
        return self.total - self._spared

    @property
    def _spared(self) -> int:
        """The bytes left to the screen, the driver and other programs; fewer of shared memory."""
        return min(self.total // (16 if self.kind == "gpu" else 20), MOST_SPARED)


def gpus_of(devices: Iterable[Device]) -> list[Device]:
    """Return the GPUs that llama.cpp uses: integrated ones only where there are no others."""
    devices = list(devices)
    gpus = [device for device in devices if device.kind == "gpu"]
    return gpus or [device for device in devices if device.kind == "integrated"]


def host_of(devices: Iterable[Device]) -> Device:
    """Return the host, with unlimited memory where none is listed."""
    unknown = Device("CPU", "", "cpu", 2**62, 2**62)
    return next((device for device in devices if device.kind == "cpu"), unknown)
