"""Whether processes have ended."""

from collections.abc import Sequence

import psutil


def still_running(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Return those that run on after that time.

    One that has ended and that nobody has waited for does not count: in a container without an
    init process, orphans stay zombies for ever.
    """
    return [process for process in psutil.wait_procs(processes, timeout_s)[1] if _runs(process)]


def _runs(process: psutil.Process) -> bool:
    """Return whether it has not ended."""
    try:
        return bool(process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
