"""`specchat worker` in a process of its own, and other things that listen where a worker could."""

import os
import signal
import socket
import struct
import subprocess
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

from specchat.llama.child_process import child_python
from specchat.network.loopback import LOOPBACK
from specchat.options.worker_address import WorkerAddress

SECONDS_TO_START = 60
SMALL_FILES = ("sh", "-c", 'ulimit -f 1000; exec "$@"', "sh")
"""Runs a command that cannot write files of more than 500 KiB, as if the disk was full then."""


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

    def __init__(
        self, words: Sequence[str] = (), port: int = 0, before: Sequence[str] = ()
    ) -> None:
        """Start it, and wait until it listens. Raises WorkerEnded if it does not.

        `before` are the words of a command that runs it, such as SMALL_FILES.
        """
        self.address = WorkerAddress(LOOPBACK, port or free_ports())
        self.printed: list[str] = []
        port_words = ("--port", str(self.address.port), "--threads", "1")
        command, environment = child_python("specchat", "worker", *port_words, *words)
        self.process = subprocess.Popen(
            [*before, *command], env=environment,
            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
            start_new_session=True,
        )  # fmt: skip
        self._listens = threading.Event()
        assert self.process.stdout  # noqa: S101
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


class TensorSender:
    """A client that sends tensors to a worker with a cache, as llama.cpp sends large weights."""

    def __init__(self, address: WorkerAddress, room: int) -> None:
        """Connect, and take some bytes of the worker's first device."""
        self._peer = socket.create_connection((address.host, address.port))
        self._ask(14, bytes(24), 28)
        self._buffer, _ = struct.unpack("<QQ", self._ask(0, struct.pack("<IQ", 0, room), 16))
        (self._base,) = struct.unpack("<Q", self._ask(3, struct.pack("<Q", self._buffer), 8))

    def send(self, data: bytes) -> None:
        """Send a tensor of floats, for the worker to keep."""
        self._say(6, self._tensor(len(data)) + b"\1" + bytes(8) + data)
        self.is_there(0, 4)  # answered once that is done

    def is_there(self, hash_: int, size: int) -> bool:
        """Return whether the worker has a tensor, which it uses then."""
        found = self._ask(7, self._tensor(size) + struct.pack("<QQ", 0, hash_), 1)
        return found == b"\1"

    def read(self, size: int) -> bytes:
        """Return what is in the tensor."""
        return self._ask(8, self._tensor(size) + struct.pack("<QQ", 0, size), size)

    def close(self) -> None:
        """Go."""
        self._peer.close()

    def _tensor(self, size: int) -> bytes:
        """Return a tensor of floats at the beginning of the memory, as llama.cpp describes it."""
        count = size // 4
        strides = (4, size, size, size)
        head = struct.pack("<QIQ4I4II", 1, 0, self._buffer, count, 1, 1, 1, *strides, 0)
        rest = struct.pack("<64xi80xQQQ64si", 0, 0, 0, self._base, b"weights", 0)
        return head + rest

    def _say(self, command: int, data: bytes) -> None:
        self._peer.sendall(struct.pack("<BQ", command, len(data)) + data)

    def _ask(self, command: int, data: bytes, size: int) -> bytes:
        self._say(command, data)
        answer = self._read(8)
        if struct.unpack("<Q", answer) != (size,):
            raise OSError(f"an answer of {answer!r} to {command}")
        return self._read(size)

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self._peer.recv(size - len(found))
            if not part:
                raise OSError("the worker is gone")
            found += part
        return found


def tensor_hash(data: bytes) -> int:
    """Return the hash by which llama.cpp knows the content of a tensor (FNV-1a)."""
    found = 0xCBF29CE484222325
    for each in data:
        found = (found ^ each) * 0x100000001B3 & 0xFFFFFFFFFFFFFFFF
    return found


def cache_folder_of(address: WorkerAddress) -> Path:
    """Return where a worker of this user keeps tensors."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "specchat" / "tensors" / str(address.port)
