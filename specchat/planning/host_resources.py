"""The cores and the memory this process may use: the machine's, or less in a container."""

import math
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from specchat.system.control_groups import cpu_quotas, memory_limits
from specchat.system.private_files import read_text

PROCESSORS = Path("/sys/devices/system/cpu")
CPU_FACTS = Path("/proc/cpuinfo")
FAST_PROCESSORS = Path("/sys/devices/cpu_core/cpus")
"""Lists the processors of the performance cores, on Intel CPUs that also have efficiency cores."""
SMALL_MODEL_BYTES = 32 << 20
"""A pass of a smaller model is so short that its threads mostly wait for one another: when another
program takes one thread's core, all wait. The demo (11 MB) on four cores: 1056 tokens/s with three
threads, 481 with four."""


def available_bytes() -> int | None:
    """Return the bytes of available memory, None if the system does not report it."""
    try:
        free = int(psutil.virtual_memory().available)
    except (OSError, RuntimeError):
        return None
    return max(0, min([free, *memory_limits()]))


def total_bytes() -> int:
    """Return the bytes of this machine's memory, 0 if the system does not report it."""
    with suppress(OSError, RuntimeError):
        return int(psutil.virtual_memory().total)
    return 0


def private_bytes(process: int) -> int:
    """Return the bytes that become free when a process ends, 0 if unknown.

    Mapped files are not among them: the system counts them as available already.
    """
    with suppress(psutil.Error, OSError, RuntimeError):
        info = psutil.Process(process).memory_info()
        return max(0, int(info.rss) - int(getattr(info, "shared", info.rss)))
    return 0


def processor_seconds(process: int) -> float:
    """Return the processor time that a process has taken, without its children; 0 if unknown."""
    with suppress(psutil.Error, OSError, RuntimeError):
        times = psutil.Process(process).cpu_times()
        return float(times.user + times.system)
    return 0.0


def num_cores() -> int:
    """Return the number of cores to decode with; more threads are slower.

    These are physical cores, and only performance cores if the CPU also has efficiency cores,
    limited by the process's affinity and CPU quota.
    """
    cores = _performance_cores() if sys.platform == "darwin" else _cores_in_affinity()
    cores = cores or psutil.cpu_count(logical=False) or num_processors()
    return max(1, min(cores, math.floor(min(cpu_quotas(), default=cores))))


def num_threads(model: Path, wanted: int | None = None) -> int:
    """Return the number of threads to decode with: `wanted`, or one per core.

    A small model gets one less if that would use every processor, but at least two.
    """
    if wanted:
        return wanted
    cores = num_cores()
    with suppress(OSError):  # loading reports what is wrong with the file
        if model.stat().st_size < SMALL_MODEL_BYTES and cores == num_processors() > 2:
            return cores - 1
    return cores


def num_processors() -> int:
    """Return how many processors this process may use, hyperthreads included."""
    count = len(affinity()) or os.cpu_count() or 1
    return max(1, min(count, math.ceil(min(cpu_quotas(), default=count))))


def repacks_weights() -> bool:
    """Return True if llama.cpp has kernels here that check four tokens of a Q4_0 file at once.

    They need AVX2 on x86 and the dot product on ARM; where the system lists no such features, they
    are taken to be there.
    """
    lines = read_text(CPU_FACTS).splitlines()
    features = next((line for line in lines if line.startswith(("flags", "Features"))), "")
    return not features or not {"avx2", "asimddp"}.isdisjoint(features.split())


def affinity() -> list[int]:
    """Return the processors this process may run on; empty if the system has no affinity."""
    ask: Callable[[], list[int]] | None = getattr(psutil.Process(), "cpu_affinity", None)
    return ask() if ask else []


def seconds_of_others(processors: Sequence[int]) -> float:
    """Return the seconds for which other processes have used these processors since the start."""
    times = psutil.cpu_times(percpu=True)
    if len(times) != len(processors):  # when all are wanted, their numbers may have gaps
        times = [times[processor] for processor in processors if processor < len(times)]
    used = sum(cpu.user + cpu.system + getattr(cpu, "nice", 0.0) for cpu in times)
    return used - time.process_time()


def _cores_in_affinity() -> int:
    """Return the number of distinct cores in the affinity, 0 if the system does not report it."""
    allowed = affinity()
    if sys.platform != "linux":
        return min(len(allowed), psutil.cpu_count(logical=False) or 0)
    fast = _numbers(read_text(FAST_PROCESSORS))
    siblings = [
        read_text(PROCESSORS / f"cpu{processor}/topology/thread_siblings_list") or f"{processor}"
        for processor in fast.intersection(allowed) or allowed
    ]
    return len(set(siblings))


def _numbers(ranges: str) -> set[int]:
    """Return the numbers of a list like "0-3,8"."""
    numbers = set[int]()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        numbers.update(range(int(first), int(last or first) + 1))
    return numbers


def _performance_cores() -> int:
    """Return the number of a Mac's performance cores, 0 if all its cores are alike."""
    command = ["sysctl", "-n", "hw.perflevel0.physicalcpu"]
    with suppress(OSError, ValueError):
        return int(subprocess.run(command, capture_output=True, text=True, check=False).stdout)
    return 0
