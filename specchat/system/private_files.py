"""Private files: readable by the user alone, and replaced atomically."""

import json
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from itertools import count
from pathlib import Path
from stat import S_IMODE, S_ISREG
from typing import Any, TextIO, TypeVar

import platformdirs

FOLDERS = platformdirs.PlatformDirs("specchat", appauthor=False)
"""The system's folders for the user's settings, data, state, caches and logs."""

LARGEST_FILE = 1 << 23
LONGEST_PREFIX = 240
"""Bytes of a name to which more can be added: file systems take 255."""
DAMAGED = ".damaged"
"""The suffix of a file that could not be read and was set aside."""

UNREADABLE = (OSError, ValueError, RecursionError)
"""The exceptions for a file that is damaged, too large or inaccessible."""

T = TypeVar("T")
D = TypeVar("D")


def make_private(folder: Path) -> None:
    """Create a folder and its missing parents, readable by the user alone.

    `Path.mkdir` would apply its mode to the last folder only. Raises OSError.
    """
    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    for path in reversed(missing):
        path.mkdir(mode=0o700, exist_ok=True)


def write_private(path: Path, data: bytes) -> None:
    """Replace a file's content atomically; on OSError the file is unchanged.

    The file is readable by the user alone. If it is a symbolic link, the file it points to is
    replaced.
    """
    target = Path(os.path.realpath(path))
    make_private(target.parent)
    prefix = target.name if len(os.fsencode(target.name)) <= LONGEST_PREFIX else ""
    descriptor, name = tempfile.mkstemp(dir=target.parent, prefix=prefix, suffix=".new")
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        Path(name).replace(target)
    except BaseException:
        with suppress(OSError):
            Path(name).unlink()
        raise


def replace_file(path: Path, data: bytes) -> None:
    """Replace the content of a file, which keeps its mode; on OSError it is unchanged.

    Only a device, a pipe or a file in a folder that cannot be written is written in place.
    """
    mode = path.stat().st_mode
    if S_ISREG(mode):
        with suppress(PermissionError):
            write_private(path, data)
            path.chmod(S_IMODE(mode))
            return
    path.write_bytes(data)


def write_new(path: Path, data: bytes, mode: int = 0o600) -> None:
    """Write a file that must not exist yet; on OSError there is none."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_BINARY", 0)
    descriptor = os.open(path, flags, mode)
    try:
        with os.fdopen(descriptor, "wb") as file:
            file.write(data)
    except BaseException:
        with suppress(OSError):
            path.unlink()
        raise


def open_private(path: Path) -> TextIO:
    """Open a text file to add to; a new file is readable by the user alone."""
    return open(path, "a", encoding="utf-8", opener=partial(os.open, mode=0o600))


def read_json(path: Path, kind: type[T], default: D) -> T | D:
    """Return the value in a JSON file; the default if the file is missing or damaged."""
    try:
        stored = _read(path, kind)
    except UNREADABLE:
        return default
    return default if stored is None else stored


def read_text(path: Path) -> str:
    """Return a small text file of the system or another program, empty if it cannot be read."""
    with suppress(OSError, ValueError):
        return path.read_text("utf-8", "replace").strip()
    return ""


def write_json(path: Path, value: Any) -> None:
    """Replace a file with a value as indented JSON; see `write_private`."""
    write_private(path, _encoded(value))


def prune(folder: Path, pattern: str, most: int, seconds: float) -> None:
    """Delete a folder's files beyond the `most` last written, and those older than `seconds`.

    Raises OSError.
    """
    dated = [(path.stat().st_mtime, path) for path in folder.glob(pattern)]
    oldest = time.time() - seconds
    for number, (written, path) in enumerate(sorted(dated, reverse=True)):
        if number >= most or written < oldest:
            path.unlink(missing_ok=True)


@contextmanager
def updating(path: Path, kind: type[T]) -> Iterator[T]:
    """Yield the value in a JSON file for changes in place, then write it back.

    Other threads and processes wait meanwhile. If there is no file, the value is `kind()`. A
    damaged file is set aside first, never overwritten. Nothing is written if the value does not
    change or the block raises. Raises OSError.
    """
    set_aside(path, kind)
    with _locked(path):
        stored = _read(path, kind)
        value = kind() if stored is None else stored
        before = _encoded(value)
        yield value
        if _encoded(value) != before:
            write_json(path, value)


def set_aside(path: Path, kind: type[Any]) -> Path | None:
    """Rename a JSON file that does not hold a value of a type; return its new path, else None.

    Raises OSError.
    """
    if not path.exists():
        return None
    with _locked(path):
        try:
            _read(path, kind)
        except UNREADABLE:
            names = (path.with_name(f"{path.name}{DAMAGED}-{number}") for number in count(1))
            return path.rename(next(name for name in names if not name.exists()))
    return None


def _read(path: Path, kind: type[T]) -> T | None:
    """Return the value in a JSON file, checked against a type; None if there is no file.

    Raises one of UNREADABLE if the file cannot be read, holds something else or is too large. The
    json module parses it because paths may hold lone surrogates, which msgspec refuses.
    """
    import msgspec

    with suppress(FileNotFoundError), path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
        if len(content) > LARGEST_FILE:
            raise ValueError(f"{path} is larger than {LARGEST_FILE >> 20} MiB: delete it")
        return msgspec.convert(json.loads(content), kind)
    return None


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    from filelock import FileLock

    make_private(path.parent)
    with FileLock(path.with_suffix(".lock"), mode=0o600):
        yield


def _encoded(value: Any) -> bytes:
    import msgspec

    return json.dumps(msgspec.to_builtins(value), indent=1).encode()
