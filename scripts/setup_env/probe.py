"""Asking a child process whether the llama.cpp that was built survives decoding on this machine."""

from __future__ import annotations

import enum
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path

from setup_env import fast
from setup_env.running import LOG

TARGET = Path(fast.ROOT) / fast.DEMO_TARGET
SECONDS = 300
SIGNALS = ("SIGILL", "SIGSEGV", "SIGBUS", "SIGFPE")
WINDOWS_EXCEPTIONS = (0xC000001D, 0xC0000005, 0xC0000096)
"""Illegal instruction, access violation, privileged instruction."""
DEATHS = frozenset(
    {-getattr(signal, name) for name in SIGNALS if hasattr(signal, name)} | {*WINDOWS_EXCEPTIONS}
)


class Verdict(enum.Enum):
    """What became of the child."""

    PASSED = "passed"
    DIED = "died"
    FAILED = "failed"


def probe() -> tuple[Verdict, list[str]]:
    """Decode batches of 1 to 16 tokens on the demo pair's target, in a child process."""
    return ask([fast.venv_python(), "-P", "-m", "specchat.llama.probe", str(TARGET)])


def ask(command: Sequence[str]) -> tuple[Verdict, list[str]]:
    """Run a probe and return its verdict with the lines it printed."""
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
        return Verdict.FAILED, [f"no answer within {SECONDS} s"]
    text = done.stdout.decode("utf-8", "replace")
    with LOG.open("a", encoding="utf-8") as log:
        log.write(f"\n$ {' '.join(command)}\n{text}[exit code {done.returncode}]\n")
    return verdict(done.returncode), text.splitlines()


def verdict(exit_code: int) -> Verdict:
    """Read an exit code; only what a bad instruction leads to counts as dying of it."""
    if exit_code == 0:
        return Verdict.PASSED
    return Verdict.DIED if exit_code in DEATHS else Verdict.FAILED
