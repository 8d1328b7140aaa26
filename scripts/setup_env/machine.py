"""The machine to build on: its NVIDIA GPU and toolkit, C++ compiler, cores and memory."""

from __future__ import annotations

import os
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from scripts.setup_env.recipes import Backend

COMPILERS = ("c++", "g++", "clang++")
PACKAGES = {
    "debian": "sudo apt install g++",
    "fedora": "sudo dnf install gcc-c++",
    "rhel": "sudo dnf install gcc-c++",
    "suse": "sudo zypper install gcc-c++",
    "arch": "sudo pacman -S gcc",
    "alpine": "sudo apk add g++",
}
"""The command that installs a C++ compiler, by the family of the distribution."""
DARWIN_COMPILER = "xcode-select --install"
WINDOWS_COMPILER = "install Visual Studio's build tools with the C++ workload"
CUDA_HOMES = ("CUDA_HOME", "CUDA_PATH")
CUDA_BYTES_PER_JOB = 3 * 1024**3


def has_nvidia_gpu() -> bool:
    """Return True if NVIDIA's driver lists a GPU."""
    return "GPU " in output_of("nvidia-smi", "-L")


def has_compiler() -> bool:
    """Return True if there is a C++ compiler; on Windows only the build itself finds out."""
    wanted = os.environ.get("CXX", "").split()[:1]
    return sys.platform == "win32" or any(shutil.which(name) for name in (*wanted, *COMPILERS))


def how_to_get_a_compiler() -> str:
    """Return the command that installs a C++ compiler here."""
    if sys.platform == "darwin":
        return DARWIN_COMPILER
    if sys.platform == "win32":
        return WINDOWS_COMPILER
    return command_for(distribution(), PACKAGES) or "install g++ or clang++"


def command_for(families: list[str], commands: dict[str, str]) -> str:
    """Return the command for the first of these families that has one; "" if none has."""
    return next((commands[family] for family in families if family in commands), "")


def num_jobs(backend: Backend) -> int:
    """Return how many files to compile at once: one per core, fewer if memory is short."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    if backend.name != "CUDA" or sys.platform == "win32":
        return cores
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return max(1, min(cores, memory // CUDA_BYTES_PER_JOB))


def output_of(*command: str) -> str:
    """Return what a command prints; "" if it fails or does not exist."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=30,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.decode("utf-8", "replace") if done.returncode == 0 else ""


def find_nvcc() -> str:
    """Return the path of CUDA's compiler, on the PATH or beside it; "" if there is none."""
    homes = [os.environ[name] for name in CUDA_HOMES if os.environ.get(name)]
    places = [str(Path(home) / "bin") for home in (*homes, "/usr/local/cuda")]
    return shutil.which("nvcc") or shutil.which("nvcc", path=os.pathsep.join(places)) or ""


def distribution() -> list[str]:
    """Return the names of this Linux distribution and of those it is like."""
    try:
        release = platform.freedesktop_os_release()
    except OSError:
        return []
    return re.findall(r"[a-z]+", f"{release.get('ID', '')} {release.get('ID_LIKE', '')}".lower())
