"""The backends and devices of llama.cpp, for which llama-cpp-python has no functions."""

import ctypes
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from specchat.llama.library import start
from specchat.llama.native_libraries import ggml_library
from specchat.planning.device import Device, DeviceKind, gpus_of
from specchat.planning.host_resources import available_bytes

KINDS: dict[int, DeviceKind] = {0: "cpu", 1: "gpu", 2: "integrated"}
"""The kinds by ggml's number (enum ggml_backend_dev_type); higher ones are accelerators."""
GPU_NUMBERS = (1, 2)

SHARING_NAMES = ("MTL", "Metal")
"""Prefixes of ggml's names for Apple GPUs, which share the host's memory."""


def list_devices() -> list[Device]:
    """Return the CPU and the GPUs with the memory now available to this process; starts drivers."""
    start()
    return [_measured(device) for device in all_devices() if device.kind != "other"]


def _measured(device: Device) -> Device:
    free = available_bytes()
    if device.kind == "cpu":
        return device if free is None else replace(device, free=free)
    if not device.total:  # then llama.cpp uses the host's memory
        return replace(device, free=free or 0, total=free or 0)
    return device


def all_backends() -> Iterator[str]:
    """Yield the names of the backends that are compiled in."""
    for handle in _handles("reg"):
        yield _text("reg_name", handle)


def all_devices() -> Iterator[Device]:
    """Yield the devices of this machine; their memory is 0 if they do not report it."""
    for handle in _handles("dev"):
        yield describe(handle)


def describe(handle: ctypes.c_void_p) -> Device:
    """Return what a device reports."""
    name = _text("dev_name", handle)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    call_backend("dev_memory", None, handle, ctypes.byref(free), ctypes.byref(total))
    kind = KINDS.get(call_backend("dev_type", ctypes.c_int, handle), "other")
    if kind == "gpu" and (name.startswith(SHARING_NAMES) or not total.value):
        kind = "integrated"
    return Device(name, _text("dev_description", handle), kind, free.value, total.value)


def has_gpus() -> bool:
    """Whether this machine has GPUs; with its RPC backend, llama.cpp always says that it has."""
    return any(_call("ggml", "dev_by_type", ctypes.c_void_p, number) for number in GPU_NUMBERS)


def gpu_handles() -> list[ctypes.c_void_p]:
    """Return the GPUs that `gpus_of` would, as llama.cpp refers to them."""
    handles = list(_handles("dev"))
    devices = [describe(handle) for handle in handles]
    gpus = gpus_of(devices)
    return [handle for handle, device in zip(handles, devices, strict=True) if device in gpus]


def offered_handles() -> list[tuple[ctypes.c_void_p, Device]]:
    """Return the devices that a worker can lend: GPUs, then the CPU."""
    described = [(handle, describe(handle)) for handle in _handles("dev")]
    measured = [(handle, _measured(device)) for handle, device in described]
    wanted = [pair for pair in measured if pair[1].kind != "other"]
    return sorted(wanted, key=lambda pair: pair[1].kind == "cpu")


def _handles(what: str) -> Iterator[ctypes.c_void_p]:
    for index in range(_call("ggml", f"{what}_count", ctypes.c_size_t)):
        number = _call("ggml", f"{what}_get", ctypes.c_void_p, ctypes.c_size_t(index))
        yield ctypes.c_void_p(number)


def _text(function: str, handle: ctypes.c_void_p) -> str:
    encoded: bytes | None = call_backend(function, ctypes.c_char_p, handle)
    return (encoded or b"").decode("utf-8", "replace")


def call_backend(name: str, result: Any, *arguments: Any) -> Any:
    """Call `ggml_backend_NAME` of ggml's base library; `result` is the C type that it returns."""
    return _call("ggml-base", name, result, *arguments)


def _call(library: str, name: str, result: Any, *arguments: Any) -> Any:
    """Call a function of ggml's backends; `result` is the C type that it returns."""
    start()
    loaded: Any = ggml_library(library)
    function = loaded[f"ggml_backend_{name}"]
    function.restype = result
    return function(*arguments)
