"""Chooses how long llama.cpp's threads spin before they sleep.

Idle threads of GCC's OpenMP spin for milliseconds, or for about a microsecond when they outnumber
the processors. Long waits are faster, except when another program wants a processor all the time:
then a spinning thread takes the time of the thread it waits for, and decoding with short waits is
1.5 to 1.7 times as fast (docs/benchmarks.md has the figures). OpenMP has no function to set the
wait, but sleeping threads count as threads, so a team of idle ones makes waits short while it
exists.
"""

import ctypes
import os
import re
import threading
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
NUM_WINDOWS = 2
"""Crowded windows in a row that make waits short; a single one may be a program starting."""


class ThreadWaits:
    """Keeps thread waits long, or short while other programs compete for the processors.

    It does nothing if the user chose how threads wait, or if OpenMP is not GCC's.
    """

    def __init__(self, num_threads: int) -> None:
        """Begin with long waits for this number of decoding threads."""
        is_ours = os.environ.keys().isdisjoint({"GOMP_SPINCOUNT", "OMP_WAIT_POLICY"})
        self._libraries = _openmp_libraries() if is_ours else []
        self._processors = affinity()
        self._num_idle = len(self._processors) - num_threads
        self._num_crowded = 0
        self._team: _SleepingTeam | None = None
        self.begin()

    @property
    def are_short(self) -> bool:
        """Return True while waits are short."""
        return self._team is not None

    def begin(self) -> None:
        """Begin a window; earlier use by other programs does not count."""
        self._since, self._used = perf_counter(), 0.0
        with suppress(OSError):  # some sandboxes hide processor use: then waits stay long
            if self._libraries:
                self._used = seconds_of_others(self._processors)

    def follow(self) -> None:
        """If the window is over, choose the waits by what others used, and begin another one."""
        seconds = perf_counter() - self._since
        if seconds < WINDOW_SECONDS or not self._libraries:
            return
        before = self._used
        self.begin()
        num_too_many = (self._used - before) / seconds - self._num_idle
        is_crowded = num_too_many >= (STILL_CROWDED if self.are_short else CROWDED)
        self._num_crowded = self._num_crowded + 1 if is_crowded else 0
        if not is_crowded:
            self.close()
        elif self._num_crowded >= NUM_WINDOWS:
            self.shorten()

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
