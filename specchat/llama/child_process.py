"""Asking llama.cpp in a child process, where its death is an answer too. Loads nothing of it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

__all__ = ["Answer", "ask_for_build", "try_decoding"]

SECONDS = 120
WINDOWS_EXCEPTIONS = {
    0xC000001D: "an illegal instruction",
    0xC0000005: "an access violation",
    0xC0000096: "a privileged instruction",
}


@dataclass(frozen=True, slots=True)
class Answer:
    """What a child told: its report, or in one line why there is none.

    `death` is the signal it died of, empty where it did not die.
    """

    report: dict[str, Any] = field(default_factory=dict)
    error: str = ""
    death: str = ""


def ask_for_build() -> Answer:
    """Ask what llama.cpp was built for: the fields of `specchat.llama.build.BuildReport`."""
    return _ask("specchat.llama.build")


def try_decoding(model: Path, *, on_gpu: bool) -> Answer:
    """Decode with a model on the CPU or the GPU: `specchat.llama.probe.ProbeReport`'s fields."""
    return _ask("specchat.llama.probe", str(model), *(["gpu"] if on_gpu else []))


def _ask(module: str, *words: str) -> Answer:
    """Run a module to its end and read the one line that it prints."""
    root = str(Path(__file__).resolve().parents[2])
    path = os.pathsep.join(part for part in (root, os.environ.get("PYTHONPATH")) if part)
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-m", module, *words],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "PYTHONPATH": path, "GGML_NO_BACKTRACE": "1"},
        )
    except subprocess.TimeoutExpired:
        return Answer(error=f"no answer within {SECONDS} s")
    if done.returncode:
        return Answer(error=_last_line(done.stderr), death=_death(done.returncode))
    return Answer(json.loads(done.stdout.splitlines()[-1]))


def _death(code: int) -> str:
    """Return what ended a process that did not end by itself."""
    named = {-number.value: number.name for number in signal.Signals} | WINDOWS_EXCEPTIONS
    return named.get(code, "" if code > 0 else f"signal {-code}")


def _last_line(output: bytes) -> str:
    """Return the line that says why: the last one."""
    lines = [line.strip() for line in output.decode("utf-8", "replace").splitlines()]
    return next((line for line in reversed(lines) if line), "it said nothing")[:300]
