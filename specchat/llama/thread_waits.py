"""Chooses how many threads decode, and how long they spin before they sleep.

All threads of a pass wait for the last one, so one whose processor another program wants holds up
all: two threads on two processors that others want, too, are slower than one. Where their number
may change, some give way. Otherwise waits become short: idle threads of GCC's OpenMP spin for
milliseconds, or for about a microsecond when they outnumber the processors. Long waits are faster,
except when another program wants a processor all the time: then a spinning thread takes the time of
the thread it waits for, and decoding with short waits is 1.5 to 1.7 times as fast
(docs/benchmarks.md has the figures). OpenMP has no function to set the wait, but sleeping threads
count as threads, so a team of idle ones makes waits short while it exists.
"""

import ctypes
import os
import re
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from time import perf_counter

from specchat.planning.host_resources import affinity, seconds_of_others

MAPS = Path("/proc/self/maps")
WINDOW_SECONDS = 0.5
CROWDED, STILL_CROWDED = 0.55, 0.75
"""The numbers of processors used by other programs, beyond those that decoding leaves idle, that
make waits short and keep them short. Beside two threads on two processors, a program that wants a
processor all the time gets 0.66 to 0.77 with long waits and 0.86 to 0.95 with short ones; a program
that wants it 80 % of the time gets 0.39 to 0.48 and 0.55 to 0.69."""
GIVING_WAY = "other programs are busy: decoding with fewer threads"
NUM_WINDOWS = 2
"""Crowded windows in a row that change something; a single one may be a program starting."""


class ThreadWaits:
    """Keeps threads many and their waits long, unless other programs compete for the processors.

    Waits stay as they are if the user chose how threads wait, or if OpenMP is not GCC's.
    """

    def __init__(self, num_threads: int, use_threads: Callable[[int], None] | None = None) -> None:
        """Begin with long waits for this number of decoding threads.

        `use_threads` sets another number, from the next pass on; None keeps it.
        """
        is_ours = os.environ.keys().isdisjoint({"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
        self._libraries = _openmp_libraries() if is_ours else []
        self._processors = affinity() or list(range(os.cpu_count() or 1))
        self._num_idle = len(self._processors) - num_threads
        self._most = self.num_threads = num_threads
        """With how many threads the next pass decodes."""
        self._use_threads = use_threads if num_threads > 1 else None
        self._num_crowded, self._is_judged = 0, False
        self._team: _SleepingTeam | None = None
        self._begin_window()

    @property
    def are_short(self) -> bool:
        """Return True while waits are short."""
        return self._team is not None

    @property
    def notice(self) -> str:
        """What to say where a window has shown that threads give way; empty if none does."""
        return GIVING_WAY if self._is_judged and self.num_threads < self._most else ""

    def begin(self) -> None:
        """Begin an answer, with as many threads as other programs left processors before it.

        Waits do not follow from that. If it is wrong, a window corrects it, and nothing is said.
        """
        self._is_judged = False
        num_too_many = self._num_too_many()
        if num_too_many is not None:
            is_crowded = num_too_many >= CROWDED
            self._use(self._fitting(num_too_many) if is_crowded else self._most)
        self._begin_window()

    def follow(self) -> None:
        """If the window is over, choose by what others used, and begin another one."""
        num_too_many = self._num_too_many()
        if num_too_many is None:
            return
        self._begin_window()
        self._is_judged = True
        has_changed = self.are_short or self.num_threads < self._most
        is_crowded = num_too_many >= (STILL_CROWDED if has_changed else CROWDED)
        self._num_crowded = self._num_crowded + 1 if is_crowded else 0
        if not is_crowded:
            self.close()
            self.restore_threads()
        elif self._num_crowded >= NUM_WINDOWS and self._use_threads:
            self._use(self._fitting(num_too_many))
        elif self._num_crowded >= NUM_WINDOWS:
            self.shorten()

    def _begin_window(self) -> None:
        self._since, self._used = perf_counter(), 0.0
        with suppress(OSError):  # some sandboxes hide processor use: then nothing changes
            if self._libraries or self._use_threads:
                self._used = seconds_of_others(self._processors)

    def _num_too_many(self) -> float | None:
        """Return how many processors others used that all threads need; None if it is too early."""
        seconds = perf_counter() - self._since
        if seconds < WINDOW_SECONDS or not (self._libraries or self._use_threads):
            return None
        with suppress(OSError):
            used = seconds_of_others(self._processors) - self._used
            return used / seconds - self._num_idle
        return None

    def _fitting(self, num_too_many: float) -> int:
        """Return with how many threads to decode beside others."""
        return max(1, self._most - round(num_too_many))

    def restore_threads(self) -> None:
        """Decode with all threads again."""
        self._use(self._most)

    def _use(self, num_threads: int) -> None:
        if self._use_threads and num_threads != self.num_threads:
            self._use_threads(num_threads)
            self.num_threads = num_threads

    def shorten(self) -> None:
        """Switch to short waits if possible."""
        if self._libraries and not self._team:
            with suppress(RuntimeError):
                self._team = _SleepingTeam(self._libraries, max(2, self._num_idle + 2))

    def close(self) -> None:
        """Switch to long waits."""
        if self._team:
            self._team.close()
            self._team = None


class _SleepingTeam:
    """An idle team of OpenMP, which ends with the thread that started it."""

    def __init__(self, libraries: list[ctypes.CDLL], num_threads: int) -> None:
        self._size, self._libraries = num_threads, libraries
        self._is_ready, self._is_over = threading.Event(), threading.Event()
        self._first = threading.Thread(target=self._run, daemon=True)
        self._first.start()
        self._is_ready.wait()

    def close(self) -> None:
        self._is_over.set()
        self._first.join()

    def _run(self) -> None:
        try:
            nothing = ctypes.cast(ctypes.CDLL(None).free, ctypes.c_void_p)  # frees NULL
            for library in self._libraries:
                library.GOMP_parallel(nothing, None, self._size, 0)
        finally:
            self._is_ready.set()
        self._is_over.wait()


def _openmp_libraries() -> list[ctypes.CDLL]:
    """Return all copies of GCC's OpenMP in this process; wheels may bring their own."""
    libraries = []
    with suppress(OSError):  # not Linux
        paths = re.findall(r"(/.*/libgomp[^/]*)$", os.fsdecode(MAPS.read_bytes()), re.MULTILINE)
        for path in dict.fromkeys(paths):
            with suppress(OSError, AttributeError):
                library = ctypes.CDLL(path)
                library.GOMP_parallel.argtypes = [ctypes.c_void_p] * 2 + [ctypes.c_uint] * 2
                library.GOMP_parallel.restype = None
                libraries.append(library)
    return libraries
