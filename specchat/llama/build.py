"""The build of llama.cpp, and the devices it finds.

Run as `python -m specchat.llama.build` in a child process: looking for devices starts their
drivers, and a driver may crash, or hold memory of the GPU until the process ends.
"""

import ctypes
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import llama_cpp
import llama_cpp.llama_cpp as api
from llama_cpp._ctypes_extensions import load_shared_library

from specchat.llama.child_process import BuildReport
from specchat.planning.device import Device, DeviceKind

KINDS: tuple[DeviceKind, ...] = ("cpu", "gpu", "integrated")
"""By ggml's numbers (enum ggml_backend_dev_type); accelerators and others follow."""

NO_LOG = api.llama_log_callback(lambda _level, _text, _data: None)
"""Kept alive as long as llama.cpp may call it."""

SHARING_NAMES = ("MTL", "Metal")
"""How ggml's names of Apple's GPUs begin, which share the host's memory."""


def inquire() -> BuildReport:
    """Start llama.cpp and describe its build; native code that cannot run kills the process."""
    api.llama_log_set(NO_LOG, ctypes.c_void_p())
    api.llama_backend_init()
    ggml = Ggml()
    return BuildReport(
        version=str(llama_cpp.__version__),
        system=(api.llama_print_system_info() or b"").decode("utf-8", "replace").strip(),
        can_offload=bool(api.llama_supports_gpu_offload()),
        backends=tuple(ggml.backends()),
        devices=tuple(ggml.devices()),
    )


def main() -> int:
    """Print the build report as one line of JSON; return the exit code."""
    print(json.dumps(asdict(inquire())))
    return 0


class Ggml:
    """ggml's list of backends and devices, for which llama-cpp-python has no functions."""

    def __init__(self) -> None:
        folder = Path(str(llama_cpp.__file__)).parent / "lib"
        self._registry = load_shared_library("ggml", folder)
        self._base = load_shared_library("ggml-base", folder)

    def backends(self) -> Iterator[str]:
        """Yield the names of the backends that are compiled in."""
        for handle in self._all("reg"):
            yield self._text("reg_name", handle)

    def devices(self) -> Iterator[Device]:
        """Yield the devices of this machine."""
        for handle in self._all("dev"):
            name = self._text("dev_name", handle)
            free, total = self._memory(handle)
            kind = self._kind(handle)
            if kind == "gpu" and (name.startswith(SHARING_NAMES) or not total):
                kind = "integrated"
            yield Device(name, self._text("dev_description", handle), kind, free, total)

    def _memory(self, handle: int) -> tuple[int, int]:
        """Return the free and total bytes of a device, 0 where it does not report them."""
        free, total = ctypes.c_size_t(), ctypes.c_size_t()
        memory = self._base["ggml_backend_dev_memory"]
        memory.restype = None
        memory(ctypes.c_void_p(handle), ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def _kind(self, handle: int) -> DeviceKind:
        kind = self._base["ggml_backend_dev_type"]
        kind.restype = ctypes.c_int
        return dict(enumerate(KINDS)).get(kind(ctypes.c_void_p(handle)), "other")

    def _all(self, what: str) -> Iterator[int]:
        count = self._registry[f"ggml_backend_{what}_count"]
        count.restype = ctypes.c_size_t
        get = self._registry[f"ggml_backend_{what}_get"]
        get.argtypes, get.restype = [ctypes.c_size_t], ctypes.c_void_p
        yield from (get(index) for index in range(count()))

    def _text(self, what: str, handle: int) -> str:
        get = self._base[f"ggml_backend_{what}"]
        get.argtypes, get.restype = [ctypes.c_void_p], ctypes.c_char_p
        return (get(handle) or b"").decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
