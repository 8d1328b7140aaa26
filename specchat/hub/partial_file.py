"""A partly downloaded file, which several runs can complete."""

import hashlib
import os
from collections.abc import Callable
from io import FileIO
from pathlib import Path

from specchat.hub.client import HubFile

PIECE_BYTES = 1 << 20
SHA1_DIGITS = 40


class Checksums:
    """Running checksums of a file from the hub; small files have git's SHA-1.

    Some mirrors state the SHA-1 of the bytes alone instead, and some state none.
    """

    def __init__(self, file: HubFile) -> None:
        self._hub_file = file
        self._is_sha1 = len(file.etag) == SHA1_DIGITS
        self._sha256 = hashlib.sha256()
        head = f"blob {file.size}\0".encode()
        self._sha1 = [hashlib.sha1(start, usedforsecurity=False) for start in (head, b"")]

    def update(self, content: bytes | memoryview) -> None:
        """Update the checksums with the next bytes."""
        self._sha256.update(content)
        for checksum in self._sha1 if self._is_sha1 else ():
            checksum.update(content)

    def are_right(self) -> bool:
        """Return True if the whole file matches the checksums of the hub and of the pin.

        If neither is known, the file is accepted as it is.
        """
        sha256, expected = self._sha256.hexdigest(), self._hub_file.reference.sha256
        computed = [checksum.hexdigest() for checksum in self._sha1] if self._is_sha1 else [sha256]
        is_as_stated = self._hub_file.etag in computed or not self._hub_file.has_checksum
        return is_as_stated and expected in {None, sha256}


class PartialFile:
    """The beginning of a file that is being downloaded; bytes are only appended.

    The next run can continue it however this one ends; the checksum of the whole file decides.
    """

    def __init__(self, path: Path, file: HubFile) -> None:
        """Open the file as an earlier run left it, or create it."""
        self._path = path
        self._hub_file = file
        if path.is_symlink():
            path.unlink()  # a link would lead the download elsewhere
        self._file = FileIO(path, "a+")  # unbuffered: counted bytes are written
        self._reset()

    def resume(self, on_progress: Callable[[], None]) -> None:
        """Hash what an earlier run left, to resume at its end; start over if it is too long."""
        if os.fstat(self._file.fileno()).st_size > self._hub_file.size:
            self.restart()
        self._file.seek(0)
        while piece := self._file.read(PIECE_BYTES):
            self._count(piece)
            on_progress()

    def add(self, content: bytes) -> None:
        """Append bytes."""
        rest = memoryview(content)
        while rest:
            num_written = self._file.write(rest)
            self._count(rest[:num_written])
            rest = rest[num_written:]

    def restart(self) -> None:
        """Discard the content."""
        self._file.truncate(0)
        self._reset()

    def finish(self, destination: Path) -> None:
        """Sync the file to the disk and move it to its final path."""
        os.fsync(self._file.fileno())
        self._file.close()
        self._path.replace(destination)

    def close(self) -> None:
        """Close the file, and delete it if it is empty."""
        if not self._file.closed:
            self._file.close()
            if not self.size:
                self._path.unlink()

    def _reset(self) -> None:
        self.size = 0
        self.checksums = Checksums(self._hub_file)

    def _count(self, content: bytes | memoryview) -> None:
        self.size += len(content)
        self.checksums.update(content)
