"""Starting the engine's process: with the environment it decodes quickest in, and undisturbed."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess

__all__ = ["start_process"]

LARGE_PAGES = ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1")
"""Weights repacked for the CPU are read from end to end for every token: with large pages about 4 %
faster, as measured on a 1.1B model. glibc takes this wish from its environment alone, and only when
a process starts; other C libraries ignore it."""

SHORT_SPINS = ("GOMP_SPINCOUNT", "1000")
"""Between two operations llama.cpp's threads wait for each other, by default for milliseconds
without giving up their core. With another program on one of two cores that made 4 to 13 of the 43
tokens a second of a 1.1B model; short waits make it 12 to 18, and cost nothing where there is none.
(Without any waits it is 20 to 25, and 28 of the 43.) Only GCC's OpenMP knows this variable."""

WAITING_POLICY = "OMP_WAIT_POLICY"
"""Whoever has chosen how threads wait is left alone."""


def start_process(process: SpawnProcess) -> None:
    """Start a process that will decode; Ctrl+C meanwhile is told when it has started."""
    wanted = dict([LARGE_PAGES] if WAITING_POLICY in os.environ else [LARGE_PAGES, SHORT_SPINS])
    with _holding_interrupts(), _in_environment(wanted), _own_error_stream():
        process.start()


@contextmanager
def _in_environment(wanted: dict[str, str]) -> Iterator[None]:
    """Have variables in the environment for a while, those the user has set excepted."""
    added = {name: text for name, text in wanted.items() if name not in os.environ}
    if sys.platform == "linux":
        os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Hold Ctrl+C back while a process is started: it means this one, and must not be lost.

    The new process inherits that it is blocked, so it hears nothing of it from its first moment.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    held: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    can_block = hasattr(signal, "pthread_sigmask")
    if can_block:  # starting the first process starts this one too, which lets interrupts in again
        resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT}) if can_block else set()
    try:
        yield
    finally:
        if can_block:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


@contextmanager
def _own_error_stream() -> Iterator[None]:
    """Have an error stream with a descriptor, which multiprocessing hands to what it starts.

    An application that catches what is printed may have put one without in its place.
    """
    before = sys.stderr
    try:
        has_descriptor = before is not None and before.fileno() >= 0
    except (OSError, ValueError):
        has_descriptor = True  # multiprocessing knows what to do about these
    if not has_descriptor:
        sys.stderr = sys.__stderr__
    try:
        yield
    finally:
        sys.stderr = before
