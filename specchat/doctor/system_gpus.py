"""The GPUs that the system knows, whatever llama.cpp was built for."""

from __future__ import annotations

import csv
import platform
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = ["Graphics", "find_graphics", "has_driverless_nvidia"]

SECONDS = 15
NVIDIA_DRIVER = Path("/proc/driver/nvidia")
NVIDIA_SMI = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
AMD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
PCI = Path("/sys/bus/pci/devices")
NVIDIA_VENDOR, DISPLAY_CLASS = "0x10de", "0x03"


@dataclass(frozen=True, slots=True)
class Graphics:
    """A GPU by its name and driver, and the backend of llama.cpp that computes on it."""

    name: str
    driver: str
    backend: str
    is_integrated: bool = False

    def __str__(self) -> str:
        """Return it as one reads it."""
        return f"{self.name} (driver {self.driver})" if self.driver else self.name


def find_graphics() -> list[Graphics]:
    """Return the GPUs of the best backend that there are any for."""
    if sys.platform == "darwin":
        is_apple = platform.machine() == "arm64"
        return [Graphics("Apple GPU", platform.mac_ver()[0], "Metal")] if is_apple else []
    return _of_nvidia() or _of_amd() or _of_vulkan()


def has_driverless_nvidia(devices: Path = PCI, driver: Path = NVIDIA_DRIVER) -> bool:
    """Say whether there is a GPU of NVIDIA's that no driver of theirs looks after."""
    return not driver.exists() and any(
        _read(device / "vendor") == NVIDIA_VENDOR
        and _read(device / "class").startswith(DISPLAY_CLASS)
        for device in devices.glob("*")
    )


def _of_nvidia(driver: Path = NVIDIA_DRIVER) -> list[Graphics]:
    query = ("--query-gpu=name,driver_version", "--format=csv,noheader")
    for program in NVIDIA_SMI:
        rows = list(csv.reader(_lines(program, *query), skipinitialspace=True))
        if found := [Graphics(row[0], row[1], "CUDA") for row in rows if len(row) == 2]:
            return found
    version = re.search(r"Kernel Module\D* ([\d.]+)", _read(driver / "version"))
    models = [
        re.search(r"^Model:\s*(.+)$", _read(each / "information"), re.MULTILINE)
        for each in sorted((driver / "gpus").glob("*"))
    ]
    named = version[1] if version else ""
    return [Graphics(model[1] if model else "NVIDIA GPU", named, "CUDA") for model in models]


def _of_amd(nodes: Path = AMD_NODES) -> list[Graphics]:
    """Return those of the ROCm driver: its nodes with a GPU's number are GPUs."""
    driver = _read(Path("/sys/module/amdgpu/version"))
    gpus = [node for node in nodes.glob("*") if _read(node / "gpu_id") not in {"", "0"}]
    return [Graphics(_read(gpu / "name") or "AMD GPU", driver, "ROCm") for gpu in sorted(gpus)]


def _of_vulkan() -> list[Graphics]:
    """Return those that Vulkan finds, without renderers that run on the CPU."""
    found = []
    for device in "\n".join(_lines("vulkaninfo", "--summary")).split("\nGPU")[1:]:
        told = dict(re.findall(r"^\s*(\w+)\s*=\s*(.+?)\s*$", device, re.MULTILINE))
        kind = told.get("deviceType", "")
        if kind.endswith(("DISCRETE_GPU", "INTEGRATED_GPU")):
            is_integrated = kind.endswith("INTEGRATED_GPU")
            name, driver = told.get("deviceName", "GPU"), told.get("driverInfo", "")
            found.append(Graphics(name, driver, "Vulkan", is_integrated))
    return found


def _lines(*command: str) -> Sequence[str]:
    """Return what a program prints; nothing where it is not there or fails."""
    if shutil.which(command[0]) is None:
        return []
    try:
        done = subprocess.run(
            command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SECONDS, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return []
    return done.stdout.decode("utf-8", "replace").splitlines() if done.returncode == 0 else []


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8", "replace").strip()
    except OSError:
        return ""
