"""The devices of workers, as llama.cpp sees them.

ggml keeps what it knows of a server until the process ends. Its devices are never registered there,
because llama.cpp uses every registered device: models are given theirs one by one.
"""

import ctypes
import socket
from collections.abc import Sequence
from contextlib import AbstractContextManager
from functools import cache

from specchat.errors import WorkerUnavailable
from specchat.llama.device_list import call_backend, gpu_handles
from specchat.llama.library import start
from specchat.llama.rpc_library import on_abort, require_rpc
from specchat.network.loopback import LOOPBACK
from specchat.options.worker_address import WorkerAddress, worker_address
from specchat.workers.tcp_relay import Relay
from specchat.workers.worker_probe import WorkerReport
from specchat.workers.worker_watch import WorkerWatch

OF_RPC = b"ggml-rpc"
"""Part of the name of the file in which ggml ends a process that has lost a server."""

_handles: dict[str, list[int]] = {}
"""The devices of the workers this process is connected to, by address."""
_watches: list[WorkerWatch] = []
"""The watches that report a lost worker."""
_relays: dict[WorkerAddress, Relay] = {}
"""Relays to workers that have IPv6 addresses alone; ggml may connect again at any time."""


class WorkerConnections(AbstractContextManager["WorkerConnections"]):
    """Open connections to workers, which keeps them reserved: each serves one client at a time."""

    def __init__(self, reports: Sequence[WorkerReport], watch: WorkerWatch) -> None:
        """Connect. Raises WorkerUnavailable if llama.cpp has no RPC backend."""
        self._library = require_rpc()
        self._watch = watch
        _watches.append(watch)
        _explain_aborts()
        self._backends: list[tuple[str, object]] = []
        start()
        try:
            for report in reports:
                with watch.connecting(report.address):
                    self._connect(report)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Let the workers serve other clients."""
        if self._watch in _watches:
            _watches.remove(self._watch)
        while self._backends:
            name, backend = self._backends.pop()
            del _handles[name]
            call_backend("free", None, backend)

    def __exit__(self, *_: object) -> None:
        self.close()

    def _connect(self, report: WorkerReport) -> None:
        endpoint = _endpoint_of(report.address).encode()
        backend = ctypes.c_void_p(self._library.ggml_backend_rpc_init(endpoint, 0))
        server = ctypes.c_void_p(self._library.ggml_backend_rpc_add_server(endpoint))
        count = call_backend("reg_dev_count", ctypes.c_size_t, server)
        numbers = range(count)
        handles = [
            call_backend("reg_dev_get", ctypes.c_void_p, server, ctypes.c_size_t(number))
            for number in numbers
        ]
        _handles[str(report.address)] = handles
        self._backends.append((str(report.address), backend))
        if count != len(report.devices):  # ggml knows those of the first time
            raise WorkerUnavailable(
                f"the worker {report.address} offers other devices than before: restart specchat"
            )


def devices_for(workers: Sequence[str]) -> "ctypes.Array[ctypes.c_void_p]":
    """Return the devices for a model: those of workers, then this machine's GPUs, then NULL."""
    handles = [handle for name in workers for handle in _handles[str(worker_address(name))]]
    handles += [handle.value or 0 for handle in gpu_handles()]
    return (ctypes.c_void_p * (len(handles) + 1))(*handles, None)


def _endpoint_of(address: WorkerAddress) -> str:
    """Return a worker's address as ggml reads it: IPv4 in numbers, through a relay if need be."""
    infos = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM)
    for family, *_, socket_address in infos:
        if family == socket.AF_INET:
            return f"{socket_address[0]}:{address.port}"
    if address not in _relays:
        listening = socket.create_server((LOOPBACK, 0))
        _relays[address] = Relay(listening, address.host, address.port)
    return f"{LOOPBACK}:{_relays[address].port}"


@cache
def _explain_aborts() -> None:
    """Name the worker whose loss makes ggml end the process; done once."""

    def explain(message: bytes) -> None:
        for watch in list(_watches) if OF_RPC in message else ():
            watch.connection_lost()

    on_abort(explain)
