"""The proxy that the environment names for a request, checked before it is used.

Requests to this machine take none. The names of the variables are kept, because a message that
names one can be acted on. `network_errors` words what a proxy itself refuses.
"""

import importlib.util
import ipaddress
import os
import re
import shlex
import sys
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import urlsplit

from specchat.errors import DownloadFailed
from specchat.network.loopback import is_loopback

SCHEMES = ("http", "https", "socks5", "socks5h")
SYSTEM = "the system's settings"
"""Where a proxy comes from that no variable names, on macOS and Windows."""

FORM = "http://HOST:PORT"


class NetworkMisconfigured(DownloadFailed):
    """Raised where a variable of the environment keeps every request from being sent."""


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy, and the variable that names it; the address may contain a password."""

    variable: str
    url: str = field(repr=False)

    @property
    def shown(self) -> str:
        """The address without a password, and where it comes from."""
        return f"{self.address} ({self.variable})"

    @property
    def address(self) -> str:
        """The address without a user and a password."""
        scheme, separator, rest = self.url.rpartition("://")
        text = f"{scheme}{separator}{rest.rpartition('@')[2]}"
        return "".join(letter if letter.isprintable() else "?" for letter in text)

    @property
    def has_login(self) -> bool:
        """Whether the address contains a user."""
        return "@" in self.url

    def checked(self) -> str:
        """Return the address to use. Raises NetworkMisconfigured for one that cannot be used."""
        scheme, separator, rest = self.url.partition("://")
        scheme, rest = (scheme.lower(), rest) if separator else ("http", self.url)
        if scheme == "socks":  # as GNOME writes it
            scheme = "socks5"
        if scheme not in SCHEMES or not _has_host(f"{scheme}://{rest}"):
            raise NetworkMisconfigured(
                f"{self.variable} is {self.address}, which specchat cannot use as a proxy: set it"
                f" to {FORM} or socks5://HOST:PORT, or unset it"
            )
        if scheme.startswith("socks") and importlib.util.find_spec("socksio") is None:
            raise NetworkMisconfigured(
                f"{self.variable} is {self.address}, and a SOCKS proxy needs the package socksio:"
                f" run `{install_command('socksio')}`, or set {self.variable} to {FORM}"
            )
        return f"{scheme}://{rest}"


def find_proxy(url: str) -> Proxy | None:
    """Return the proxy for a URL; None if there is none, or if the URL leads to this machine."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    port = parts.port or (443 if parts.scheme == "https" else 80)
    if is_loopback(host) or _is_excepted(host, port):
        return None
    for name in (f"{parts.scheme}_proxy", "all_proxy"):
        text = _value(name)
        if text[1]:
            return Proxy(*text)
    return _of_system(parts.scheme, host)


def install_command(package: str) -> str:
    """Return the command that installs a package beside specchat."""
    folders = Path(sys.prefix).parts
    if "pipx" in folders:
        return f"pipx inject specchat {package}"
    if folders[-3:-1] == ("uv", "tools"):
        return f"uv tool install --with {package} specchat"
    python = shlex.quote(sys.executable)
    if importlib.util.find_spec("pip") is None:
        return f"uv pip install --python {python} {package}"
    return f"{python} -m pip install {package}"


def _value(name: str) -> tuple[str, str]:
    """Return a variable and its text; in small letters it comes first, even if it is empty."""
    variable = name if name in os.environ else name.upper()
    return variable, os.environ.get(variable, "").strip()


def _of_system(scheme: str, host: str) -> Proxy | None:
    """Return the proxy of the system's settings, which count if no variable is set."""
    if sys.platform not in {"darwin", "win32"}:
        return None
    from urllib.request import getproxies, getproxies_environment, proxy_bypass

    if getproxies_environment() or proxy_bypass(host):
        return None
    proxies = getproxies()
    text = proxies.get(scheme) or proxies.get("all")
    return Proxy(SYSTEM, text) if text else None


def _is_excepted(host: str, port: int) -> bool:
    """Return True for a host that NO_PROXY names: itself, its domain, its network, or all."""
    host = host.lower().rstrip(".")
    entries = filter(None, re.split(r"[\s,]+", _value("no_proxy")[1].lower()))
    return any(_excepts(entry, host, port) for entry in entries)


def _excepts(entry: str, host: str, port: int) -> bool:
    name, has_port, asked = entry.rpartition(":")
    if has_port and asked.isdigit() and (name.endswith("]") or ":" not in name):
        return asked == str(port) and _excepts(name, host, port)
    name = entry.strip("[]")
    domain = name.removeprefix("*").lstrip(".")
    if entry == "*" or host in {name, domain} or (domain and host.endswith(f".{domain}")):
        return True
    try:
        return ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False)
    except ValueError:  # a name, not an address
        return False


def _has_host(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and parts.port != 0 and not re.search(r"\s", url)
    except ValueError:  # a port out of range, or half an IPv6 address
        return False
