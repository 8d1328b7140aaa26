"""The limits that Linux's control groups set for this process, as in a container.

The set-up script imports this before any package is installed: standard library only.
"""

import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

CGROUPS = Path("/sys/fs/cgroup")
MEMBERSHIP = Path("/proc/self/cgroup")


def memory_limits() -> Iterator[int]:
    """Yield the bytes that each limit of the process's groups leaves, with droppable file pages.

    Pages in active use count too: a model that was mapped twice stays active after its process
    ends. cgroup v1 reports a number near 2**63 if there is no limit.
    """
    names = (
        ("memory.max", "memory.current", ""),
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_"),
    )
    for folder in _groups("memory"):
        for limit_name, used_name, prefix in names:
            limit, used = _text(folder / limit_name), _text(folder / used_name)
            statistics = _text(folder / "memory.stat")
            files = re.findall(rf"^{prefix}(?:in)?active_file (\d+)$", statistics, re.MULTILINE)
            if limit.isdecimal() and used.isdecimal():
                yield int(limit) - int(used) + sum(map(int, files))


def cpu_quotas() -> list[float]:
    """Return the CPU quotas of the process's groups, in processors."""
    quotas = []
    for folder in _groups("cpu"):
        limits = _text(folder / "cpu.max").split()  # cgroup v2
        limits = limits or [_text(folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
        with suppress(ValueError):  # "max", or no such files
            quota, period = map(int, limits)
            if quota > 0 < period:
                quotas.append(quota / period)
    return quotas


def _groups(controller: str) -> Iterator[Path]:
    """Yield the folders of the process's control groups, v1 and v2, and of their ancestors.

    In a container only the root may exist, although the path is that of the host.
    """
    for line in _text(MEMBERSHIP).splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers:
            root = CGROUPS
        elif controller in controllers.split(","):
            root = CGROUPS / controller
        else:
            continue
        group = Path(path.lstrip("/"))
        yield from dict.fromkeys(root / folder for folder in (group, *group.parents))


def _text(path: Path) -> str:
    """Return a file of the system, empty if it cannot be read."""
    with suppress(OSError, ValueError):
        return path.read_text("utf-8", "replace").strip()
    return ""
