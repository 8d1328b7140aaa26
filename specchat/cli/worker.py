"""`specchat worker`: lend this machine's devices to specchat on another one."""

import argparse
import errno
import os
import socket
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from time import monotonic
from typing import Any, TypeVar

from specchat import __version__
from specchat.cli.terminal import FAILED, INTERRUPTED, say
from specchat.errors import InvalidOption, SpecchatError
from specchat.network.loopback import LOOPBACK, is_loopback
from specchat.options.declarations import WorkerOptions
from specchat.options.worker_address import WorkerAddress
from specchat.planning.device import Device
from specchat.planning.host_resources import num_cores
from specchat.wording import duration_text, size_text
from specchat.workers.health import HealthReport, OfferedDevice
from specchat.workers.health_server import HealthServer
from specchat.workers.rpc_protocol import RpcVersion
from specchat.workers.tcp_relay import Relay

T = TypeVar("T")

SHORT_SECONDS = 0.5
"""A client that stays shorter only looked at the offer, and is not reported."""
POLL_SECONDS = 0.5
OPEN = (
    "warning: anyone who can reach {address} can use these devices, read what is computed and crash"
    " the worker: there is no password and no encryption. Use ssh or WireGuard, see `specchat help"
    " more-than-one-machine`"
)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl+C; return the exit code of an earlier failure."""
    given = {field.key: getattr(arguments, field.key) for field in WorkerOptions.fields()}
    options = WorkerOptions(**{key: value for key, value in given.items() if value is not None})
    try:
        _serve(options, arguments.threads)
    except KeyboardInterrupt:
        _leave(INTERRUPTED)  # not `return`: the thread in native code would hold the process
    except SpecchatError as error:
        say(f"specchat: {error}")
        _leave(2 if isinstance(error, InvalidOption) else FAILED)
    except OSError as error:
        say(f"specchat: {(error.strerror or str(error)).lower()}")
        _leave(FAILED)
    return FAILED


def _leave(code: int) -> None:
    """End the process without waiting for native code."""
    with suppress(OSError, ValueError):
        sys.stdout.flush()
    os._exit(code)


def _serve(options: WorkerOptions, threads: int | None) -> None:
    address = WorkerAddress(options.worker_host.strip("[]"), options.worker_port)
    family, bound = _resolve(address)
    log = _ClientLog()
    from specchat.llama.library import build
    from specchat.llama.worker_server import WorkerServer

    server = WorkerServer(options.devices, log.follow)
    version: RpcVersion = (0, 0, 0)

    def report() -> HealthReport:
        return HealthReport(
            specchat=__version__,
            llama=build(),
            rpc=version,
            devices=tuple(map(_offered, server.devices)),
            clients=tuple(server.clients()),
        )

    threads = threads or num_cores()
    if family == socket.AF_INET:
        version = _bound(address.port, lambda: server.serve(bound[0], address.port, threads))
    else:  # llama.cpp listens with IPv4 alone
        listening = _bound(address.port, lambda: socket.create_server(bound[:2], family=family))
        inner = _free_port()
        version = server.serve(LOOPBACK, inner, threads)
        server.client_at = Relay(listening, LOOPBACK, inner).client_at
    health = _bound(
        address.health_port,
        lambda: HealthServer(family, (bound[0], address.health_port), report),
    )
    health.start()
    _announce(address, server.devices)
    if not is_loopback(bound[0]):
        say(OPEN.format(address=address))
    while server.is_serving:
        threading.Event().wait(POLL_SECONDS)
    raise OSError(0, "llama.cpp's server has ended: start it again")


def _resolve(address: WorkerAddress) -> tuple[int, tuple[Any, ...]]:
    """Return the family and the place to bind, IPv4 if there is a choice."""
    try:
        infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise InvalidOption(
            f"--host {address.host}: not an address of this machine; use {LOOPBACK}, 0.0.0.0 or ::1"
        ) from None
    addresses = sorted((family != socket.AF_INET, family, bound) for family, *_, bound in infos)
    return addresses[0][1], addresses[0][2]


def _bound(port: int, bind: Callable[[], T]) -> T:
    """Return what `bind` does; raises SpecchatError that names the port."""
    try:
        return bind()
    except PermissionError:
        raise SpecchatError(f"port {port} needs an administrator: choose another --port") from None
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise SpecchatError(
                f"port {port} is in use by another program: choose another --port"
            ) from None
        if error.errno == errno.EADDRNOTAVAIL:
            raise SpecchatError(
                "this machine does not have the address of --host: see `ip address`, or use"
                f" {LOOPBACK}"
            ) from None
        raise


def _free_port() -> int:
    with socket.create_server((LOOPBACK, 0)) as listening:
        return int(listening.getsockname()[1])


def _offered(device: Device) -> OfferedDevice:
    return OfferedDevice(device.name, device.description, device.kind, device.free, device.total)


def _announce(address: WorkerAddress, devices: Sequence[Device]) -> None:
    offered = ", ".join(
        f"{device.label} ({device.name}, {size_text(device.free)} free)" for device in devices
    )
    print(f"lending {offered}")
    print(f"listening on {address}, health on port {address.health_port}; Ctrl+C ends it")
    sys.stdout.flush()


@dataclass(slots=True)
class _Visit:
    """A client that is connected: since when, and whether that was printed."""

    client: str
    began: float
    is_printed: bool = False


class _ClientLog:
    """Prints a line for each client that comes and goes."""

    def __init__(self) -> None:
        self._visit: _Visit | None = None
        self._lock = threading.Lock()

    def follow(self, clients: Sequence[str]) -> None:
        """Follow the clients that are connected now; there is at most one."""
        with self._lock:
            visit, self._visit = self._visit, None
            if visit and visit.is_printed:
                seconds = duration_text(monotonic() - visit.began)
                print(f"{visit.client} disconnected after {seconds}", flush=True)
            if clients:
                self._visit = _Visit(clients[0], monotonic())
                timer = threading.Timer(SHORT_SECONDS, self._print, [self._visit])
                timer.daemon = True
                timer.start()

    def _print(self, visit: _Visit) -> None:
        with self._lock:
            if visit is self._visit:
                visit.is_printed = True
                print(f"{visit.client} connected", flush=True)
