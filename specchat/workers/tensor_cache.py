"""The tensor cache of a worker: weights it has received, so that they need not be sent again.

ggml's server names a file by a hash of what is in it, writes it in place whatever comes of that,
and later reads it back unchecked: a file cut short by a full disk or a kill would become wrong
weights, and one that vanishes while it is opened ends the server. So a new file is renamed at once,
checked and synchronized under that name, and only then given its own name and made read-only: a
file that can be written to was never finished. The server's own thread alone deletes files.
"""

import os
import queue
import re
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

from filelock import FileLock, Timeout

from specchat.errors import InvalidOption
from specchat.private_files import FOLDERS, make_private

ENTRY = re.compile(r"[0-9a-f]{16}")
UNFINISHED = ".part"
FINISHED_MODE = 0o400
SIZE = re.compile(rb"\[set_tensor\] .*\bsize: (\d+)")
SAVED = re.compile(rb"\[set_tensor\] saved to '.*?([0-9a-f]{16})'")
USED = re.compile(rb"\[set_tensor_hash\] .*\bhash: ([0-9a-f]{1,16})")
"""ggml's log of what it receives, writes and reads, with GGML_RPC_DEBUG set."""


class TensorCache:
    """A folder of tensors, limited in size; the oldest ones are deleted first."""

    def __init__(self, folder: Path, limit: int, on_trouble: Callable[[str], None]) -> None:
        """Open a folder. Raises OSError, and InvalidOption if another worker uses it.

        `on_trouble` is called with a line when the disk is full, at most once.
        """
        make_private(folder)
        folder.chmod(0o700)
        self.folder, self.limit = folder, limit
        self._on_trouble: Callable[[str], None] | None = on_trouble
        self._lock = FileLock(folder / "lock", mode=0o600)
        try:
            self._lock.acquire(timeout=0)
        except Timeout:
            raise InvalidOption(
                f"{folder} is in use by another worker: choose another --port"
            ) from None
        self._announced = 0
        self._pending: dict[str, int] = {}
        self._new: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        for path in list(folder.iterdir()):
            if path.suffix == UNFINISHED or (ENTRY.fullmatch(path.name) and not _is_finished(path)):
                path.unlink()
        self._evict(0)
        threading.Thread(target=self._finish_all, name="tensor cache", daemon=True).start()

    @property
    def num_bytes(self) -> int:
        """The size of all files, finished or not."""
        return sum(size for _, size, _ in self._entries()) + sum(self._pending.values())

    def follow(self, line: bytes) -> None:
        """Follow a line of ggml's log, on the thread that wrote it."""
        if not line.startswith(b"[set_tensor"):
            return
        if found := SIZE.match(line):
            self._announced = int(found[1])
        elif found := SAVED.match(line):
            self._take(found[1].decode(), self._announced)
        elif found := USED.match(line):
            with suppress(OSError):
                os.utime(self.folder / found[1].decode().zfill(16))

    def _take(self, name: str, size: int) -> None:
        """Take over a file that ggml has written; it may not be closed yet."""
        path = self.folder / name
        try:
            if size > self.limit:
                path.unlink()
                return
            path.replace(path.with_suffix(UNFINISHED))
            self._pending[name] = size
            self._evict(0)
        except OSError as error:  # ggml has written nothing
            self._report(error)
            return
        self._new.put((name, size))

    def _finish_all(self) -> None:
        while True:
            name, size = self._new.get()
            path = self.folder / name
            try:
                _finish(path, size)
            except OSError as error:
                self._report(error)
                with suppress(OSError):
                    path.with_suffix(UNFINISHED).unlink()
            self._pending.pop(name, None)

    def _evict(self, wanted: int) -> None:
        """Delete the files used longest ago until some bytes fit below the limit."""
        excess = self.num_bytes + wanted - self.limit
        for _, size, path in sorted(self._entries()):
            if excess <= 0:
                return
            path.unlink(missing_ok=True)
            excess -= size

    def _entries(self) -> Iterator[tuple[float, int, Path]]:
        """Yield when each finished file was last used, its size and its path."""
        for path in list(self.folder.iterdir()):
            with suppress(OSError):
                found = path.stat()
                if ENTRY.fullmatch(path.name):
                    yield found.st_mtime, found.st_size, path

    def _report(self, error: OSError) -> None:
        tell, self._on_trouble = self._on_trouble, None
        if tell:
            reason = (error.strerror or str(error)).lower()
            tell(f"the tensor cache keeps no more weights ({reason}): free space in {self.folder}")


def cache_folder(port: int) -> Path:
    """Return the folder of the worker on a port, of which there is one on this machine."""
    return FOLDERS.user_cache_path / "tensors" / str(port)


def clear_caches() -> int:
    """Delete the tensors of all workers that are not running; return their size in bytes."""
    num_bytes = 0
    for folder in cache_folder(0).parent.glob("*"):
        with suppress(Timeout, OSError), FileLock(folder / "lock", timeout=0, mode=0o600):
            for path in list(folder.iterdir()):
                if path.name != "lock":
                    num_bytes += path.stat().st_size
                    path.unlink()
    return num_bytes


def _finish(path: Path, size: int) -> None:
    """Give a file its name once all of it is on the disk; raises OSError if it is not."""
    half = path.with_suffix(UNFINISHED)
    with half.open("rb") as file:
        os.fsync(file.fileno())
        if os.fstat(file.fileno()).st_size != size:
            raise OSError(0, "no space was left")
    half.chmod(FINISHED_MODE)
    half.replace(path)


def _is_finished(path: Path) -> bool:
    return path.is_file() and path.stat().st_mode & 0o777 == FINISHED_MODE
