"""Probes a worker before llama.cpp connects, which would wait forever or end the process."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from statistics import median
from time import monotonic, sleep

from specchat.errors import WorkerUnavailable
from specchat.options.worker_address import WorkerAddress
from specchat.workers.health import (
    LONGEST_NAME,
    HealthReport,
    NoHealth,
    OfferedDevice,
    ask_for_report,
)
from specchat.workers.rpc_protocol import SPOKEN, NotRpc, RpcMemory, RpcVersion, rpc_connection

CONNECT_SECONDS, ANSWER_SECONDS = 5.0, 3.0
BUSY_SECONDS = 6.0
"""How long a worker may be busy with a client that is leaving, plus the time of a last try."""
RETRY_SECONDS = 0.2
NUM_TRIES = 3
MOST_CLIENTS = 3
NUM_ROUND_TRIPS = 5
MOST_BYTES = 2**50
"""More memory than any device has, since a worker may report anything."""


@dataclass(frozen=True, slots=True)
class WorkerReport:
    """The facts about a usable worker.

    `has_health` is False for a plain rpc-server, of which `health` is empty. `round_trip` is the
    median of a few requests, in seconds.
    """

    address: WorkerAddress
    version: RpcVersion
    devices: tuple[OfferedDevice, ...]
    round_trip: float
    has_health: bool
    health: HealthReport


def probe_worker(
    address: WorkerAddress, num_round_trips: int = NUM_ROUND_TRIPS, patience: float = BUSY_SECONDS
) -> WorkerReport:
    """Return what a worker offers; wait a little while it is busy.

    Raises WorkerUnavailable, in one line that names the worker and the next step.
    """
    deadline = monotonic() + patience
    while True:
        try:
            return _probe(address, num_round_trips)
        except _Busy as busy:
            if monotonic() >= deadline:
                raise WorkerUnavailable(str(busy)) from None
        sleep(RETRY_SECONDS)


class _Busy(Exception):
    """Raised when a worker has another client, with the line to show."""


def _probe(address: WorkerAddress, num_round_trips: int) -> WorkerReport:
    version, memories, times = (0, 0, 0), list[RpcMemory](), list[float]()
    try:
        with rpc_connection(address.host, address.port, CONNECT_SECONDS, ANSWER_SECONDS) as rpc:
            try:
                version = rpc.hello()
            except TimeoutError:
                raise _explain_silence(address) from None
            if version != SPOKEN:
                raise WorkerUnavailable(other_version(address, version))
            memories = [rpc.memory(device) for device in range(rpc.count_devices())]
            for _ in range(num_round_trips):
                began = monotonic()
                rpc.count_devices()
                times.append(monotonic() - began)
    except (NotRpc, ConnectionResetError, BrokenPipeError):
        raise WorkerUnavailable(
            f"{address} is not a worker: something else answers there, or a worker of another"
            " version; run `specchat worker` of this version there, or correct --worker"
        ) from None
    except TimeoutError:
        raise WorkerUnavailable(
            f"the worker {address} does not answer: check the address and the firewall, or leave"
            " out --worker"
        ) from None
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise WorkerUnavailable(
            f"the worker {address} is not reachable ({reason}): start `specchat worker` there, or"
            " leave out --worker"
        ) from None
    health = _health_of(address)
    devices = [
        OfferedDevice(f"device {number}", "", "gpu", memory.free, memory.total)
        for number, memory in enumerate(memories)
    ]
    if health and len(health.devices) == len(devices):
        devices = list(health.devices)
    return WorkerReport(
        address,
        version,
        tuple(map(_harmless, devices)),
        median(times) if times else 0.0,
        health is not None,
        health or HealthReport(),
    )


def require_different(reports: Sequence[WorkerReport]) -> None:
    """Raise WorkerUnavailable if two addresses are of one worker, which serves one client."""
    for number, report in enumerate(reports):
        for other in reports[:number]:
            is_same = report.health.id and report.health.id == other.health.id
            if is_same or _numeric_addresses(report.address) & _numeric_addresses(other.address):
                raise WorkerUnavailable(
                    f"{other.address} and {report.address} are one worker: leave out one of them"
                )


def _numeric_addresses(address: WorkerAddress) -> set[tuple[object, ...]]:
    """Return the numeric addresses of a host name, with the port."""
    with suppress(OSError):
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
        return {socket_address[:2] for *_, socket_address in infos}
    return set()


def other_version(address: WorkerAddress, version: Sequence[int]) -> str:
    """Return the line about a worker of another version of the RPC protocol."""
    remote, local = (".".join(map(str, parts)) for parts in (version, SPOKEN))
    return (
        f"the worker {address} speaks version {remote} of llama.cpp's RPC protocol, not {local}:"
        " install the same version of specchat on both machines"
    )


def _explain_silence(address: WorkerAddress) -> Exception:
    """Return the error for a server that accepts a connection and says nothing."""
    try:
        health = _ask(address)
    except (OSError, NoHealth):
        return WorkerUnavailable(
            f"the worker {address} accepts connections and does not answer: it is stopped, or busy"
            " with another client; restart it, or leave out --worker"
        )
    clients = ", ".join(_clean(client) for client in health.clients[:MOST_CLIENTS])
    return _Busy(
        f"the worker {address} is busy with another client{f' ({clients})' * bool(clients)}: wait"
        " for that, or start another worker with another --port"
    )


def _health_of(address: WorkerAddress) -> HealthReport | None:
    with suppress(OSError, NoHealth):
        report = _ask(address)
        return replace(
            report,
            specchat=_clean(report.specchat),
            llama=_clean(report.llama),
            clients=tuple(map(_clean, report.clients[:MOST_CLIENTS])),
        )
    return None


def _ask(address: WorkerAddress) -> HealthReport:
    """Ask again if a worker accepts the request but does not answer: it may be overloaded.

    Raises as `ask_for_report` does.
    """
    for _ in range(NUM_TRIES):
        with suppress(NoHealth, ConnectionResetError, BrokenPipeError):
            return ask_for_report(address, ANSWER_SECONDS)
    raise NoHealth


def _harmless(device: OfferedDevice) -> OfferedDevice:
    """Return a device whose texts and numbers can be shown and added up."""
    return replace(
        device,
        name=_clean(device.name),
        description=_clean(device.description),
        kind=_clean(device.kind),
        free=_within(device.free),
        total=_within(device.total),
    )


def _clean(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text)[:LONGEST_NAME]


def _within(num_bytes: int) -> int:
    return max(0, min(num_bytes, MOST_BYTES))
