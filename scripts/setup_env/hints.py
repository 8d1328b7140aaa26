"""The reason a command or a call of the system failed, and what to do about it."""

from __future__ import annotations

import errno
import re
import shutil
from collections.abc import Iterable, Sequence
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.machine import how_to_get_a_compiler

PIP_FRAME = " \t╰─>│×"  # noqa: RUF001 -- what pip draws around its errors
IS_REASON = re.compile(r"\berror\b|^fatal|No space left|not available|Killed", re.IGNORECASE)
IS_NOISE = re.compile(
    r"subprocess-exited|did not run successfully|Failed (building|to build)|exit code|"
    r"finished with status|error originates|Error compiling|metadata-generation"
)
CHECK_NETWORK = "check the network connection, then run this again"
NEXT_STEPS = (
    (r"No CMAKE_C\w*_COMPILER|CMAKE_C\w*_COMPILER not set|xcrun: error", "COMPILER"),
    (r"ensurepip is not available", "VENV"),
    (
        r"certificate is not yet valid|certificate has expired|timestamps before 1980",
        "set this machine's date and time, then run this again",
    ),
    (
        r"Killed signal|signal terminated program",
        "out of memory: set CMAKE_BUILD_PARALLEL_LEVEL=1, then run this again",
    ),
    (
        r"nvcc fatal|unsupported GNU version|CUDAToolkit",
        "to build for the CPU set SPECCHAT_BACKEND=cpu, then run this again",
    ),
    (
        r"No matching distribution|Could not fetch|Connection|name resolution|timed out",
        CHECK_NETWORK,
    ),
)
FULL = re.compile(r"No space left on device|Disk quota exceeded")
FREE_SPACE = "free some disk space, then run this again"
LITTLE_SPACE = 4 << 20
"""With less room than this, a command that failed probably failed for lack of it, in bytes."""
VENV_PACKAGE = "sudo apt install python3-venv"


def failure_of_command(output: Sequence[str], folders: Iterable[Path]) -> str:
    """Return why a command failed that writes to these folders, and what to do, in one line."""
    room, folder = min((_room(path), str(path)) for path in folders)
    if room < LITTLE_SPACE or FULL.search("\n".join(output)):
        return _no_space(room, folder)
    return f"{reason(output)}; {next_step(output)}"


def failure_of_system(failure: OSError, folders: Iterable[Path]) -> str:
    """Return why the system refused something, and what to do, in one line."""
    what = f"{failure.filename}: {failure.strerror}" if failure.filename else str(failure)
    if failure.errno in {errno.ENOSPC, errno.EDQUOT}:
        return _no_space(*min((_room(path), str(path)) for path in folders))
    if failure.errno in {errno.EACCES, errno.EPERM, errno.EROFS}:
        return f"{what}; make {fast.ROOT} writable, or copy it to a folder of your own"
    if failure.errno in {errno.ENOTDIR, errno.EEXIST}:
        return f"{what}; remove {fast.VENV}, then run this again"
    return f"{what}; run this again to continue from here"


def _no_space(room: int, folder: str) -> str:
    return f"no space left on the disk ({room >> 20} MB free in {folder}); {FREE_SPACE}"


def _room(path: Path) -> int:
    return shutil.disk_usage(next(each for each in (path, *path.parents) if each.exists())).free


def reason(output: Sequence[str]) -> str:
    """Return the last line that names a reason."""
    lines = [line.strip(PIP_FRAME) for line in output if line.strip()]
    reasons = [line for line in lines if IS_REASON.search(line) and not IS_NOISE.search(line)]
    return (reasons or lines or ["no output"])[-1][:300]


def next_step(output: Sequence[str]) -> str:
    """Return what the user can do about it."""
    text = "\n".join(output)
    for pattern, step in NEXT_STEPS:
        if re.search(pattern, text):
            return _advice(step)
    return "run this again to continue from here"


def _advice(step: str) -> str:
    if step == "COMPILER":
        return f"install a C++ compiler: {how_to_get_a_compiler()}"
    if step == "VENV":
        return f"install Python's venv module (Debian, Ubuntu: {VENV_PACKAGE})"
    return step
