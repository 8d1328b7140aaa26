"""Addresses of workers: HOST:PORT, with IPv6 addresses in brackets."""

import ipaddress
import re
from dataclasses import dataclass

from specchat.network.loopback import is_loopback

USUAL_PORT = 50052
"""llama.cpp's port for its RPC backend."""
LARGEST_PORT = 65534
"""The port after a worker's is that of its health."""
LABEL = r"[a-z0-9_](?:[a-z0-9_-]{0,61}[a-z0-9_])?"
NAME = re.compile(rf"(?=.{{1,254}}\Z){LABEL}(?:\.{LABEL})*\.?")
BRACKETED = re.compile(r"\[([^\[\]]+)\](?::(\d{1,5}))?")


@dataclass(frozen=True, slots=True)
class WorkerAddress:
    """The address where a worker listens; `host` has no brackets."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.shown_host}:{self.port}"

    @property
    def shown_host(self) -> str:
        """The host as it stands before a port."""
        return f"[{self.host}]" if ":" in self.host else self.host

    @property
    def is_here(self) -> bool:
        """Whether it is an address of this machine alone."""
        return is_loopback(self.host)

    @property
    def health_port(self) -> int:
        """The port on which a worker of specchat reports its health."""
        return self.port + 1


def worker_address(text: str) -> WorkerAddress:
    """Return the address in a text such as "10.0.0.2" or "[::1]:50052"; raises ValueError."""
    if match := BRACKETED.fullmatch(text.strip()):
        host, port = str(ipaddress.IPv6Address(match[1])), match[2]
    else:
        host, _, port = text.strip().lower().partition(":")
        if not NAME.fullmatch(host) or (text.count(":") and not port.isdecimal()):
            raise ValueError(text)
    number = int(port) if port else USUAL_PORT
    if not 0 < number <= LARGEST_PORT:
        raise ValueError(text)
    return WorkerAddress(host, number)
