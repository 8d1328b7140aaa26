"""The devices of this machine that can hold models, with the memory each can still give."""

from __future__ import annotations

from specchat.llama.build import Device as Found
from specchat.llama.build import Ggml
from specchat.llama.library import start
from specchat.planning.device import Device, available_bytes

__all__ = ["list_devices"]


def list_devices() -> list[Device]:
    """Return the CPU and the GPUs that llama.cpp can use; starts their drivers."""
    start()
    return [device for found in Ggml().devices() if (device := _device(found))]


def _device(found: Found) -> Device | None:
    """Return a device as plans know it; None for one that holds no models."""
    if found.kind == "cpu":
        free = available_bytes()
        free = found.memory_free if free is None else free
        return Device(found.name, found.description, "cpu", free, found.memory_total)
    if found.kind not in {"gpu", "integrated gpu"}:
        return None
    if not found.memory_total:  # llama.cpp takes the machine's memory for one that does not tell
        free = available_bytes() or 0
        return Device(found.name, found.description, "integrated", free, free)
    return Device(
        found.name,
        found.description,
        "integrated" if found.is_shared else "gpu",
        found.memory_free,
        found.memory_total,
    )
