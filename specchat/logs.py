"""Where logs go: files of the user's alone, cut before they grow without end."""

from __future__ import annotations

import os
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import platformdirs

from specchat.private_files import make_private

__all__ = ["latest_log", "log_failure", "log_path", "open_log"]

LARGEST_LOG_BYTES = 4 * 1024 * 1024


def log_path(name: str) -> Path:
    """Return the path of a log, in the user's log folder."""
    return Path(platformdirs.user_log_path("specchat", appauthor=False)) / name


def latest_log(*names: str) -> Path | None:
    """Return the path of the log written last, of those that have something in them."""
    written: list[tuple[int, Path]] = []
    for path in map(log_path, names):
        with suppress(OSError):
            found = path.stat()
            if found.st_size:
                written.append((found.st_mtime_ns, path))
    return max(written)[1] if written else None


def open_log(name: str) -> int:
    """Open a log for appending, from its beginning where it has grown too large.

    Returns a descriptor; of the null device where no log can be written, which must stop nobody.
    """
    path = log_path(name)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        make_private(path.parent)
        if path.exists() and path.stat().st_size > LARGEST_LOG_BYTES:
            flags |= os.O_TRUNC
        return os.open(path, flags, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def log_failure(name: str, error: BaseException) -> Path:
    """Append where an error of specchat's own came from to a log; return the log's path."""
    words = "".join(traceback.format_exception(error))
    with os.fdopen(open_log(name), "w", encoding="utf-8", errors="backslashreplace") as log:
        log.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n{words}\n")
    return log_path(name)
