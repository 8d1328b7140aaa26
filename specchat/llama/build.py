"""What llama.cpp was built for, and the devices it finds here.

Run as `python -m specchat.llama.build` in a child process: looking for devices starts their
drivers, and a driver may end the process or keep memory of the GPU until it ends.
"""

from __future__ import annotations

import ctypes
import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import llama_cpp
import llama_cpp.llama_cpp as api
from llama_cpp._ctypes_extensions import load_shared_library

__all__ = ["BuildReport", "Device", "Ggml", "inquire", "main"]

KINDS = ("cpu", "gpu", "integrated gpu", "accelerator")
"""By ggml's numbers (enum ggml_backend_dev_type)."""

NO_LOG = api.llama_log_callback(lambda _level, _text, _data: None)
"""Lives as long as llama.cpp may call it."""

SHARING_NAMES = ("MTL", "Metal")
"""How ggml's names of Apple's GPUs begin, which share the machine's memory."""


@dataclass(frozen=True, slots=True)
class Device:
    """Something to compute on; its memory in bytes, 0 where it does not tell.

    `is_shared` says that it is the machine's memory, and not its own.
    """

    name: str
    description: str
    kind: str
    memory_free: int
    memory_total: int
    is_shared: bool


@dataclass(frozen=True, slots=True)
class BuildReport:
    """A build of llama.cpp: its Python package's version, what it can use, and what is here."""

    version: str
    system: str
    """llama.cpp's own list of the instructions it was built for."""
    can_offload: bool
    backends: tuple[str, ...]
    devices: tuple[Device, ...]


def inquire() -> BuildReport:
    """Start llama.cpp and ask it; native code that cannot run ends the process."""
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
    """Print what there is to tell as one JSON line; return the exit code."""
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
        """Yield the devices that are here."""
        for handle in self._all("dev"):
            free, total = ctypes.c_size_t(), ctypes.c_size_t()
            memory = self._base["ggml_backend_dev_memory"]
            memory.restype = None
            memory(ctypes.c_void_p(handle), ctypes.byref(free), ctypes.byref(total))
            kind = self._base["ggml_backend_dev_type"]
            kind.restype = ctypes.c_int
            name = self._text("dev_name", handle)
            kind_name = dict(enumerate(KINDS)).get(kind(ctypes.c_void_p(handle)), "other")
            has_own = kind_name == "gpu" and not name.startswith(SHARING_NAMES)
            yield Device(
                name=name,
                description=self._text("dev_description", handle),
                kind=kind_name,
                memory_free=free.value,
                memory_total=total.value,
                is_shared=not (has_own and total.value),
            )

    def _all(self, what: str) -> Iterator[int]:
        count = self._registry[f"ggml_backend_{what}_count"]
        count.restype = ctypes.c_size_t
        get = self._registry[f"ggml_backend_{what}_get"]
        get.argtypes, get.restype = [ctypes.c_size_t], ctypes.c_void_p
        yield from (get(index) for index in range(count()))

    def _text(self, what: str, handle: int) -> str:
        tell = self._base[f"ggml_backend_{what}"]
        tell.argtypes, tell.restype = [ctypes.c_void_p], ctypes.c_char_p
        return (tell(handle) or b"").decode("utf-8", "replace")


if __name__ == "__main__":
    sys.exit(main())
