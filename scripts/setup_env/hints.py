"""The reason a command failed, taken from its output, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Sequence

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
    (r"No space left on device", "free some disk space, then run this again"),
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
VENV_PACKAGE = "sudo apt install python3-venv"


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
