"""Starts the engine's process in an environment for fast decoding, shielded from Ctrl+C."""

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, suppress
from multiprocessing import resource_tracker
from multiprocessing.context import SpawnProcess
from pathlib import Path
from types import ModuleType
from typing import TextIO

LARGE_PAGES = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}
"""Decoding reads all weights for every token: large pages make that about 4 % faster, measured on a
1.1B model. glibc reads this when a process starts; other C libraries ignore it."""


def start_process(process: SpawnProcess) -> None:
    """Start a process that will decode; a Ctrl+C during the start is raised after it."""
    with (
        redirect_stderr(_error_stream()),
        _holding_interrupts(),
        _in_environment(LARGE_PAGES),
        _hiding_script(),
        _in_usable_folder(),
    ):
        process.start()


@contextmanager
def _in_environment(wanted: dict[str, str]) -> Iterator[None]:
    """Set environment variables temporarily, except those the user has set."""
    added = {name: text for name, text in wanted.items() if name not in os.environ}
    if sys.platform == "linux":
        os.environ.update(added)
    try:
        yield
    finally:
        for name in added:
            os.environ.pop(name, None)


@contextmanager
def _hiding_script() -> Iterator[None]:
    """Keep the new process from running the user's script again, which then needs no main guard."""
    script = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = script


@contextmanager
def _in_usable_folder() -> Iterator[None]:
    """Have the new process begin in the root folder where it could not enter this one's again.

    That was deleted, for example: multiprocessing asks for its name, and enters it by that.
    """
    known = os.getcwd
    try:
        os.chdir(Path.cwd())
    except OSError:
        os.getcwd = lambda: os.sep
    try:
        yield
    finally:
        os.getcwd = known


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Hold Ctrl+C back while a process starts: it is meant for this process and must not be lost.

    The new process inherits the blocked signal, so Ctrl+C does not reach it. In another thread than
    the main one, which gets signals, there is none to hold back.
    """
    is_main, held = threading.current_thread() is threading.main_thread(), list[int]()
    before = signal.getsignal(signal.SIGINT)
    if is_main:
        signal.signal(signal.SIGINT, lambda number, _: held.append(number))
    mask = set[signal.Signals | int]()
    if sys.platform != "win32":
        resource_tracker.ensure_running()  # or the first process starts it and unblocks signals
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        if sys.platform != "win32":
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if is_main:
            signal.signal(signal.SIGINT, before)
        if held:
            signal.raise_signal(signal.SIGINT)


def _error_stream() -> TextIO | None:
    """Return an error stream with a file descriptor, which multiprocessing passes to new processes.

    An application that captures output may have replaced it with a stream that has none.
    """
    with suppress(OSError, ValueError):  # multiprocessing handles these
        if sys.stderr is None or sys.stderr.fileno() < 0:
            return sys.__stderr__
    return sys.stderr
