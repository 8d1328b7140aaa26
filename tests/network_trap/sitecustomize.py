"""What every Python process of a test runs first: nothing may leave the machine.

Whatever a process tries to reach beyond loopback is refused, and written into the file that
NETWORK_TRAP names. Code cannot take an audit hook off again, nor catch what was written.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Callable
from typing import Any

LOCAL_NAMES = {None, "", "localhost", b"localhost", b""}


def set_trap(file: str) -> None:
    """Refuse from now on whatever leads beyond loopback, and write down what was tried."""

    def look(event: str, arguments: tuple[Any, ...]) -> None:
        find = HOSTS.get(event)
        if find is None or is_local(host := find(arguments)):
            return
        descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        os.write(descriptor, f"{event} {host!r} by {sys.argv}\n".encode())
        os.close(descriptor)
        raise ConnectionRefusedError(f"the network trap refuses {host!r}")

    sys.addaudithook(look)


def of_address(arguments: tuple[Any, ...]) -> object:
    """Return the host a socket is to reach; an address that is no pair is of the machine itself."""
    address = arguments[1]
    return address[0] if isinstance(address, tuple) else None


def first(arguments: tuple[Any, ...]) -> object:
    """Return the name that is looked up."""
    return arguments[0]


HOSTS: dict[str, Callable[[tuple[Any, ...]], object]] = {
    "socket.connect": of_address,
    "socket.sendto": of_address,
    "socket.sendmsg": of_address,
    "socket.getaddrinfo": first,
    "socket.gethostbyname": first,
    "socket.gethostbyaddr": first,
    "socket.getnameinfo": lambda arguments: arguments[0][0],
}


def is_local(host: object) -> bool:
    """Say whether a host is this machine."""
    if host in LOCAL_NAMES:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:  # a name, which somebody beyond would have to be asked about
        return False


if os.environ.get("NETWORK_TRAP"):
    set_trap(os.environ["NETWORK_TRAP"])
