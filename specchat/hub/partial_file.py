"""A file that grows from its beginning to its end, over several runs if need be."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path
from types import TracebackType
from typing import Self

from specchat.hub.client import Found

__all__ = ["Part"]

PIECE = 1 << 20
SHA1_DIGITS = 40


class Part:
    """What has arrived of a file. Bytes are only ever added to its end, so that it can be kept.

    Whatever ends a run, a crash of the machine aside, what is left is the beginning of the file;
    and in the end the checksum of the whole decides.
    """

    def __init__(self, path: Path, found: Found) -> None:
        """Open it, empty or as an earlier run left it."""
        self._path = path
        self._found = found
        self._file = FileIO(path, "a+")  # unbuffered: what is counted is with the operating system
        self.size = 0
        self._count_anew()

    def __enter__(self) -> Self:
        """Let `with` close it."""
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Close it, and keep it."""
        self._file.close()

    def read_kept(self, tell: Callable[[], None]) -> None:
        """Count what an earlier run left; what is longer than the file is no part of it."""
        if os.fstat(self._file.fileno()).st_size > self._found.size:
            self.restart()
        self._file.seek(0)
        while piece := self._file.read(PIECE):
            self._count(piece)
            tell()

    def add(self, content: bytes) -> None:
        """Write bytes to its end."""
        rest = memoryview(content)
        while rest:
            num_written = self._file.write(rest)
            self._count(rest[:num_written])
            rest = rest[num_written:]

    def restart(self) -> None:
        """Throw away what is here."""
        self._file.truncate(0)
        self.size = 0
        self._count_anew()

    def is_right(self) -> bool:
        """Say whether it is the whole file, bit by bit, by the hub's checksum and by the pin's."""
        sha256, expected = self._sha256.hexdigest(), self._found.reference.sha256
        ours = self._git.hexdigest() if self._git else sha256
        return ours == self._found.etag and expected in {None, sha256}

    def finish(self, place: Path) -> None:
        """Move it to where it belongs, once the disk has all of it."""
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.replace(place)

    def drop(self) -> None:
        """Delete it."""
        self._file.close()
        self._path.unlink()

    def _count_anew(self) -> None:
        """Begin the checksums; small files have git's own: SHA-1 over their size and content."""
        self._sha256 = hashlib.sha256()
        is_git = len(self._found.etag) == SHA1_DIGITS
        head = f"blob {self._found.size}\0".encode()
        self._git = hashlib.sha1(head, usedforsecurity=False) if is_git else None

    def _count(self, content: bytes | memoryview) -> None:
        self.size += len(content)
        self._sha256.update(content)
        if self._git:
            self._git.update(content)
