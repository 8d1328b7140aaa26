"""Explains failures to lock models in memory: llama.cpp's warnings and the system's limit."""

import sys
from collections.abc import Iterable

FAILURES = (
    "failed to mlock",
    "failed to VirtualLock",
    "WorkingSetSize failed",
    "mlock not support",
)
"""Parts of llama.cpp's warnings; it continues without the lock."""


def lock_notice(name: str, warnings: Iterable[str]) -> str:
    """Return a line if llama.cpp could not lock a model in memory, empty if it could."""
    failed = [warning for warning in warnings if any(failure in warning for failure in FAILURES)]
    if not failed:
        return ""
    reason = _limit() or failed[-1].rpartition(": ")[2].partition("\n")[0]
    return f"{name} is not locked in memory, so it may be swapped out: {reason}"


def _limit() -> str:
    """Return this process's limit with advice, empty if there is none."""
    if sys.platform == "win32":
        return ""
    import resource

    limit, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if limit == resource.RLIM_INFINITY:
        return ""
    size = f"{limit / 2**20:.4g} MiB" if limit >= 2**20 else f"{limit / 2**10:.4g} KiB"
    return f"the limit is {size} (`ulimit -l`, RLIMIT_MEMLOCK); raise it, or leave out --mlock"
