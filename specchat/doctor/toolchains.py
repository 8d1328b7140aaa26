"""The tools that build llama.cpp for each backend, and the commands that install them.

A clone's set-up script imports this before any package is installed: standard library only.
"""

import os
import platform
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

DEFINITIONS = {
    "CUDA": "-DGGML_CUDA=on",
    "Metal": "-DGGML_METAL=on",
    "ROCm": "-DGGML_HIP=on",
    "Vulkan": "-DGGML_VULKAN=on",
}
"""The CMake definitions that enable each backend."""
WORKERS = ("-DGGML_RPC=ON", "-DGGML_RPC_RDMA=OFF")
"""Every build can use workers; RDMA is off, or a wheel depends on a library found by chance."""
COMPILERS = {"CUDA": "nvcc", "ROCm": "hipcc", "Vulkan": "glslc"}
TOOLKITS: Mapping[str, Mapping[str, str]] = {
    "CUDA": {
        "debian": "sudo apt install nvidia-cuda-toolkit",
        "arch": "sudo pacman -S cuda",
    },
    "Vulkan": {
        "debian": "sudo apt install libvulkan-dev glslc spirv-headers mesa-vulkan-drivers",
        "fedora": (
            "sudo dnf install vulkan-loader-devel glslc spirv-headers-devel mesa-vulkan-drivers"
        ),
        "arch": "sudo pacman -S vulkan-headers vulkan-icd-loader shaderc spirv-headers",
    },
}
"""The commands that install each backend's build tools, by family of distributions."""
MANAGERS = {
    "apt-get": "debian",
    "dnf": "fedora",
    "zypper": "suse",
    "pacman": "arch",
    "apk": "alpine",
    "brew": "homebrew",
}
"""The family of distributions that a package manager belongs to."""
HEADERS = Path(__file__).with_name("include")
"""Has a header that fills gaps in Vulkan headers older than ggml expects."""
WITHOUT_AMX = ("-mno-amx-tile", "-mno-amx-int8", "-mno-amx-bf16")
"""Flags that disable instructions which some virtual machines report but do not support."""
CUDA_HOMES = ("CUDA_HOME", "CUDA_PATH")


def distribution() -> list[str]:
    """Return the ids of this Linux distribution and those it derives from.

    The families whose package managers are found come last, for systems that name none.
    """
    managers = [family for name, family in MANAGERS.items() if shutil.which(name)]
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return managers
    ids = f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".lower()
    return [*re.findall(r"[a-z]+", ids), *managers]


def command_for(families: Iterable[str], commands: Mapping[str, str]) -> str:
    """Return the command for the first family that has one; "" if none has.

    The command leaves out sudo for root where there is none, as in a container.
    """
    command = next((commands[family] for family in families if family in commands), "")
    is_root = hasattr(os, "geteuid") and os.geteuid() == 0
    return command.removeprefix("sudo ") if is_root and not shutil.which("sudo") else command


def find_nvcc() -> str:
    """Return the path of CUDA's compiler, on the PATH or in CUDA's own folders; "" without one."""
    homes = [os.environ[name] for name in CUDA_HOMES if os.environ.get(name)]
    folders = os.pathsep.join(str(Path(home) / "bin") for home in (*homes, "/usr/local/cuda"))
    return shutil.which("nvcc") or shutil.which("nvcc", path=folders) or ""
