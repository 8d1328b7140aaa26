"""Log files: private to the user, emptied when they grow too large."""

import os
import re
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from specchat.system.installation import missing_package
from specchat.system.private_files import FOLDERS, make_private

INTERNAL_LOG = "specchat.log"
ASSERTION = re.compile(rb"GGML_ASSERT\([^\n]{1,200}\) failed")
MAX_LOG_BYTES = 4 * 1024 * 1024


def log_path(name: str) -> Path:
    """Return the path of a log in the user's log folder."""
    return FOLDERS.user_log_path / name


def latest_log(*names: str) -> Path | None:
    """Return the path of the most recently written log that is not empty."""
    with suppress(OSError):
        written = [path for path in map(log_path, names) if path.exists() and path.stat().st_size]
        return max(written, key=lambda path: path.stat().st_mtime_ns, default=None)
    return None


def log_size(name: str) -> int:
    """Return the size of a log, 0 if there is none."""
    with suppress(OSError):
        return log_path(name).stat().st_size
    return 0


def failed_assertion(name: str, begin: int) -> str:
    """Return the last assertion that llama.cpp logged after an offset, empty without one."""
    with suppress(OSError), log_path(name).open("rb") as log:
        log.seek(begin if begin <= log_size(name) else 0)  # it may have been emptied
        assertions = ASSERTION.findall(log.read(MAX_LOG_BYTES))
        return assertions[-1].decode("utf-8", "replace") if assertions else ""
    return ""


def open_log(name: str) -> int:
    """Return a file descriptor that appends to a log; a log over the size limit is emptied first.

    If the log cannot be written, the descriptor is the null device's.
    """
    path = log_path(name)
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT
    try:
        make_private(path.parent)
        if path.exists() and path.stat().st_size > MAX_LOG_BYTES:
            flags |= os.O_TRUNC
        return os.open(path, flags, 0o600)
    except OSError:
        return os.open(os.devnull, os.O_WRONLY)


def log_internal_error(error: BaseException, name: str = INTERNAL_LOG) -> str:
    """Append an unexpected error's traceback to a log; return the line to show the user."""
    lines = "".join(traceback.format_exception(error))
    with os.fdopen(open_log(name), "w", encoding="utf-8", errors="backslashreplace") as log:
        log.write(f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC\n{lines}\n")
    if lack := missing_package(error):
        return lack
    summary = f"{type(error).__name__}: {error}".splitlines()[0]
    return f"internal error (please report): {summary}; details in {log_path(name)}"
