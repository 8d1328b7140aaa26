"""A network with latency: passes connections on, and every byte arrives some time later."""

import socket
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Self

from specchat.options.worker_address import WorkerAddress

LOOPBACK = "127.0.0.1"


class SlowNetwork:
    """Ports that stand for the two ports of a worker, behind half of `round_trip` each way."""

    def __init__(self, worker: WorkerAddress, port: int, round_trip: float) -> None:
        """Listen on a port and the next one."""
        self.address = WorkerAddress(LOOPBACK, port)
        self._delay = round_trip / 2
        self._listening = []
        for near, far in ((port, worker.port), (port + 1, worker.health_port)):
            listening = socket.create_server((LOOPBACK, near))
            self._listening.append(listening)
            threading.Thread(target=self._serve, args=(listening, far), daemon=True).start()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        for each in self._listening:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def _serve(self, listening: socket.socket, port: int) -> None:
        while True:
            try:
                near, _ = listening.accept()
            except OSError:
                return
            far = socket.create_connection((LOOPBACK, port))
            for source, target in ((near, far), (far, near)):
                target.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                _Line(source, target, self._delay)


class _Line:
    """One direction: a thread reads at once, another writes what has waited long enough."""

    def __init__(self, source: socket.socket, target: socket.socket, delay: float) -> None:
        self._source, self._target, self._delay = source, target, delay
        self._parts: deque[tuple[float, bytes]] = deque()
        self._has_more = threading.Condition()
        for work in (self._read, self._write):
            threading.Thread(target=work, daemon=True).start()

    def _read(self) -> None:
        part = b"first"
        while part:
            try:
                part = self._source.recv(1 << 18)
            except OSError:
                part = b""
            with self._has_more:
                self._parts.append((time.perf_counter() + self._delay, part))
                self._has_more.notify()

    def _write(self) -> None:
        while True:
            with self._has_more:
                self._has_more.wait_for(lambda: self._parts)
                due, part = self._parts.popleft()
            time.sleep(max(0.0, due - time.perf_counter()))
            try:
                if not part:
                    self._target.shutdown(socket.SHUT_WR)
                    return
                self._target.sendall(part)
            except OSError:
                return
