"""Whether processes have ended.

One that has ended and that nobody has waited for counts as ended: in a container without an init
process, orphans stay zombies for ever.
"""

from collections.abc import Sequence
from contextlib import suppress

import psutil


def is_running(pid: int) -> bool:
    """Return whether the process of a number has not ended."""
    with suppress(psutil.NoSuchProcess):
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    return False


def still_running(processes: Sequence[psutil.Process], timeout_s: float) -> list[psutil.Process]:
    """Return those that have not ended after that time."""
    left = psutil.wait_procs(processes, timeout_s)[1]
    return [process for process in left if process.is_running() and is_running(process.pid)]
