"""The backends of llama.cpp, and which of them this machine can build and use.

CUDA needs NVIDIA's toolkit. Vulkan needs a driver and a shader compiler only, and runs on GPUs of
NVIDIA, AMD and Intel. `SPECCHAT_BACKEND` chooses one, and the choice holds until it is set again.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.machine import has_nvidia_gpu, output_of
from scripts.setup_env.recipes import Backend
from scripts.setup_env.running import SetUpFailed
from specchat.doctor.toolchains import (
    DEFINITIONS,
    HEADERS,
    TOOLKITS,
    command_for,
    distribution,
    find_nvcc,
)

RENDER_NODES = Path("/sys/class/drm")
GPU_VENDORS = {"0x10de": "NVIDIA", "0x1002": "AMD", "0x8086": "Intel"}
DRIVERS = {"NVIDIA": ("nvidia", "nouveau"), "AMD": ("radeon", "amd"), "Intel": ("intel",)}
"""How the files begin in which drivers announce themselves to Vulkan."""
DRIVER_FOLDERS = ("/usr/share/vulkan/icd.d", "/usr/local/share/vulkan/icd.d", "/etc/vulkan/icd.d")
SYSTEM_INCLUDES = (Path("/usr/include"), Path("/usr/local/include"))
VULKAN_HEADERS = ("vulkan/vulkan.hpp", "spirv/unified1/spirv.hpp")


def backends_to_try() -> list[Backend]:
    """Return the backends to build, best first: the CPU's is the last."""
    chosen = fast.choice("SPECCHAT_BACKEND").lower()
    if chosen not in {*MAKERS, "", "auto"}:
        known = ", ".join(MAKERS)
        raise SetUpFailed(f"SPECCHAT_BACKEND={chosen} is unknown: use auto, {known}")
    best = MAKERS[chosen]() if chosen in MAKERS else find_backend()
    return list(dict.fromkeys([best, _cpu()]))


def find_backend() -> Backend:
    """Return the best backend that this machine can build and use."""
    if sys.platform == "darwin":
        return _metal()
    if any(
        f"GGML_{name}" in os.environ.get("CMAKE_ARGS", "") for name in ("CUDA", "VULKAN", "HIP")
    ):
        return _cpu()  # the user decides
    if find_nvcc() and has_nvidia_gpu():
        return _cuda()
    return _vulkan() if can_build_vulkan() and has_vulkan_driver(vulkan_gpu()) else _cpu()


def vulkan_gpu() -> str:
    """Return the maker of a GPU that Vulkan may run on; "" if there is none."""
    if has_nvidia_gpu():
        return "NVIDIA"
    vendors = [fast.read(str(path)).strip() for path in RENDER_NODES.glob("renderD*/device/vendor")]
    return next((GPU_VENDORS[vendor] for vendor in vendors if vendor in GPU_VENDORS), "")


def can_build_vulkan() -> bool:
    """Return True if the shader compiler and the headers are installed."""
    if shutil.which("glslc") is None:
        return False
    folders = [place for place in SYSTEM_INCLUDES if (place / VULKAN_HEADERS[0]).exists()]
    has_headers = any((place / VULKAN_HEADERS[1]).exists() for place in folders)
    return bool(os.environ.get("VULKAN_SDK")) or has_headers


def has_vulkan_driver(maker: str) -> bool:
    """Return True if there is a GPU of this maker with a driver for Vulkan."""
    if not maker or sys.platform == "win32":
        return bool(maker)
    drivers = [path.name for folder in DRIVER_FOLDERS for path in Path(folder).glob("*.json")]
    return any(name.startswith(DRIVERS[maker]) for name in drivers)


def how_to_use_the_gpu() -> str:
    """Return why a GPU is not used and the command that changes that; "" without a GPU."""
    maker = vulkan_gpu()
    if not maker or sys.platform == "darwin":
        return ""
    missing = "its Vulkan driver" if can_build_vulkan() else "Vulkan's build tools"
    again = f"SPECCHAT_BACKEND=vulkan {Path(fast.ROOT) / 'scripts' / 'specchat'}"
    install = command_for(distribution(), TOOLKITS["Vulkan"])
    command = f"{install} && {again}" if install else f"install glslc and Vulkan's headers, {again}"
    return f"found an {maker} GPU without {missing}: {command}"


def _cpu() -> Backend:
    """Return the CPU's backend; on macOS, llama-cpp-python enables Metal itself."""
    is_mac = sys.platform == "darwin"
    return Backend("CPU", definitions=("-DGGML_METAL=OFF",) if is_mac else ())


def _metal() -> Backend:
    return Backend("Metal")


def _cuda() -> Backend:
    compiler = find_nvcc()
    return Backend(
        "CUDA",
        definitions=(DEFINITIONS["CUDA"],),
        core_minutes=80,
        toolkit=output_of(compiler or "nvcc", "--version").strip().rpartition("\n")[2],
        compiler="" if shutil.which("nvcc") else compiler,
    )


def _vulkan() -> Backend:
    definitions = (DEFINITIONS["Vulkan"],)
    return Backend("Vulkan", definitions, core_minutes=20, include=str(HEADERS))


def _rocm() -> Backend:
    version = output_of("hipconfig", "--version").strip()
    return Backend("ROCm", (DEFINITIONS["ROCm"],), core_minutes=60, toolkit=version)


MAKERS: dict[str, Callable[[], Backend]] = {
    "cpu": _cpu,
    "cuda": _cuda,
    "vulkan": _vulkan,
    "rocm": _rocm,
    "metal": _metal,
}
"""What makes a backend, by its name in SPECCHAT_BACKEND."""
