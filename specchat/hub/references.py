"""References to files on the hub, with what is known about them before a download.

No name from a user, a catalogue or a hub can become a path outside the cache.
"""

import os
import re
from dataclasses import dataclass, field, replace
from typing import Any, Self
from urllib.parse import urlsplit

from specchat.errors import DownloadFailed
from specchat.gguf.split_files import split_names
from specchat.network.loopback import is_loopback
from specchat.safe_text import without_password

HUB = "https://huggingface.co"
MAIN = "main"
NAME = r"[A-Za-z0-9_](?:[A-Za-z0-9_.-]{0,94}[A-Za-z0-9_])?"
REPOSITORY = re.compile(rf"{NAME}/{NAME}")
FORBIDDEN = re.compile(r"--|\.\.|\.git$")
SEGMENT = re.compile(r"[\w.+@=,()\[\]'&!#% -]*[\w+@=,()\[\]'&!#%-]")
"""The name of a revision or of a file in a repository, in any script: no "..", and no colon (a
drive)."""

LONGEST_NAME = 240
"""Bytes; file systems allow 255, which must include the suffix of a temporary file."""

PACKAGE = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?")
VERSION = re.compile(r"\d[A-Za-z0-9.!+_-]*")


@dataclass(frozen=True, slots=True)
class Wheel:
    """A package of the Python package index whose wheel contains a copy of a file."""

    package: str
    version: str
    file: str

    def __post_init__(self) -> None:
        """Raise ValueError for names that pip could misread."""
        if not PACKAGE.fullmatch(self.package) or not VERSION.fullmatch(self.version):
            raise ValueError(f"{self} is not the name and the exact version of a package")
        require_path(self.file, "file")

    def __str__(self) -> str:
        """Return the package in pip's notation."""
        return f"{self.package}=={self.version}"


@dataclass(frozen=True, slots=True)
class Reference:
    """A GGUF file in a repository; pinned if its commit and sha256 are known.

    A pinned file may have a wheel as a second source of the same bytes.
    """

    repository: str
    file: str
    revision: str = MAIN
    size: int | None = None
    sha256: str | None = None
    wheel: Wheel | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        """Raise ValueError for names and numbers that the hub does not allow."""
        require_repository(self.repository)
        require_path(self.file, "file")
        require_path(self.revision, "revision")
        if not self.file.lower().endswith(".gguf"):
            raise ValueError(f"{self.file} is not a GGUF file: its name must end in .gguf")
        if self.size is not None and not (type(self.size) is int and self.size > 0):
            raise ValueError(f"{self.file}: size must be a number of bytes, not {self.size!r}")
        if self.sha256 is not None and not is_sha256(self.sha256):
            raise ValueError(f"{self.file}: {self.sha256!r} is not a sha256 (64 digits 0-9a-f)")
        if self.wheel and not (is_commit(self.revision) and self.size and self.sha256):
            raise ValueError(f"{self.file}: a wheel needs revision (a commit), bytes and sha256")

    def __str__(self) -> str:
        """Return the reference as a user would type it."""
        return f"{self.repository}/{self.file}"

    @property
    def name(self) -> str:
        """The file's name without its folders."""
        return self.file.rpartition("/")[2]

    @property
    def parts(self) -> tuple[Self, ...]:
        """The file itself, or all parts of a split GGUF in order."""
        return tuple(
            self
            if file == self.file
            else replace(self, file=file, size=None, sha256=None, wheel=None)
            for file in split_names(self.file)
        )


def is_commit(revision: str) -> bool:
    """Return True for a full commit hash, which never changes."""
    return bool(re.fullmatch(r"[0-9a-f]{40}", revision))


def is_sha256(text: str) -> bool:
    """Return True for a sha256 in lower-case hexadecimal."""
    return bool(re.fullmatch(r"[0-9a-f]{64}", text))


def endpoint() -> str:
    """Return the URL of the hub, or of the mirror that HF_ENDPOINT names.

    Without a scheme it is taken for https, on this machine for http. Raises DownloadFailed for what
    is not the address of a server.
    """
    text = os.environ.get("HF_ENDPOINT", "").strip(" \t\r\n\"'")
    if not text:
        return HUB
    scheme, separator, rest = text.rpartition("://")
    try:
        parts = urlsplit(f"https://{rest}")
        host = "" if parts.port == 0 else parts.hostname or ""
    except ValueError:  # a port out of range, or half an IPv6 address
        host, parts = "", urlsplit("")
    usual = "http" if is_loopback(host) else "https"
    used = scheme.lower() if separator else usual
    if not host or used not in {"http", "https"} or re.search(r"[\s?#]", text):
        raise DownloadFailed(
            f"HF_ENDPOINT is {scheme}{separator}{rest.rpartition('@')[2]}, which is not the address"
            f" of a hub: write it like {HUB}, or unset it"
        )
    return f"{used}://{parts.netloc}{parts.path}".rstrip("/")


def is_mirror() -> bool:
    """Return True if HF_ENDPOINT names another server than Hugging Face's."""
    return endpoint() != HUB


def shown_endpoint() -> str:
    """Return the URL of the hub for display, without a password."""
    return without_password(endpoint())


def require_repository(name: str) -> str:
    """Return the name of a repository, org/repo. Raises ValueError for an invalid one."""
    if not REPOSITORY.fullmatch(name) or FORBIDDEN.search(name):
        raise ValueError(f"{name!r} is an invalid Hugging Face repository name (org/repo)")
    return name


def require_path(path: Any, what: str) -> None:
    """Raise ValueError for a path that could leave its folder."""
    names = path.split("/") if isinstance(path, str) else [""]
    for name in names:
        if not SEGMENT.fullmatch(name) or name[0] == " " or len(name.encode()) > LONGEST_NAME:
            raise ValueError(f"{path!r} is an invalid Hugging Face {what} name")
