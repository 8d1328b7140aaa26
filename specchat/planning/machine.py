"""What this machine can hold, told without llama.cpp, so that a list need not wait for it.

The machine's own memory is asked of the system. What GPUs there are only llama.cpp knows: what it
told last, when a model was loaded or somebody asked, is kept.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import platformdirs

from specchat.planning.device import available_bytes, spared_bytes
from specchat.private_files import DamagedFile, read_json, write_json

__all__ = ["Gpu", "Machine", "find_machine", "gpus_among", "gpus_path", "keep_gpus"]

MEMORY_FILE = Path("/proc/meminfo")
GROUP_FOLDER = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU that llama.cpp can use and its bytes of memory, the host's own where `is_shared`.

    What is free of it changes by the minute, so nobody keeps that: `room` is what models may take
    where no other program does.
    """

    name: str
    total: int
    is_shared: bool = False

    @property
    def room(self) -> int:
        """The bytes for models: all but what is left to the screen, the driver and the like."""
        return self.total - spared_bytes(self.total, is_shared=self.is_shared)


@dataclass(frozen=True, slots=True)
class Machine:
    """The free bytes of the host, None where it does not say, and its GPUs, None if not known."""

    free: int | None
    gpus: tuple[Gpu, ...] | None = None

    @property
    def room_on_gpus(self) -> int:
        """The bytes for models on all GPUs together; those of a shared one are the host's."""
        total = sum(gpu.room for gpu in self.gpus or ())
        is_shared = any(gpu.is_shared for gpu in self.gpus or ())
        return min(total, self.free or 0) if is_shared else total

    @property
    def room_in_all(self) -> int:
        """The bytes for models on the host and on GPUs of their own memory."""
        return (self.free or 0) + sum(gpu.room for gpu in self.gpus or () if not gpu.is_shared)


def find_machine() -> Machine:
    """Return what is known of this machine; nothing is started for it."""
    return Machine(_free_bytes(), _kept_gpus())


def gpus_path() -> Path:
    """Return the file that keeps what GPUs there are."""
    return Path(platformdirs.user_state_path("specchat", appauthor=False)) / "gpus.json"


def gpus_among(devices: Iterable[Mapping[str, Any]]) -> list[Gpu]:
    """Return the GPUs that are used: shared ones only where there are no others.

    Of devices as `specchat.llama.build.Device` has them.
    """
    gpus = [
        Gpu(each["description"] or each["name"], each["memory_total"], each["is_shared"])
        for each in devices
        if "gpu" in each["kind"]
    ]
    return [gpu for gpu in gpus if not gpu.is_shared] or gpus


def keep_gpus(gpus: Iterable[Gpu]) -> None:
    """Keep what llama.cpp found, in a file that is the user's alone, as far as that can be."""
    with suppress(OSError):
        write_json(gpus_path(), list(gpus))


def _kept_gpus() -> tuple[Gpu, ...] | None:
    with suppress(DamagedFile):
        return read_json(gpus_path(), tuple[Gpu, ...])
    return None


def _free_bytes() -> int | None:
    """Return the bytes that programs may still take, in a container as elsewhere."""
    if sys.platform == "darwin":
        return _free_on_darwin()
    if sys.platform == "win32":
        from specchat.planning.windows import available_on_windows  # ctypes helps nobody else

        return available_on_windows()
    return available_bytes(MEMORY_FILE, GROUP_FOLDER)


def _free_on_darwin() -> int | None:
    with suppress(OSError):
        told = subprocess.run(["vm_stat"], capture_output=True, text=True, check=False).stdout
        page = re.search(r"page size of (\d+)", told)
        kinds = re.findall(r"^Pages (?:free|inactive|speculative):\s*(\d+)", told, re.MULTILINE)
        return int(page[1]) * sum(map(int, kinds)) if page and kinds else None
    return None
