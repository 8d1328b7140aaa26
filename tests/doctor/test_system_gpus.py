"""GPUs as the system reports them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from specchat.doctor import system_gpus as graphics
from specchat.doctor.system_gpus import find_system_gpus, has_driverless_nvidia
from specchat.planning.device import Device

SUMMARY = """
Devices:
========
GPU0:
\tapiVersion         = 1.3.255
\tdeviceType         = PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU
\tdeviceName         = Intel(R) Graphics
\tdriverInfo         = Mesa 24.0
GPU1:
\tdeviceType         = PHYSICAL_DEVICE_TYPE_DISCRETE_GPU
\tdeviceName         = AMD Radeon RX 7600
\tdriverInfo         = Mesa 24.0
GPU2:
\tdeviceType         = PHYSICAL_DEVICE_TYPE_CPU
\tdeviceName         = llvmpipe
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's sysfs")


@pytest.fixture(autouse=True)
def _no_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(graphics, "NVIDIA_SMI", ("nvidia-smi",))


def put(path: Path, text: str) -> Path:
    """Write a file in folders that may not be there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_driver_without_its_tool_is_read_from_its_files(tmp_path: Path) -> None:
    """The tool may be missing in a container."""
    put(tmp_path / "version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.14  Thu\n")
    put(tmp_path / "gpus" / "0000:01:00.0" / "information", "Model: \t\t NVIDIA H200\nIRQ: 1\n")

    assert graphics._of_nvidia(tmp_path) == [
        Device("", "NVIDIA H200", "gpu", driver="550.54.14", backend="CUDA")
    ]
    assert graphics._of_nvidia(tmp_path / "none") == []


def test_renderers_on_the_cpu_are_no_gpu(tmp_path: Path) -> None:
    """Vulkan lists them too; integrated GPUs are marked."""
    put(tmp_path / "vulkaninfo", f"#!/bin/sh\n/bin/cat <<'END'\n{SUMMARY}\nEND\n").chmod(0o755)

    assert graphics._of_vulkan() == [
        Device("", "Intel(R) Graphics", "integrated", driver="Mesa 24.0", backend="Vulkan"),
        Device("", "AMD Radeon RX 7600", "gpu", driver="Mesa 24.0", backend="Vulkan"),
    ]


def test_the_nodes_of_amds_driver_are_cpus_and_gpus(tmp_path: Path) -> None:
    """A node whose number is 0 is a CPU."""
    put(tmp_path / "0" / "gpu_id", "0\n")
    put(tmp_path / "1" / "gpu_id", "52120\n")
    put(tmp_path / "1" / "name", "gfx1100\n")
    (found,) = graphics._of_amd(tmp_path)

    assert (found.label, found.backend) == ("gfx1100", "ROCm")


def test_a_gpu_without_a_driver_is_seen_on_the_bus(tmp_path: Path) -> None:
    """By its vendor and class: sound and network devices do not count."""
    sound, gpu = tmp_path / "pci" / "1", tmp_path / "pci" / "2"
    put(sound / "vendor", "0x10de\n")
    put(sound / "class", "0x040300\n")
    assert not has_driverless_nvidia(tmp_path / "pci", tmp_path / "driver")
    put(gpu / "vendor", "0x10de\n")
    put(gpu / "class", "0x030200\n")

    assert has_driverless_nvidia(tmp_path / "pci", tmp_path / "driver")
    (tmp_path / "driver").mkdir()
    assert not has_driverless_nvidia(tmp_path / "pci", tmp_path / "driver")


def test_the_output_of_a_failing_tool_is_ignored(tmp_path: Path) -> None:
    """nvidia-smi fails like this without a driver."""
    put(tmp_path / "nvidia-smi", "#!/bin/sh\necho NVIDIA-SMI has failed, badly\nexit 9\n").chmod(
        0o755
    )

    assert [each for each in find_system_gpus() if each.backend == "CUDA"] == []
