"""A probe of the llama.cpp that was built: a child process decodes with it."""

from __future__ import annotations

import enum
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.setup_env import fast
from scripts.setup_env.running import LOG

TARGET = Path(fast.ROOT) / fast.DEMO_TARGET
SECONDS = 600
"""On the first run, a driver compiles each kernel; Mesa's software renderer takes minutes."""
SIGNALS = ("SIGILL", "SIGSEGV", "SIGBUS", "SIGFPE")
WINDOWS_EXCEPTIONS = (0xC000001D, 0xC0000005, 0xC0000096)
"""Illegal instruction, access violation, privileged instruction."""
CRASHES = frozenset(
    {-getattr(signal, name) for name in SIGNALS if hasattr(signal, name)} | {*WINDOWS_EXCEPTIONS}
)


class Verdict(enum.Enum):
    """The outcome of a probe."""

    PASSED = "passed"
    CRASHED = "crashed"
    FAILED = "failed"


def probe(*on_gpu: str) -> tuple[Verdict, list[str]]:
    """Decode batches of 1 to 16 tokens on the demo pair's target, in a child process.

    With the argument "gpu", all layers are offloaded.
    """
    return ask([fast.venv_python(), "-P", "-m", "specchat.llama.probe", str(TARGET), *on_gpu])


def ask(command: Sequence[str]) -> tuple[Verdict, list[str]]:
    """Run a probe; return its verdict and the lines it printed."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Verdict.FAILED, [f"error: no answer within {SECONDS} s"]
    text = done.stdout.decode("utf-8", "replace")
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"\n$ {' '.join(command)}\n{text}[exit code {done.returncode}]\n")
    return verdict(done.returncode), text.splitlines()


def verdict(exit_code: int) -> Verdict:
    """Return the verdict of an exit code; only the signs of a bad instruction are a crash."""
    if exit_code == 0:
        return Verdict.PASSED
    return Verdict.CRASHED if exit_code in CRASHES else Verdict.FAILED
