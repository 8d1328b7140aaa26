"""The machine to build on: its NVIDIA GPU, C++ compiler, cores and memory."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

from scripts.setup_env.recipes import Backend
from specchat.doctor.toolchains import command_for, distribution

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
