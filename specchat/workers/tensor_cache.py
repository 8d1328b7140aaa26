"""The tensor cache of a worker: weights it has received, so that they need not be sent again.

ggml's server names a file by a hash of what is in it, writes it in place whatever comes of that,
and later reads it back unchecked: a file cut short by a full disk or a kill would become wrong
weights, and one that vanishes while it is opened ends the server. So a new file is renamed at once,
checked and synchronized under that name, and only then given its own name and made read-only: a
file that can be written to was never finished. A list beside the files has their sizes and
checksums, by which a worker checks them all before it serves anyone. While it does, finished files
are deleted on the server's own thread alone, which reads none of them at that moment.
"""

import hashlib
import os
import queue
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from specchat.errors import InvalidOption, SpecchatError
from specchat.system.private_files import FOLDERS, make_private, open_private
from specchat.wording import size_text

ENTRY = re.compile(r"[0-9a-f]{16}")
UNFINISHED = ".part"
HALF = re.compile(ENTRY.pattern + re.escape(UNFINISHED))
FINISHED_MODE = 0o400
LOCK, LIST = "lock", "checksums"
LISTED = re.compile(rf"({ENTRY.pattern}) (\d+) ([0-9a-f]{{64}})\n")
"""A line of the list: a file, its size and its checksum."""
LARGEST_LIST = 1 << 26
SLOW_TO_CHECK = 4 << 30
"""Bytes whose reading takes long enough to say so."""
SIZE = re.compile(rb"\[set_tensor\] .*\bsize: (\d+)")
SAVED = re.compile(rb"\[set_tensor\] saved to '.*?([0-9a-f]{16})'")
USED = re.compile(rb"\[set_tensor_hash\] .*\bhash: ([0-9a-f]{1,16})")
"""ggml's log of what it receives, writes and reads, with GGML_RPC_DEBUG set."""


class TensorCache:
    """A folder of tensors, limited in size; the oldest ones are deleted first."""

    def __init__(self, folder: Path, limit: int, say: Callable[[str], None]) -> None:
        """Open a folder and delete what is damaged in it.

        `say` is called with a line if checking takes long, if files were damaged, and when the disk
        is full, once. Raises InvalidOption if another worker uses the folder, and SpecchatError if
        it cannot be used.
        """
        self.folder, self.limit = folder, limit
        self._say = say
        self._is_full = False
        self._announced = 0
        self._pending: dict[str, int] = {}
        self._new: queue.SimpleQueue[tuple[str, int]] = queue.SimpleQueue()
        with _naming(folder):
            if folder.is_symlink():
                raise OSError(0, "it is a symbolic link")
            make_private(folder)
            folder.chmod(0o700)
            self._lock = FileLock(folder / LOCK, mode=0o600)
            try:
                self._lock.acquire(timeout=0)
            except Timeout:
                raise InvalidOption(
                    f"{folder} is in use by another worker: choose another --port"
                ) from None
            self._check()
            self._evict(0)
        threading.Thread(target=self._finish_all, name="tensor cache", daemon=True).start()

    def _check(self) -> None:
        """Delete what is not finished or damaged, and write the list anew. Raises OSError."""
        if self.num_bytes > SLOW_TO_CHECK:
            self._say(f"checking {size_text(self.num_bytes)} of cached tensors")
        listed, num_damaged = _listed(self.folder), 0
        kept: list[str] = []
        for path in list(self.folder.iterdir()):
            if HALF.fullmatch(path.name):
                path.unlink()
            elif ENTRY.fullmatch(path.name):
                known = listed.get(path.name)
                if not _is_finished(path):
                    path.unlink()
                elif known is None or _sums_of(path) != known:
                    path.unlink()
                    num_damaged += 1
                else:
                    kept.append(_line_of(path.name, known))
        (self.folder / LIST).unlink(missing_ok=True)
        with open_private(self.folder / LIST, "x") as file:
            file.writelines(kept)
        if num_damaged:
            self._say(f"deleted {num_damaged} damaged files of the tensor cache")

    @property
    def num_bytes(self) -> int:
        """The size of all files, finished or not."""
        return sum(size for _, size, _ in self._entries()) + sum(self._pending.values())

    def close(self) -> None:
        """Let another process use the folder."""
        self._lock.release()

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
                self._finish(path, size)
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

    def _finish(self, path: Path, size: int) -> None:
        """Give a file its name once all of it is on the disk; raises OSError if it is not."""
        half = path.with_suffix(UNFINISHED)
        with half.open("rb") as file:
            os.fsync(file.fileno())
        sums = _sums_of(half)
        if sums.size != size:
            raise OSError(0, "no space was left")
        with open_private(self.folder / LIST, "a") as lines:
            lines.write(_line_of(path.name, sums))
        half.chmod(FINISHED_MODE)
        half.replace(path)

    def _report(self, error: OSError) -> None:
        if not self._is_full:
            self._is_full = True
            reason = _reason(error)
            self._say(
                f"the tensor cache keeps no more weights ({reason}): free space in {self.folder}"
            )


def cache_folder(port: int) -> Path:
    """Return the folder of the worker on a port, of which there is one on this machine."""
    return FOLDERS.user_cache_path / "tensors" / str(port)


@dataclass(slots=True)
class Cleared:
    """What `clear_caches` has deleted, in bytes, and why it left something, a line for each."""

    num_bytes: int = 0
    left: list[str] = field(default_factory=list)


def clear_caches() -> Cleared:
    """Delete the tensors of all workers that are not running, and no other file."""
    found = Cleared()
    for folder in sorted(cache_folder(0).parent.glob("*")):
        if not folder.name.isdecimal():
            continue
        if folder.is_symlink() or not folder.is_dir():
            found.left.append(f"{folder} is not a folder of specchat's")
            continue
        try:
            with FileLock(folder / LOCK, timeout=0, mode=0o600):
                _clear(folder, found)
        except Timeout:
            found.left.append(f"the worker on port {folder.name} is running and uses its cache")
        except OSError as error:
            found.left.append(f"{folder} cannot be cleared ({_reason(error)})")
    return found


def _clear(folder: Path, found: Cleared) -> None:
    has_others = False
    for path in list(folder.iterdir()):
        status = path.lstat()
        is_ours = ENTRY.fullmatch(path.name) or HALF.fullmatch(path.name) or path.name == LIST
        if is_ours and stat.S_ISREG(status.st_mode):
            path.unlink()
            found.num_bytes += status.st_size if path.name != LIST else 0
        else:
            has_others = has_others or path.name != LOCK
    if has_others:
        found.left.append(f"{folder} also has other files")


@dataclass(frozen=True, slots=True)
class _Sums:
    """What must stay the same of a finished file."""

    size: int
    checksum: str


def _sums_of(path: Path) -> _Sums:
    """Read a file. Raises OSError."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=32))
        return _Sums(file.tell(), digest.hexdigest())


def _listed(folder: Path) -> dict[str, _Sums]:
    """Return what a folder's list says of its files; lines that are damaged are none."""
    try:
        with (folder / LIST).open("rb") as file:
            text = file.read(LARGEST_LIST).decode("ascii", "replace")
    except FileNotFoundError:
        return {}
    return {name: _Sums(int(size), checksum) for name, size, checksum in LISTED.findall(text)}


def _line_of(name: str, sums: _Sums) -> str:
    return f"{name} {sums.size} {sums.checksum}\n"


def _is_finished(path: Path) -> bool:
    status = path.lstat()
    return stat.S_ISREG(status.st_mode) and stat.S_IMODE(status.st_mode) == FINISHED_MODE


@contextmanager
def _naming(folder: Path) -> Iterator[None]:
    """Raise an OSError as a SpecchatError that names a file or folder and the next step."""
    try:
        yield
    except OSError as error:
        place = error.filename or folder
        raise SpecchatError(
            f"the tensor cache {place} cannot be used ({_reason(error)}): move that away, or leave"
            " out --cache"
        ) from None


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
