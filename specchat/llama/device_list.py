"""The devices that can hold models, with the memory each has free right now."""

from dataclasses import replace

from specchat.llama.build import Ggml
from specchat.llama.library import start
from specchat.planning.device import Device
from specchat.planning.host_resources import available_bytes


def list_devices() -> list[Device]:
    """Return the CPU and the GPUs that llama.cpp can use; starts their drivers."""
    start()
    return [_measured(device) for device in Ggml().devices() if device.kind != "other"]


def _measured(device: Device) -> Device:
    """Return a device with the memory that this process may use."""
    free = available_bytes()
    if device.kind == "cpu":
        return device if free is None else replace(device, free=free)
    if not device.total:  # llama.cpp uses the host's memory then
        return replace(device, free=free or 0, total=free or 0)
    return device
