"""The address of a server, as users write it and as requests need it."""

import os
import re
from dataclasses import dataclass, field
from urllib.parse import SplitResult, urlsplit

from specchat.errors import InvalidOption
from specchat.network.loopback import is_loopback
from specchat.options.declarations import ServerOptions

UNIX = "unix:"
BEHIND = re.compile(r"(/v1)*(/chat)?(/completions|/models|/responses)?/?$", re.IGNORECASE)
"""The version and the endpoints that people copy together with the address."""
ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 -- nothing is bound to it
"""Addresses that servers print as listening on, and the ones that reach them."""
SCHEMES = ("http", "https")
HOST_AND_REST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[\w.-]+)(:\d+)?(/.*)?")
LONGEST_KEY = 4096
EXAMPLE = "such as http://127.0.0.1:8080"


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """An OpenAI-compatible server, at `base` with `/v1` after it.

    `unix_path` is that of a Unix socket, "" for TCP. `model` is the model to ask for, "" for the
    server's first. `name` is what the settings call the server, "" for none. The `key` is never
    shown; `key_place` says where the key comes from, or where to put one.
    """

    base: str
    unix_path: str = ""
    model: str = ""
    name: str = ""
    key: str = field(default="", repr=False)
    key_place: str = "SPECCHAT_API_KEY"

    @property
    def url(self) -> str:
        """The address in full, which `parse_address` reads."""
        return UNIX + self.unix_path if self.unix_path else self.base

    @property
    def shown(self) -> str:
        """The address as people write it: without http:// and /v1."""
        return self.url.removeprefix("http://")

    @property
    def host(self) -> str:
        """The name or the number of the host."""
        return urlsplit(self.base).hostname or ""

    @property
    def is_here(self) -> bool:
        """Whether requests stay on this machine."""
        return bool(self.unix_path) or is_loopback(self.host)


def is_key(text: str) -> bool:
    """Return True for a text that can be sent as a key, or an empty one."""
    return len(text) <= LONGEST_KEY and text.isascii() and text.isprintable() and " " not in text


def parse_address(text: str) -> ServerAddress:
    """Return the server that a text names: a URL with or without its scheme, path and port.

    `unix:PATH` is a Unix socket. Raises InvalidOption for anything else, and for an address
    with a password in it, which others could see.
    """
    text = text.strip()
    if text.startswith(UNIX):
        if not text.removeprefix(UNIX):
            raise InvalidOption(f"{text}: write unix:PATH, the path of a socket")
        path = os.path.expanduser(text.removeprefix(UNIX))  # no error without a home
        return ServerAddress("http://localhost", unix_path=path)
    if "@" in text.partition("?")[0]:
        raise InvalidOption(
            "the server's address has a password in it: set SPECCHAT_API_KEY instead"
        )
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "http", text
    if scheme.lower() not in SCHEMES:
        raise InvalidOption(f"{text}: a server's address begins with http:// or https://")
    if not HOST_AND_REST.fullmatch(rest.partition("?")[0].partition("#")[0]):
        raise InvalidOption(f"{text} is not the address of a server: write one {EXAMPLE}")
    try:
        parts = urlsplit(f"{scheme.lower()}://{rest}")
        port = parts.port
    except ValueError:
        raise InvalidOption(f"{text}: the port must be from 1 to 65535") from None
    return ServerAddress(_base(parts, port, has_scheme=bool(separator)))


def _base(parts: SplitResult, port: int | None, *, has_scheme: bool) -> str:
    """Return scheme, host, port and path without the version and the endpoints after it."""
    path = BEHIND.sub("", re.sub("/+", "/", parts.path))
    if port is None and not has_scheme and is_loopback(parts.hostname or ""):
        port = ServerOptions().port  # where `specchat serve` listens
    name = ANY_ADDRESS.get(parts.hostname or "", parts.hostname or "")
    host = f"[{name}]" if ":" in name else name
    return f"{parts.scheme}://{host}{f':{port}' if port is not None else ''}{path}"
