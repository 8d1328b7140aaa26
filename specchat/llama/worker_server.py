"""Serves this machine's devices to another: ggml's RPC server, in a thread that never returns.

ggml prints on standard output when a client connects or disconnects; a pipe catches that. It serves
one client at a time, and does not notice when a client's machine is gone: the system's keep-alive
does.
"""

import ctypes
import os
import socket
import stat
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from time import monotonic

from specchat.errors import InvalidOption
from specchat.llama.device_list import offered_handles
from specchat.llama.library import start
from specchat.llama.rpc_library import require_rpc
from specchat.network.keep_alive import keep_alive
from specchat.planning.device import Device, gpus_of
from specchat.workers.rpc_protocol import NotRpc, RpcVersion, rpc_connection

CAME, WENT = b"Accepted client connection", b"Client connection closed"
DESCRIPTORS = "/dev/fd"
"""Lists the files and sockets of a process, where the system has it."""
UNKNOWN = "a client"
START_SECONDS = 30.0
POLL_SECONDS = 0.05


class WorkerServer:
    """The devices that are offered, and the thread that serves them.

    `on_clients` is called with the clients' addresses whenever one has come or gone.
    """

    def __init__(self, names: Sequence[str], on_clients: Callable[[list[str]], None]) -> None:
        """Find the devices of these names, the GPUs if there are none, else the CPU.

        Raises WorkerUnavailable without ggml's RPC backend, InvalidOption for an unknown name.
        """
        self._library = require_rpc()
        start()
        self._handles = _choose(names)
        self._on_clients = on_clients
        self._port = 0
        self.client_at: Callable[[int], str | None] = lambda _: None
        """Returns the client behind a connection from a local port, if a relay passes it on."""
        self._thread: threading.Thread | None = None

    @property
    def devices(self) -> list[Device]:
        """The devices with the memory that is free now."""
        wanted = {handle.value for handle in self._handles}
        return [device for handle, device in offered_handles() if handle.value in wanted]

    def serve(self, host: str, port: int, threads: int) -> RpcVersion:
        """Serve on an IPv4 address in numbers, and return the version of the protocol.

        Raises OSError if the port cannot be bound.
        """
        with socket.create_server((host, port)):  # ggml does not say why it cannot
            pass
        self._port = port
        array = (ctypes.c_void_p * len(self._handles))(*self._handles)
        no_cache = None  # ggml reads cached weights back unchecked: cut short, they would be wrong
        arguments = (f"{host}:{port}".encode(), no_cache, threads, len(self._handles), array)
        _read_output(self._hear)
        self._thread = threading.Thread(
            target=self._library.ggml_backend_rpc_start_server, args=arguments, daemon=True
        )
        self._thread.start()
        return self._wait("127.0.0.1" if host == "0.0.0.0" else host)  # noqa: S104  # any address

    @property
    def is_serving(self) -> bool:
        """Whether the thread still runs; it ends if no client can be accepted."""
        return self._thread is not None and self._thread.is_alive()

    def clients(self) -> list[str]:
        """Return the addresses of the clients that are connected."""
        addresses = []
        for connection in _connections(self._port):
            with connection, suppress(OSError):
                host, port, *_ = connection.getpeername()
                addresses.append(self.client_at(port) or str(host))
        return addresses

    def _wait(self, host: str) -> RpcVersion:
        deadline = monotonic() + START_SECONDS
        while self.is_serving and monotonic() < deadline:
            with (
                suppress(OSError, NotRpc),
                rpc_connection(host, self._port, START_SECONDS, START_SECONDS) as rpc,
            ):
                return rpc.hello()
            threading.Event().wait(POLL_SECONDS)
        raise OSError(0, "llama.cpp cannot serve these devices")

    def _hear(self, line: bytes) -> None:
        if line == CAME:
            for connection in _connections(self._port):
                with connection:
                    keep_alive(connection)
            self._on_clients(self.clients() or [UNKNOWN])
        elif line == WENT:
            self._on_clients([])


def _choose(names: Sequence[str]) -> list[ctypes.c_void_p]:
    offered = offered_handles()
    by_name = {device.name.lower(): handle for handle, device in offered}
    for name in names:
        if name.lower() not in by_name:
            available = ", ".join(device.name for _, device in offered)
            raise InvalidOption(f"--devices {name}: unknown device; this machine has {available}")
    if names:
        return [by_name[name.lower()] for name in dict.fromkeys(names)]
    gpus = gpus_of(device for _, device in offered)
    return [handle for handle, device in offered if device in gpus] or [offered[-1][0]]


def _read_output(hear: Callable[[bytes], None]) -> None:
    """Pass what native code prints to a function; Python's own output stays where it was."""
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, encoding="utf-8", errors="replace")
    os.dup2(writing, 1)
    os.close(writing)

    def read() -> None:
        with os.fdopen(reading, "rb") as lines:
            for line in lines:
                hear(line.strip())

    threading.Thread(target=read, name="output", daemon=True).start()


def _connections(port: int) -> Iterator[socket.socket]:
    """Yield copies of this process's connected sockets with a local port."""
    names: list[str] = []
    with suppress(OSError):
        names = os.listdir(DESCRIPTORS)  # noqa: PTH208  # numbers
    for name in names:
        with suppress(OSError):
            if not stat.S_ISSOCK(os.fstat(int(name)).st_mode):
                continue
            copy = socket.socket(fileno=os.dup(int(name)))
            with suppress(OSError):
                if copy.getsockname()[1] == port and copy.getpeername():
                    yield copy
                    continue
            copy.close()
