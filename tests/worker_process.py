"""`specchat worker` in a process of its own, and other things that listen where a worker could."""

import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Self

from specchat.network.loopback import LOOPBACK
from specchat.options.worker_address import WorkerAddress
from specchat.system.python_child import child_python

SECONDS_TO_START = 60


def free_ports() -> int:
    """Return a port that is free together with the next one."""
    while True:
        with socket.create_server((LOOPBACK, 0)) as first:
            port = int(first.getsockname()[1])
            with suppress(OSError, OverflowError), socket.create_server((LOOPBACK, port + 1)):
                return port


class WorkerEnded(Exception):
    """Raised when a worker ends before it listens: its exit code, and what it says."""


class WorkerProcess:
    """A worker on two free ports of this machine, or on those of another one that has ended."""

    def __init__(self, words: Sequence[str] = (), port: int = 0) -> None:
        """Start it, and wait until it listens. Raises WorkerEnded if it does not."""
        self.address = WorkerAddress(LOOPBACK, port or free_ports())
        self.printed: list[str] = []
        port_words = ("--port", str(self.address.port), "--threads", "1")
        command, environment = child_python("specchat", "worker", *port_words, *words)
        self.process = subprocess.Popen(
            command, env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._listens = threading.Event()
        assert self.process.stdout
        self._output = self.process.stdout
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._listens.wait(SECONDS_TO_START)
        if not self.is_listening:
            self._reader.join()
            code = self.process.wait()
            self._output.close()
            raise WorkerEnded(code, "".join(self.printed))

    @property
    def is_listening(self) -> bool:
        """Whether it has said that it listens."""
        return any("listening on" in line for line in self.printed)

    def kill(self) -> None:
        """Kill it if it still runs."""
        with suppress(OSError):
            self.process.send_signal(signal.SIGCONT)
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self._output.close()

    def stop(self) -> None:
        """Make it stand still, as a machine that is overloaded or suspended does."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        self.process.send_signal(signal.SIGCONT)

    def end(self) -> int:
        """Interrupt it, and return its exit code."""
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(SECONDS_TO_START)

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Kill it."""
        self.kill()

    def _read(self) -> None:
        """Keep what it prints, for a full pipe would stop it."""
        for line in self._output:
            self.printed.append(line)
            if self.is_listening:
                self._listens.set()
        self._listens.set()


class OtherServer:
    """Something that listens where a worker could, and answers each connection with a function."""

    def __init__(self, answer: Callable[[socket.socket], Any], port: int = 0) -> None:
        """Listen on a free port, or on this one."""
        self._listening = socket.create_server((LOOPBACK, port or free_ports()))
        self.address = WorkerAddress(LOOPBACK, self._listening.getsockname()[1])
        self._answer = answer
        threading.Thread(target=self._serve, daemon=True).start()

    def __enter__(self) -> Self:
        """Return it."""
        return self

    def __exit__(self, *_: object) -> None:
        """Listen no more."""
        with suppress(OSError):
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def _serve(self) -> None:
        while True:
            try:
                peer, _ = self._listening.accept()
            except OSError:
                return
            with peer, suppress(OSError):
                self._answer(peer)


def of_version(*version: int) -> Callable[[socket.socket], None]:
    """Return what answers a greeting as an rpc-server of another version does."""

    def answer(peer: socket.socket) -> None:
        peer.recv(1 << 10)
        peer.sendall(struct.pack("<Q3B25x", 28, *version))

    return answer


def saying(text: bytes) -> Callable[[socket.socket], None]:
    """Return what says a text to whoever connects."""
    return lambda peer: peer.sendall(text)


def silence(peer: socket.socket) -> None:
    """Say nothing until the other side goes."""
    while peer.recv(1 << 10):
        pass
