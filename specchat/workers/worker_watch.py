"""Watches the workers of a loaded target; one that is lost or hangs ends the engine."""

import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from time import monotonic, sleep

from specchat.options.worker_address import WorkerAddress
from specchat.workers.health import NoHealth, ask_for_id
from specchat.workers.worker_probe import WorkerReport

INTERVAL_SECONDS = 2.0
SILENCE_SECONDS = 3.0
"""How long a worker may take to answer; one that takes twice as long is considered lost."""
RETRY_SECONDS = 0.2
LEAST_SECONDS = 0.1
"""The least time that a worker gets for an answer, however late the earlier ones were."""
LOAD_SECONDS = 10.0
"""How long a worker may take to answer llama.cpp's first request."""
REACH_SECONDS = 1.0
POLL_SECONDS = 0.05
END_SECONDS = 5.0
"""How long a process may take to end once a loss is reported."""
TO_CONTINUE = "start it again there, or go on without --worker"

LostCallback = Callable[[str], None]
"""Called once, with one line, from another thread; it should end the process."""

LOST = 1
"""The exit code of a process that ends because it lost a worker."""


def end_process(line: str) -> None:
    """Print the reason and end this process: llama.cpp cannot continue without a worker."""
    print(f"\nspecchat: {line}", file=sys.stderr, flush=True)
    os._exit(LOST)


class WorkerWatch(AbstractContextManager["WorkerWatch"]):
    """Asks each worker with a health port every two seconds whether it is alive."""

    def __init__(self, reports: Sequence[WorkerReport], on_lost: LostCallback) -> None:
        """Start the threads: one per worker with a health port, and one for the time limit."""
        self._all = [report.address for report in reports]
        self._on_lost = on_lost
        self._is_over = threading.Event()
        self._first = threading.Lock()
        self._waiting: dict[WorkerAddress, float] = {}
        for address in [report.address for report in reports if report.has_health]:
            threading.Thread(target=self._watch, args=(address,), name="watch", daemon=True).start()
        threading.Thread(target=self._time, name="watch", daemon=True).start()

    def close(self) -> None:
        """Stop asking."""
        self._is_over.set()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextmanager
    def connecting(self, address: WorkerAddress) -> Iterator[None]:
        """Limit llama.cpp's first request to a worker, for which it would wait forever."""
        self._waiting[address] = monotonic()
        try:
            yield
        finally:
            del self._waiting[address]

    def connection_lost(self) -> None:
        """Report that llama.cpp has lost its connection to one of the workers.

        If another thread is already reporting it, wait for that thread to end the process: after a
        return, ggml would.
        """
        dead = list[WorkerAddress]()
        deadline = monotonic() + REACH_SECONDS  # a port is closed a little later
        while not dead and monotonic() < deadline:
            dead = [address for address in self._all if not _is_reachable(address)]
            sleep(POLL_SECONDS)
        if len(named := dead or self._all) == 1:
            self._lose(named[0], "its connection broke" if not dead else "it has ended")
        else:
            names = ", ".join(map(str, named))
            self._report(f"one of the workers {names} stopped answering; {TO_CONTINUE}")
        if not self._is_over.is_set():
            sleep(END_SECONDS)

    def _watch(self, address: WorkerAddress) -> None:
        """Ask in a loop. A worker that accepts a connection but stays silent may be overloaded."""
        last_id, is_closed = "", False
        silent_since: float | None = None
        while not self._is_over.wait(INTERVAL_SECONDS if silent_since is None else RETRY_SECONDS):
            began = monotonic()
            since = began if silent_since is None else silent_since
            left = since + 2 * SILENCE_SECONDS - began
            try:
                current_id = ask_for_id(address, max(LEAST_SECONDS, min(SILENCE_SECONDS, left)))
            except (TimeoutError, NoHealth, ConnectionResetError, BrokenPipeError):
                silent_since, is_closed = since, False
                if monotonic() - since >= 2 * SILENCE_SECONDS:
                    self._lose(address, f"no sign of life for {2 * SILENCE_SECONDS:.0f} s")
                    return
            except OSError:
                if is_closed:
                    self._lose(address, "it has ended, or its machine is not reachable")
                    return
                silent_since, is_closed = since, True
            else:
                if last_id and current_id != last_id:
                    self._lose(address, "it was restarted")
                    return
                last_id, silent_since, is_closed = current_id, None, False

    def _time(self) -> None:
        while not self._is_over.wait(REACH_SECONDS):
            for address, began in list(self._waiting.items()):
                if monotonic() - began > LOAD_SECONDS:
                    self._lose(address, "it serves another client, or it is stopped")
                    return

    def _lose(self, address: WorkerAddress, reason: str) -> None:
        self._report(f"the worker {address} stopped answering: {reason}; {TO_CONTINUE}")

    def _report(self, line: str) -> None:
        if not self._is_over.is_set() and self._first.acquire(blocking=False):
            self._on_lost(line)


def _is_reachable(address: WorkerAddress) -> bool:
    """Return False if nothing listens at an address."""
    with suppress(OSError), socket.create_connection((address.host, address.port), REACH_SECONDS):
        return True
    return False
