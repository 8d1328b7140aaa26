"""The network trap, which every Python process of a test runs first.

It refuses connections beyond loopback and records them in the file that NETWORK_TRAP names. An
audit hook cannot be removed, and a recorded attempt cannot be undone.
"""

from __future__ import annotations

import ipaddress
import os
import sys
from collections.abc import Callable
from typing import Any

LOCAL_NAMES = {None, "", "localhost", b"localhost", b""}


def set_trap(file: str) -> None:
    """Refuse connections beyond loopback from now on, and record every attempt."""

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
    """Return the host of a socket's address; None for addresses on this machine, such as paths."""
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
    """Return True if a host is this machine."""
    if host in LOCAL_NAMES:
        return True
    text = host.decode("ascii", "replace") if isinstance(host, bytes) else str(host)
    try:
        return ipaddress.ip_address(text.partition("%")[0]).is_loopback
    except ValueError:  # a name, which only another machine could resolve
        return False


if os.environ.get("NETWORK_TRAP"):
    set_trap(os.environ["NETWORK_TRAP"])
