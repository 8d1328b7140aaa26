"""Runs Python child processes, and says how they ended."""

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

ILLEGAL_INSTRUCTION = ("SIGILL", "an illegal instruction")
"""How a process dies if the build uses instructions that the CPU lacks."""
WINDOWS_EXCEPTIONS = {
    0xC000001D: "an illegal instruction",
    0xC0000005: "an access violation",
    0xC0000096: "a privileged instruction",
    0xC0000017: "a lack of memory",
    0xC000012D: "a lack of memory",
}
OWN_ERROR = re.compile(r"^(error|specchat\.errors\.\w+): ")
"""What comes before the message of an error of specchat's, printed or raised while importing."""


def run_python(module: str, *arguments: str, **options: Any) -> subprocess.CompletedProcess[bytes]:
    """Run a module in a child process until it ends; `options` are those of `subprocess.run`."""
    command, environment = child_python(module, *arguments)
    return subprocess.run(command, capture_output=True, check=False, env=environment, **options)


def child_python(module: str, *arguments: str) -> tuple[list[str], dict[str, str]]:
    """Return the command and the environment that run a module in a child process.

    The child finds modules where this process does, except in the current folder.
    """
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(dict.fromkeys([root, *filter(None, sys.path)]))
    # without the variable, a crash of llama.cpp starts a debugger
    environment = {**os.environ, "PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"}
    return [sys.executable, "-P", "-m", module, *arguments], environment


def death_of(code: int) -> str:
    """Return the signal or exception that ended a process, empty for an ordinary exit code."""
    named = {-number.value: number.name for number in signal.Signals} | WINDOWS_EXCEPTIONS
    return named.get(code, "" if code >= 0 else f"signal {-code}")


def last_line(output: bytes) -> str:
    """Return the last line of an error output, which usually gives the reason."""
    lines = output.decode("utf-8", "replace").strip().splitlines() or ["it printed nothing"]
    return OWN_ERROR.sub("", lines[-1].strip())[:300]
