"""Asks llama.cpp in a child process, where a crash is an answer, too.

Imports neither llama.cpp nor anything else that is slow to import.
"""

import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Generic, TypeVar

from specchat.planning.device import Device
from specchat.system.python_child import death_of, last_line, run_python

TIMEOUT_SECONDS, ON_GPU_SECONDS = 120, 600
"""A GPU takes longer, because its driver compiles each kernel on the first run."""


@dataclass(frozen=True, slots=True)
class BuildReport:
    """A build of llama.cpp: its Python package's version, its backends, and the devices found."""

    version: str
    system: str
    """llama.cpp's own list of the instruction sets it was built for."""
    can_offload: bool
    backends: tuple[str, ...]
    devices: tuple[Device, ...]
    can_run_heads: bool = True
    can_use_workers: bool = True
    variant: str = ""
    """Which of its libraries for CPUs is used, empty in a build for one CPU."""
    image_library: str = ""
    """The file of the library for images, empty without one."""
    images_off_reason: str = ""
    """Why images cannot be read, empty if they can be, or once a clone has made what does."""
    not_loaded: Mapping[str, str] = field(default_factory=dict)
    """Backends that come with the build but cannot be loaded, each with the system's reason."""


@dataclass(frozen=True, slots=True)
class ProbeReport:
    """The results of a probe that decodes."""

    batches: int
    tokens: int
    exact_draft: int = 0
    """The length of the longest draft that is verified with the bits of plain decoding."""
    is_measured: bool = True
    """Whether there was time to compare all lengths."""


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChildResult(Generic[T]):
    """A child's report, or None with the error in one line.

    `death` is the signal that killed the child, empty if it exited by itself.
    """

    report: T | None = None
    error: str = ""
    death: str = ""


def ask_for_build() -> ChildResult[BuildReport]:
    """Return a report on llama.cpp's build and the devices it finds."""
    return _ask(BuildReport, "--build")


def try_decoding(model: Path, *, on_gpu: bool) -> ChildResult[ProbeReport]:
    """Decode with a model on the CPU or the GPU."""
    return _ask(ProbeReport, str(model), *(["gpu"] if on_gpu else []))


def _ask(kind: type[T], *arguments: str) -> ChildResult[T]:
    """Run the probe and read its report from the last line it prints."""
    import msgspec

    seconds = ON_GPU_SECONDS if "gpu" in arguments else TIMEOUT_SECONDS
    try:
        done = run_python(
            "specchat.llama.probe", *arguments, stdin=subprocess.DEVNULL, timeout=seconds
        )
    except subprocess.TimeoutExpired:
        return ChildResult(error=f"no answer within {seconds} s")
    if done.returncode:
        return ChildResult(error=last_line(done.stderr), death=death_of(done.returncode))
    return ChildResult(msgspec.json.decode(done.stdout.splitlines()[-1], type=kind))
