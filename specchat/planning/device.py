"""What a machine offers to hold a model: its own memory and that of its GPUs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

__all__ = ["Device", "available_bytes", "gpus_of", "host_of", "spared_bytes"]

MOST_SPARED = 2**30
MEMORY_FILE = Path("/proc/meminfo")
GROUP_FOLDER = Path("/sys/fs/cgroup")
KIB = 1024


@dataclass(frozen=True, slots=True)
class Device:
    """Where a model can be; memory in bytes.

    An "integrated" GPU has no memory of its own: it shares the machine's.
    """

    name: str
    description: str
    kind: Literal["cpu", "gpu", "integrated"]
    free: int
    total: int

    @property
    def budget(self) -> int:
        """What a plan may use, in bytes."""
        return max(0, self.free - spared_bytes(self.total, is_shared=self.kind != "gpu"))


def spared_bytes(total: int, *, is_shared: bool) -> int:
    """Return how much of a memory is left to the screen, the driver and what else runs, in bytes.

    Less of the host's, which GPUs without memory of their own share.
    """
    return min(total // (20 if is_shared else 16), MOST_SPARED)


def gpus_of(devices: Sequence[Device], split_mode: str, main_gpu: int) -> list[Device]:
    """Return the GPUs that llama.cpp uses: integrated ones only where there are no others."""
    gpus = [device for device in devices if device.kind == "gpu"]
    gpus = gpus or [device for device in devices if device.kind == "integrated"]
    return gpus[main_gpu : main_gpu + 1] if split_mode == "none" else gpus


def host_of(devices: Sequence[Device]) -> Device:
    """Return the machine's own memory; without limits where nobody knows them."""
    unknown = Device("CPU", "", "cpu", 2**62, 2**62)
    return next((device for device in devices if device.kind == "cpu"), unknown)


def available_bytes(
    memory_file: Path = MEMORY_FILE, group_folder: Path = GROUP_FOLDER
) -> int | None:
    """Return the memory this machine can still give, in bytes; None where it does not say.

    That of the machine or, where that is less, of the container this process is in.
    """
    machine = _lines(memory_file).get("MemAvailable:")
    if machine is None:
        return None
    limit, used = (_number(group_folder / f"memory.{name}") for name in ("max", "current"))
    free = machine * KIB
    if limit is None or used is None:
        return free
    reclaimable = _lines(group_folder / "memory.stat").get("inactive_file", 0)
    return max(0, min(free, limit - used + reclaimable))


def _lines(path: Path) -> dict[str, int]:
    """Return a file's names and numbers; nothing where there is no such file."""
    try:
        words: Sequence[Sequence[str]] = [
            line.split() for line in path.read_text("ascii").splitlines()
        ]
    except OSError:
        return {}
    return {line[0]: int(line[1]) for line in words if len(line) > 1 and line[1].isdigit()}


def _number(path: Path) -> int | None:
    """Return the number in a file; None where there is none."""
    try:
        text = path.read_text("ascii").strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
