"""The GPUs that the operating system reports, regardless of how llama.cpp was built."""

import csv
import platform
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from specchat.planning.device import Device, DeviceKind
from specchat.system.private_files import read_text

TIMEOUT_SECONDS = 15
NVIDIA_DRIVER = Path("/proc/driver/nvidia")
NVIDIA_SMI = ("nvidia-smi", "/usr/lib/wsl/lib/nvidia-smi")
AMD_NODES = Path("/sys/class/kfd/kfd/topology/nodes")
PCI = Path("/sys/bus/pci/devices")
NVIDIA_VENDOR, DISPLAY_CLASS = "0x10de", "0x03"


def find_system_gpus() -> list[Device]:
    """Return the system's GPUs for the best backend that has any."""
    if sys.platform == "darwin":
        is_apple = platform.machine() == "arm64"
        return [_gpu("Apple GPU", platform.mac_ver()[0], "Metal", "integrated")] if is_apple else []
    return _of_nvidia() or _of_amd() or _of_vulkan()


def has_driverless_nvidia(devices: Path = PCI, driver: Path = NVIDIA_DRIVER) -> bool:
    """Return True if there is an NVIDIA GPU without NVIDIA's driver."""
    return not driver.exists() and any(
        read_text(device / "vendor") == NVIDIA_VENDOR
        and read_text(device / "class").startswith(DISPLAY_CLASS)
        for device in devices.glob("*")
    )


def _of_nvidia(driver: Path = NVIDIA_DRIVER) -> list[Device]:
    query = ("--query-gpu=name,driver_version", "--format=csv,noheader")
    for program in NVIDIA_SMI:
        rows = list(csv.reader(_lines(program, *query), skipinitialspace=True))
        if gpus := [_gpu(row[0], row[1], "CUDA") for row in rows if len(row) == 2]:
            return gpus
    version = re.search(r"Kernel Module\D* ([\d.]+)", read_text(driver / "version"))
    models = [
        re.search(r"^Model:\s*(.+)$", read_text(path / "information"), re.MULTILINE)
        for path in sorted((driver / "gpus").glob("*"))
    ]
    named = version[1] if version else ""
    return [_gpu(model[1] if model else "NVIDIA GPU", named, "CUDA") for model in models]


def _of_amd(nodes: Path = AMD_NODES) -> list[Device]:
    """Return the GPUs of the ROCm driver, which are its nodes with a GPU id."""
    driver = read_text(Path("/sys/module/amdgpu/version"))
    gpus = [node for node in nodes.glob("*") if read_text(node / "gpu_id") not in {"", "0"}]
    return [_gpu(read_text(gpu / "name") or "AMD GPU", driver, "ROCm") for gpu in sorted(gpus)]


def _of_vulkan() -> list[Device]:
    """Return the GPUs that Vulkan finds, except software renderers."""
    gpus = []
    for device in "\n".join(_lines("vulkaninfo", "--summary")).split("\nGPU")[1:]:
        facts = dict(re.findall(r"^\s*(\w+)\s*=\s*(.+?)\s*$", device, re.MULTILINE))
        kind = facts.get("deviceType", "")
        if kind.endswith(("DISCRETE_GPU", "INTEGRATED_GPU")):
            name, driver = facts.get("deviceName", "GPU"), facts.get("driverInfo", "")
            is_integrated = kind.endswith("INTEGRATED_GPU")
            gpus.append(_gpu(name, driver, "Vulkan", "integrated" if is_integrated else "gpu"))
    return gpus


def _gpu(name: str, driver: str, backend: str, kind: DeviceKind = "gpu") -> Device:
    return Device(name="", description=name, kind=kind, driver=driver, backend=backend)


def _lines(*command: str) -> Sequence[str]:
    """Return the lines that a program prints; none if it is missing or fails."""
    none, timeout = subprocess.DEVNULL, TIMEOUT_SECONDS
    try:
        output = subprocess.check_output(command, stdin=none, stderr=none, timeout=timeout)
    except (OSError, subprocess.SubprocessError):
        return []
    return output.decode("utf-8", "replace").splitlines()
