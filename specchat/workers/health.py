"""The health of workers, which a specchat worker reports on the port after its own.

JSON over HTTP. llama.cpp's RPC protocol cannot ask a busy server whether it is still alive, so
without this, a client would wait forever for a worker that hangs or whose machine is gone. A
worker's report is validated, because anything may answer.
"""

import json
import socket
from dataclasses import dataclass
from time import monotonic

from specchat.options.worker_address import WorkerAddress
from specchat.workers.timed_socket import TimedSocket

ALIVE, REPORT, BYTES = "/alive", "/", "/bytes"
"""The paths: for the id alone, a whole `HealthReport`, or bytes to measure the network with."""
LARGEST_ANSWER = 1 << 16
LONGEST_NAME = 100


class NoHealth(Exception):
    """Raised when what answers is not a worker's health: a plain rpc-server has none."""


@dataclass(frozen=True, slots=True)
class OfferedDevice:
    """A device that a worker lends; `kind` is "gpu", "integrated" or "cpu"."""

    name: str = ""
    description: str = ""
    kind: str = ""
    free: int = 0
    total: int = 0


@dataclass(frozen=True, slots=True)
class HealthReport:
    """A worker's own report.

    `id` differs from process to process. `rpc` is its version of the RPC protocol. `clients` are
    the addresses of those that use its devices.
    """

    id: str = ""
    specchat: str = ""
    llama: str = ""
    rpc: tuple[int, ...] = ()
    devices: tuple[OfferedDevice, ...] = ()
    clients: tuple[str, ...] = ()


@dataclass(slots=True)
class NetworkTransfer:
    """The bytes that came in some seconds."""

    num_bytes: int = 0
    seconds: float = 0.0

    @property
    def per_second(self) -> float:
        """The bytes per second."""
        return self.num_bytes / self.seconds if self.seconds else 0.0


def ask_for_id(address: WorkerAddress, seconds: float) -> str:
    """Return the id of a worker's process. Raises OSError, and NoHealth if something else answers.

    This takes no time of the devices.
    """
    return _report(address, ALIVE, seconds).id


def ask_for_report(address: WorkerAddress, seconds: float) -> HealthReport:
    """Return what a worker says of itself. Raises OSError, and NoHealth as above."""
    return _report(address, REPORT, seconds)


def _report(address: WorkerAddress, path: str, seconds: float) -> HealthReport:
    import msgspec

    try:
        report = msgspec.convert(json.loads(_ask(address, path, seconds)), HealthReport)
    except (ValueError, RecursionError):
        raise NoHealth from None
    return report


def measure_transfer(address: WorkerAddress, num_bytes: int, seconds: float) -> NetworkTransfer:
    """Return how fast bytes come from a worker, for at most some seconds. Raises OSError."""
    moved = NetworkTransfer()
    with socket.create_connection((address.host, address.health_port), seconds) as peer:
        peer.sendall(_request(BYTES))
        began = monotonic()
        while moved.num_bytes < num_bytes and moved.seconds < seconds:
            peer.settimeout(seconds)
            part = peer.recv(1 << 18)
            moved.num_bytes += len(part)
            moved.seconds = monotonic() - began
            if not part:
                break
    return moved


def _ask(address: WorkerAddress, path: str, seconds: float) -> bytes:
    """Return the body of an answer. Raises OSError, and NoHealth if it is too long or of no use."""
    deadline, answer = monotonic() + seconds, bytearray()
    with socket.create_connection((address.host, address.health_port), seconds) as peer:
        stream = TimedSocket(peer, deadline)
        stream.send(_request(path))
        while part := stream.receive(1 << 16):
            answer += part
            if len(answer) > LARGEST_ANSWER:
                raise NoHealth
    head, _, body = answer.partition(b"\r\n\r\n")
    status = head.split(b" ", 2)[:2]
    if len(status) < 2 or not status[0].startswith(b"HTTP/1.") or status[1] != b"200":
        raise NoHealth
    return bytes(body)


def _request(path: str) -> bytes:
    return f"GET {path} HTTP/1.0\r\n\r\n".encode()
