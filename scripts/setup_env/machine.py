"""The machine to build on: its NVIDIA GPU, compilers, cores and memory."""

from __future__ import annotations

import math
import os
import re
import shlex
import shutil
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.recipes import Backend
from specchat.doctor.toolchains import command_for, distribution
from specchat.system.control_groups import cpu_quotas, memory_limits

COMPILERS = {
    "C": ("CC", ("cc", "gcc", "clang"), "c"),
    "C++": ("CXX", ("c++", "g++", "clang++"), "cpp"),
}
"""For each language the variable that names a compiler, the usual names, and the ending of files.

CMake looks for them in this order."""
PROGRAMS = {
    "C": "#include <stdlib.h>\n#include <math.h>\nint main(void) { return EXIT_SUCCESS; }\n",
    "C++": "#include <filesystem>\n#include <thread>\nint main() { return 0; }\n",
}
"""Programs that need the headers and the C++17 that llama.cpp needs."""
FLAGS = {"C": (), "C++": ("-std=c++17",)}
PACKAGES = {
    "debian": "sudo apt install g++",
    "fedora": "sudo dnf install gcc-c++",
    "rhel": "sudo dnf install gcc-c++",
    "suse": "sudo zypper install gcc-c++",
    "arch": "sudo pacman -S gcc",
    "alpine": "sudo apk add g++",
    "homebrew": "brew install gcc",
}
"""The command that installs both compilers and their headers, by the family of the system."""
DARWIN_COMPILER = "xcode-select --install"
WINDOWS_COMPILER = "install Visual Studio's build tools with the C++ workload"
SECONDS_TO_COMPILE = 60
BYTES_PER_JOB = {"CUDA": 3 << 30}
"""The memory that a compiler takes for the largest files of a backend; 1 GiB for the others."""
MEMORY_FILE = "/proc/meminfo"


def has_nvidia_gpu() -> bool:
    """Return True if NVIDIA's driver lists a GPU."""
    return "GPU " in output_of("nvidia-smi", "-L")


def lack_of_compilers(folder: Path) -> str:
    """Return why llama.cpp cannot be compiled here and what to do; "" if it can.

    Small programs are compiled and linked in a folder. On Windows only the build finds out.
    """
    if sys.platform == "win32":
        return ""
    for language, (variable, names, ending) in COMPILERS.items():
        chosen = shlex.split(os.environ.get(variable, ""))
        if chosen and not shutil.which(chosen[0]):
            return f"{variable} names {chosen[0]}, which is not installed: correct or unset it"
        compiler = chosen or [name for name in names if shutil.which(name)][:1]
        if not compiler:
            return f"building llama.cpp needs a {language} compiler: {how_to_get_a_compiler()}"
        source = folder / f"tried.{ending}"
        source.write_text(PROGRAMS[language], "utf-8")
        why = _compile([*compiler, *FLAGS[language], str(source), "-o", str(folder / "tried")])
        if why:
            how = how_to_get_a_compiler()
            return f"{compiler[0]} cannot compile {language} programs ({why}): {how}"
    return ""


def _compile(command: list[str]) -> str:
    """Return why a command fails; "" if it works, or fails for lack of room."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS_TO_COMPILE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return ""  # a busy machine, not a broken compiler
    text = done.stderr.decode("utf-8", "replace")
    if done.returncode == 0 or "No space left" in text:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    reasons = [line for line in lines if re.search(r"error|cannot|not found", line)]
    return (reasons or lines or [f"exit code {done.returncode}"])[0][-150:]


def how_to_get_a_compiler() -> str:
    """Return the command that installs a C++ compiler here."""
    if sys.platform == "darwin":
        return DARWIN_COMPILER
    if sys.platform == "win32":
        return WINDOWS_COMPILER
    return command_for(distribution(), PACKAGES) or "install g++ or clang++"


def num_cores() -> int:
    """Return how many processors this process may use, with a container's quota."""
    cores = len(os.sched_getaffinity(0)) if sys.platform == "linux" else os.cpu_count() or 1
    return max(1, min(cores, math.ceil(min(cpu_quotas(), default=cores))))


def free_memory() -> int | None:
    """Return the bytes of memory that are free, in a container too; None if unknown."""
    if sys.platform == "win32":
        return None
    found = re.search(r"^MemAvailable: *(\d+) kB$", fast.read(MEMORY_FILE), re.MULTILINE)
    if found:
        return max(0, min([1024 * int(found[1]), *memory_limits()]))
    with suppress(OSError, ValueError):
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return None


def num_jobs(backend: Backend) -> int:
    """Return how many files to compile at once: one per core, fewer if memory is short.

    CMake's own variable wins.
    """
    chosen = os.environ.get("CMAKE_BUILD_PARALLEL_LEVEL", "")
    if chosen.isdecimal() and int(chosen) > 0:
        return int(chosen)
    memory = free_memory()
    if memory is None:
        return num_cores()
    return max(1, min(num_cores(), memory // BYTES_PER_JOB.get(backend.name, 1 << 30)))


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
